"""How a load beside epochs tells how far it is, gives way, and ends when nobody needs it."""

from __future__ import annotations

import time

from everview.catalog import PACE
from everview.errors import LoadEnded
from everview.programs.step import Step
from everview.stores import shared_store

LONGEST_WAIT = 10.0  # seconds for each piece of work, so that a load comes to its end
_LOOK_SECONDS = 0.05


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


def note_rows(step: Step, name: str, rows: int) -> None:
    """Note how many rows of something a load has read."""
    if step.notes is not None:
        store = shared_store(step.address, readonly=False)
        store.states.shard(step.notes, step.shards[0]).note_rows(step.token, name, rows)
