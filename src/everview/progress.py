"""How far a load beside epochs is."""

from __future__ import annotations

import time
from dataclasses import dataclass

from everview.catalog import LOAD
from everview.catalog.loads import BEGINNING, LOADING, OVER, LoadRecord
from everview.errors import Damaged
from everview.stores.base import Reader


@dataclass(frozen=True)
class Progress:
    """The progress of a load, whose `views` are loaded together.

    `stage` is 'loading', 'catching up' with the changes that were made meanwhile, or 'ready' to
    appear. `rows` of `expected_rows` of the tables are read, and `parts` of `expected_parts` are
    done: operators, and views. It takes `seconds` since it began, or went on after a crash, when it
    had read `rows_before` and was at `share_before`.
    """

    views: tuple[str, ...]
    stage: str
    rows: int
    expected_rows: int
    parts: int
    expected_parts: int
    seconds: float
    rows_before: int = 0
    share_before: float = 0.0

    @property
    def share(self) -> float:
        """How much of the load is done, from 0 to 1: rows read and parts done, in equal shares."""
        if self.stage != LOADING:
            return 1.0
        return _share(self.rows, self.expected_rows, self.parts, self.expected_parts)

    @property
    def rate(self) -> float:
        """Rows per second that it reads."""
        return (self.rows - self.rows_before) / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """About how long the load still takes; None as long as nobody can tell."""
        done = self.share - self.share_before
        return self.seconds * (1 - self.share) / done if done > 0 else None

    def __str__(self) -> str:
        if self.stage != LOADING:
            return self.stage
        left = self.seconds_left
        about = "" if left is None else f", about {left:,.0f} s left"
        return (
            f"loading {self.share:.0%}: {self.rows:,} of {self.expected_rows:,} rows read, "
            f"{self.rate:,.0f} rows/s, {self.parts} of {self.expected_parts} parts done{about}"
        )


def _share(rows: int, expected_rows: int, parts: int, expected_parts: int) -> float:
    read = min(1.0, rows / expected_rows) if expected_rows else 1.0
    return (read + parts / expected_parts) / 2


def progress(store: Reader) -> Progress | None:
    """The progress of the load beside epochs; None if there is none."""
    load = store.catalog.get(LOAD)
    if load is None or load.stage in (BEGINNING, OVER):
        return None
    try:
        return progress_of(store, load)
    except Damaged:  # it has just ended, and its notes are gone
        return None


def progress_of(store: Reader, load: LoadRecord) -> Progress:
    notes = store.states.shard(load.notes, load.views[0].shards[0])
    return Progress(
        tuple(view.title for view in load.views),
        load.stage,
        sum(notes.noted_rows().values()),
        load.expected_rows,
        len(load.outputs) + len(load.loaded),
        len(load.places) + len(load.views),
        time.time() - load.begun,
        load.rows_before,
        load.share_before,
    )
