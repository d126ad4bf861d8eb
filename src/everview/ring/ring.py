"""Which task takes which slots: a ring with bounds.

Tasks have points on a ring, in proportion to their speed, and so do slots. A slot goes to the task
whose point comes next; but if that one would have more than its share of the work, to the next one.
Slots with much work choose first. So most slots stay where they are when work, speeds or the number
of tasks change, and no task has much more to do than the others, as far as slots allow it. That is
consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2018).
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from hashlib import blake2b

SPARE = 0.1  # by how much a task may have more than its share
UNEVEN = 1.25  # above it, slots are dealt out anew
_POINTS = 64  # of a task of the mean speed


def deal(work: Sequence[float], speeds: Sequence[float]) -> tuple[int, ...]:
    """For each slot the number of the task that takes it, by the work of slots and the speeds of
    tasks."""
    mean = sum(speeds) / len(speeds)
    points = sorted(
        (_point(f"task {task} {number}"), task)
        for task, speed in enumerate(speeds)
        for number in range(max(1, round(_POINTS * speed / mean)))
    )
    rooms = [(1 + SPARE) * sum(work) * speed / sum(speeds) for speed in speeds]
    tasks, loads = [0] * len(work), [0.0] * len(speeds)
    for slot in sorted(range(len(work)), key=lambda slot: (-work[slot], slot)):
        task = _next_task(points, slot, [load + work[slot] for load in loads], rooms)
        tasks[slot] = task
        loads[task] += work[slot]
    return tuple(tasks)


def _next_task(
    points: Sequence[tuple[int, int]], slot: int, loads: Sequence[float], rooms: Sequence[float]
) -> int:
    """The next task on the ring that has room; if none has, the one that lacks least."""
    at = bisect(points, (_point(f"slot {slot}"), -1))
    for _, task in (*points[at:], *points[:at]):
        if loads[task] <= rooms[task]:
            return task
    return min(range(len(rooms)), key=lambda task: loads[task] / rooms[task])


def _point(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")


def unevenness(tasks: Sequence[int], work: Sequence[float], speeds: Sequence[float]) -> float:
    """The time of the busiest task against that of all tasks if they shared the work evenly."""
    loads = [0.0] * len(speeds)
    for slot, task in enumerate(tasks):
        loads[task] += work[slot]
    even = sum(work) / sum(speeds)
    times = [load / speed for load, speed in zip(loads, speeds, strict=True)]
    return max(times) / even if even else 1.0


def dealt(
    work: Sequence[float], speeds: Sequence[float], shards: int, before: tuple[int, ...]
) -> tuple[int, ...]:
    """How the next epoch deals slots out: not at all if whole shards are even enough; as before, if
    that is; else anew."""
    whole = [slot % shards for slot in range(len(work))]
    if shards == len(speeds) and unevenness(whole, work, speeds) <= UNEVEN:
        return ()
    fits = len(before) == len(work) and max(before) < len(speeds)
    if fits and unevenness(before, work, speeds) <= UNEVEN:
        return before
    anew = deal(work, speeds)
    is_better = shards != len(speeds) or unevenness(anew, work, speeds) < unevenness(
        whole, work, speeds
    )
    return anew if is_better else ()
