"""Which task takes which slots in an epoch: by the work that slots had, and that tasks got done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from everview.catalog import ViewRecord
from everview.errors import Damaged
from everview.programs.direct import is_direct, is_small
from everview.programs.step import Step
from everview.ring.ring import dealt
from everview.stores.base import Store
from everview.stores.work import ShardWork, total

_SLOWEST, _FASTEST = 0.5, 2.0  # against the others; a task that is slower was only disturbed


def deal_out(
    store: Store, views: Sequence[ViewRecord], step: Step, before: tuple[int, ...]
) -> tuple[int, ...]:
    """The task of each slot, in an epoch that an engine computes; () if tasks take whole shards.
    There are as many tasks as shards, since one task at a time writes a shard."""
    if not step.is_spread or (is_small(step) and all(map(is_direct, views))):
        return ()
    tasks, seconds = len(step.shards), np.zeros(step.slots)
    done, took = np.zeros(tasks), np.zeros(tasks)
    for shards in _works(store, views):
        cost = _cost_of_row(shards)
        for shard in shards:
            if len(shard.rows_of_slots) == step.slots:
                seconds += cost * np.array(shard.rows_of_slots)
            for first, rows, nanoseconds in shard.parts:
                task = before[first] if first < len(before) else tasks
                if task < tasks:
                    done[task] += cost * rows
                    took[task] += nanoseconds
    return dealt(seconds.tolist(), _speeds(done, took), tasks, before)


def _works(store: Store, views: Sequence[ViewRecord]) -> Iterator[list[ShardWork]]:
    """The work of the shards of each state, also of one that several views share. A view whose
    state is damaged stops when the epoch runs."""
    states = {state: view.shards for view in views for state in view.states.values()}
    for state, shards in states.items():
        with suppress(Damaged):
            yield [store.states.shard(state, number).work() for number in shards]


def _cost_of_row(shards: Sequence[ShardWork]) -> float:
    """The nanoseconds that a row took in the last epochs."""
    whole = total(work for shard in shards for work in shard.epochs)
    return whole.nanoseconds / whole.rows_in if whole.rows_in else 0.0


def _speeds(done: np.ndarray, took: np.ndarray) -> list[float]:
    """How fast tasks are, 1 being usual. A task's time says half of it: the rest may be chance."""
    if not np.all(took > 0) or not np.all(done > 0):
        return [1.0] * len(done)
    speeds = done / took
    relative = np.clip(speeds / speeds.mean(), _SLOWEST, _FASTEST)
    return [(1 + float(speed)) / 2 for speed in relative]
