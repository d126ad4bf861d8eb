"""Leaving out what is not needed: greedily, many at once and then fewer, with a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from everview.check.history import Write
from everview.check.rows import Row

T = TypeVar("T")
_TRIALS = 300


def fewest(items: list[T], is_enough: Callable[[Sequence[T]], bool]) -> list[T]:
    """Few of the items that are still enough."""
    size, trials = max(1, len(items) // 2), 0
    while size and trials < _TRIALS:
        start = 0
        while start < len(items) and trials < _TRIALS:
            rest = items[:start] + items[start + size :]
            trials += 1
            if is_enough(rest):
                items = rest
            else:
                start += size
        size //= 2
    return items


def live_writes(writes: Iterable[Write]) -> list[Write]:
    """The writes that no later one of their record replaces, without deletes."""
    last = {(write.table, write.key): write for write in writes}
    return [write for write in last.values() if write.row is not None]


def by_relevance(writes: list[Write], rows: Iterable[Row]) -> list[Write]:
    """The writes, those that share no value with the rows first: they can be left out together."""
    cells = {value for row in rows for _, value in row}
    return sorted(writes, key=lambda write: not cells.isdisjoint((write.row or {}).values()))
