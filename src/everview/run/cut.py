"""Where an epoch ends: at one moment of all tables, and not too far from its start."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from everview.view import oldest_pending

if TYPE_CHECKING:
    from everview.stores.embedded import EmbeddedStore

Positions = dict[str, dict[int, int]]
MOST_CHANGES = 500_000
_SHORT = 1000  # µs


def cut(
    store: EmbeddedStore, start: Positions, views: Iterable[Mapping[str, Any]]
) -> tuple[Positions, int]:
    """How far the epoch goes, and the time of that: now, or as far as one epoch may.

    Of the tables that views of consistency 'complete' read, it has the oldest change alone.
    """
    used = {table for view in views for table in view["tables"]}
    now = time_now()
    end = positions_at(store, start, used, now)
    if _changes(start, end) > MOST_CHANGES:
        oldest = oldest_pending(store, used)
        assert oldest is not None
        low, high = round(oldest.timestamp() * 1e6), now
        while high - low > _SHORT:
            middle = (low + high) // 2
            if _changes(start, positions_at(store, start, used, middle)) > MOST_CHANGES:
                high = middle
            else:
                low = middle
        end, now = positions_at(store, start, used, low), low
    complete = [view["tables"] for view in views if view["consistency"] == "complete"]
    return end | _one_change(store, start, {t for tables in complete for t in tables}), now


def positions_at(store: EmbeddedStore, start: Positions, used: set[str], time: int) -> Positions:
    """The positions of a time, none before `start`; tables that are not used stay there."""
    at = {table: store.positions_at(table, time) for table in used}
    return {
        table: {r: max(s, at[table][r]) if table in used else s for r, s in regions.items()}
        for table, regions in start.items()
    }


def _one_change(store: EmbeddedStore, start: Positions, tables: set[str]) -> Positions:
    """Positions of the tables after their oldest pending change."""
    times = [
        (time, table, region)
        for table in tables
        for region, time in store.times_after(table, start[table]).items()
    ]
    end = {table: start[table] for table in tables}
    if times:
        _, table, region = min(times)
        end[table] = start[table] | {region: start[table][region] + 1}
    return end


def _changes(start: Positions, end: Positions) -> int:
    return sum(end[t][r] - start[t][r] for t in start for r in start[t])


def time_now() -> int:
    """In µs, as logs have it."""
    return time.time_ns() // 1000
