"""A pin: views and tables as of one committed epoch, for as long as it is open.

Meanwhile other processes see it in the status of the database.
"""

from __future__ import annotations

import weakref
from datetime import timedelta

from everview.catalog import Positions
from everview.closing import Closing
from everview.errors import EverviewError, reason_of
from everview.freshness import age_of, oldest_pending
from everview.named import open_view
from everview.stores.base import PinnedStore, Pins
from everview.table import Table
from everview.view import View


class Pin(Closing):
    """All reads through a pin see the same epoch, whatever others write or maintain meanwhile.

    While it is open, the files can't use the space of replaced rows again. So close it, or use it
    in a `with` block. A pin that reaches its `max_age` ends by itself; from then on reads through
    it raise `PinExpired`.
    """

    def __init__(self, store: PinnedStore, pins: Pins, max_age: float | None = None) -> None:
        self._store = store
        self._forget = weakref.finalize(self, pins.note(self.epoch, max_age))

    def __repr__(self) -> str:
        try:
            return f"<pin of epoch {self.epoch}>"
        except EverviewError as error:
            return f"<pin: {reason_of(error)}>"

    @property
    def epoch(self) -> int:
        return self._store.catalog.epoch.number

    @property
    def positions(self) -> Positions:
        """How far the epoch follows the log of each table: {table: {region: sequence}}."""
        return self._store.catalog.epoch.positions

    @property
    def freshness(self) -> timedelta:
        """The age of the oldest change that the epoch does not include, in any table of a view."""
        return timedelta(seconds=age_of(oldest_pending(self._store, self.positions)))

    def view(self, name: str) -> View:
        """A view as of the epoch. A stopped view is as of the epoch at which it stopped."""
        return open_view(self._store, name)

    def table(self, name: str) -> Table:
        """A table as of the epoch. A table that no view reads is as of the opening of the pin."""
        return Table(self._store, name)

    def close(self) -> None:
        self._store.close()
        self._forget()
