"""How a load beside epochs tells how far it is, gives way, and ends when nobody needs it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TypeVar

from everview.catalog import PACE
from everview.errors import LoadEnded
from everview.programs.step import Step
from everview.stores import shared_store

LONGEST_WAIT = 10.0  # seconds for each piece of work, so that a load comes to its end
NOTED_ROWS = 1 << 16
_LOOK_SECONDS = 0.05
T = TypeVar("T")


def keep_pace(step: Step) -> None:
    """Wait while a load has to give way. Raises `LoadEnded` if nobody needs it any more."""
    if step.notes is None:
        return
    catalog = shared_store(step.address, readonly=True).catalog
    until = time.monotonic() + LONGEST_WAIT
    while True:
        pace = catalog.get(PACE)
        if pace is None or pace.notes != step.notes:
            raise LoadEnded("this load was ended; the next run goes on with it")
        if not pace.waits or time.monotonic() > until:
            return
        time.sleep(_LOOK_SECONDS)


class Pacer:
    """Notes how many rows a task of a load has read, and keeps its pace."""

    def __init__(self, step: Step, name: str) -> None:
        self._step, self._name = step, name
        self._rows = self._noted = 0

    def read(self, rows: int) -> None:
        self._rows += rows
        if self._rows - self._noted >= NOTED_ROWS:
            keep_pace(self._step)
            self.note()

    def note(self) -> None:
        """Note the rows, if the step is a load."""
        step, self._noted = self._step, self._rows
        if step.notes is not None and step.start is None:
            shard = shared_store(step.address, readonly=False).states.shard(
                step.notes, step.shards[0]
            )
            shard.note_rows(step.token, self._name, self._rows)


def paced(parts: Iterator[tuple[int, list[T]]], pacer: Pacer | None) -> Iterator[T]:
    """The items of parts, of which each has a number of rows."""
    for rows, items in parts:
        if pacer is not None:
            pacer.read(rows)
        yield from items
    if pacer is not None:
        pacer.note()
