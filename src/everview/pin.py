"""A pin: views and tables as of one moment, for as long as it is open.

Meanwhile other processes see it in the status of the database.
"""

from __future__ import annotations

import weakref
from datetime import timedelta

from everview.catalog import Positions, title_of
from everview.closing import Closing
from everview.errors import EverviewError, reason_of
from everview.freshness import age_of, oldest_of_groups
from everview.named import open_view
from everview.stores.base import PinnedStore, Pins
from everview.table import Table
from everview.view import View


class Pin(Closing):
    """All reads through a pin see the same moment, whatever others write or maintain meanwhile.

    Each view is as of the epoch that its group had committed at that moment; views of one group see
    the tables alike. A table is as of the epoch of the main group if a view of that follows it, and
    else of another group's; of a pin that names views, their groups come first.

    While it is open, the files can't use the space of replaced rows again. So close it, or use it
    in a `with` block. A pin that reaches its `max_age` ends by itself; from then on reads through
    it raise `PinExpired`.
    """

    def __init__(self, store: PinnedStore, pins: Pins, max_age: float | None = None) -> None:
        self._store = store
        self._forget = weakref.finalize(self, pins.note(self.epoch, max_age))

    def __repr__(self) -> str:
        try:
            others = list(self.epochs.items())[1:]
            named = "".join(f", group {group} at {epoch}" for group, epoch in others)
            return f"<pin of epoch {self.epoch}{named}>"
        except EverviewError as error:
            return f"<pin: {reason_of(error)}>"

    @property
    def epoch(self) -> int:
        """The epoch of the main group; if only views of other groups are pinned, of the first."""
        catalog = self._store.catalog
        return catalog.epoch_of(catalog.order[0]).number

    @property
    def epochs(self) -> dict[str, int]:
        """The epoch of each group."""
        catalog = self._store.catalog
        return {title_of(group): catalog.epoch_of(group).number for group in catalog.order}

    @property
    def positions(self) -> Positions:
        """How far the tables follow their logs: {table: {region: sequence}}."""
        return self._store.catalog.positions

    @property
    def freshness(self) -> timedelta:
        """The age of the oldest change that a group does not include, in any table of its views."""
        oldest = oldest_of_groups(self._store, self._store.catalog.order)
        return timedelta(seconds=age_of(oldest))

    def view(self, name: str) -> View:
        """A view as of the epoch. A stopped view is as of the epoch at which it stopped."""
        return open_view(self._store, name)

    def table(self, name: str) -> Table:
        """A table as of the epoch. A table that no view reads is as of the opening of the pin."""
        return Table(self._store, name)

    def close(self) -> None:
        self._store.close()
        self._forget()
