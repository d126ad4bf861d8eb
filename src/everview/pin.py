"""A pin: views and tables as of one committed epoch, for as long as it is open.

While it is, others see it in the status of the database.
"""

from __future__ import annotations

import weakref
from datetime import timedelta

from everview.catalog import EPOCH, NO_EPOCH, Positions
from everview.closing import Closing
from everview.errors import EverviewError, reason_of
from everview.freshness import age_of, oldest_pending
from everview.stores.base import PinnedStore, Pins
from everview.table import Table
from everview.view import View


class Pin(Closing):
    """Reads through it all see the same epoch, whatever is written or maintained meanwhile.

    It keeps the files from reusing the space of what was replaced since, so close it, or use it
    as a block, when done. One that is older than its `max_age` ends by itself; reads through it
    then raise `PinExpired`.
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
        return (self._store.catalog.get(EPOCH) or NO_EPOCH).number

    @property
    def positions(self) -> Positions:
        """What the epoch has of each table's log, by region."""
        return (self._store.catalog.get(EPOCH) or NO_EPOCH).positions

    @property
    def freshness(self) -> timedelta:
        """The age, now, of the oldest change of any table that views read and the epoch lacks."""
        return timedelta(seconds=age_of(oldest_pending(self._store, self.positions)))

    def view(self, name: str) -> View:
        """A view as of the epoch; a stopped one as of the epoch it was stopped at."""
        return View(self._store, name)

    def table(self, name: str) -> Table:
        """A table as the epoch has it; one that no view reads as it was when this was pinned."""
        return Table(self._store, name)

    def close(self) -> None:
        self._store.close()
        self._forget()
