"""How far a load beside epochs is."""

from __future__ import annotations

import time
from dataclasses import dataclass

from everview.catalog import LOAD
from everview.catalog.records import LOADING
from everview.stores.base import Reader


@dataclass(frozen=True)
class Progress:
    """The progress of a load: how many `rows` of the tables it has read, and how many it has to
    read, as far as that is known; in `seconds`, since it began or went on, it read `new_rows`.

    `views` are loaded together. `stage` is 'loading', 'catching up' with changes that were made
    meanwhile, or 'ready' to appear.
    """

    views: tuple[str, ...]
    stage: str
    rows: int
    expected_rows: int
    new_rows: int
    seconds: float

    @property
    def share(self) -> float:
        """From 0 to 1."""
        if self.stage != LOADING or not self.expected_rows:
            return 1.0
        return min(1.0, self.rows / self.expected_rows)

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.new_rows / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """About how long it takes to read the rest; None as long as nobody can tell."""
        if not self.rate:
            return None
        return max(0, self.expected_rows - self.rows) / self.rate

    def __str__(self) -> str:
        if self.stage != LOADING:
            return self.stage
        left = self.seconds_left
        about = "" if left is None else f", {self.rate:,.0f} rows/s, about {left:,.0f} s left"
        return f"loading {self.share:.0%}: {self.rows:,} of {self.expected_rows:,} rows{about}"


def progress(store: Reader) -> Progress | None:
    """The progress of the load beside epochs; None if there is none."""
    load = store.catalog.get(LOAD)
    if load is None or not load.states:
        return None
    notes = store.states.shard(load.notes, load.views[0].shards[0])
    rows = sum(notes.noted_rows().values())
    return Progress(
        tuple(view.name for view in load.views),
        load.stage,
        rows,
        load.expected_rows,
        rows - load.rows_before,
        time.time() - load.begun,
    )
