"""Which task takes which slots in an epoch: by the work that slots had, and that tasks got done."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from everview.catalog import ViewRecord
from everview.explain.work import operator_works
from everview.programs.direct import is_direct, is_small
from everview.programs.step import Step
from everview.ring.ring import dealt
from everview.stores.base import Store
from everview.stores.work import ShardWork, total

_SLOWEST, _FASTEST = 0.5, 2.0  # against the others; a task that is slower was only disturbed


def deal_out(
    store: Store, views: Sequence[ViewRecord], step: Step, tasks: int, before: tuple[int, ...]
) -> tuple[int, ...]:
    """The task of each slot, in an epoch that an engine computes; () if tasks take whole shards."""
    if not step.is_spread or (is_small(step) and all(map(is_direct, views))):
        return ()
    works = [shards for view in views for shards in operator_works(store, view).values()]
    seconds = np.zeros(step.slots)
    done, took = np.zeros(tasks), np.zeros(tasks)
    for shards in works:
        cost = _cost_of_row(shards)
        for shard in shards:
            if len(shard.rows_of_slots) == step.slots:
                seconds += cost * np.array(shard.rows_of_slots)
            for first, rows, nanoseconds in shard.parts:
                task = before[first] if first < len(before) else tasks
                if task < tasks:
                    done[task] += cost * rows
                    took[task] += nanoseconds
    return dealt(seconds.tolist(), _speeds(done, took), len(step.shards), before)


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
