"""Where an epoch ends: at one moment of all tables, and not too far from its start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime

from everview.batch import Batch
from everview.catalog import Positions, ViewRecord
from everview.freshness import oldest_pending
from everview.stores.base import Store

_SHORT = 1000  # µs


def cut(
    store: Store, start: Positions, views: Iterable[ViewRecord], batch: Batch
) -> tuple[Positions, int]:
    """How far the epoch goes, and the time of that: now, or as far as the batch allows.

    Of the tables that views of consistency 'complete' read, it has the oldest change alone; and of
    those that some view reads together with them, what was made until then.
    """
    used = {table for view in views for table in view.tables}
    now = time_now()
    if batch.seconds is not None and (oldest := oldest_pending(store, used, start)):
        first = _micros(oldest)
        if first <= now:  # else the clock was set back
            now = min(now, first + round(batch.seconds * 1e6))
    end = positions_at(store, start, used, now)
    is_too_much = _measure(store, start, end, batch)
    if is_too_much(end):
        oldest = oldest_pending(store, used)
        assert oldest is not None
        low, high = _micros(oldest), now
        while high - low > _SHORT:
            middle = (low + high) // 2
            if is_too_much(positions_at(store, start, used, middle)):
                high = middle
            else:
                low = middle
        end, now = positions_at(store, start, used, low), low
    complete = {t for v in views if v.consistency == "complete" for t in v.tables}
    one = _one_change(store, start, complete, _read_together(views, complete), now)
    return {**end, **one}, now


def positions_at(store: Store, start: Positions, used: set[str], time: int) -> Positions:
    """The positions of a time, none before `start`; tables that are not used stay there."""
    at = {table: store.positions_at(table, time) for table in used}
    return {
        table: {r: max(s, at[table][r]) if table in used else s for r, s in regions.items()}
        for table, regions in start.items()
    }


def _one_change(
    store: Store, start: Positions, tables: set[str], together: set[str], upto: int
) -> Positions:
    """Positions after the oldest pending change of some tables, and of those read together with
    them at its time; none if it was made after a time."""
    times = [
        (_micros(time), table, region)
        for table in tables
        for region, time in store.times_after(table, start[table]).items()
    ]
    made, table, region = min(times, default=(0, "", 0))
    if made > time_now():  # before the clock was set back
        made = upto
    if not times or made > upto:
        return {}
    end = positions_at(store, {one: start[one] for one in together}, together, made)
    changed = {**start[table], region: start[table][region] + 1}
    return {**end, **{one: start[one] for one in tables}, table: changed}


def _read_together(views: Iterable[ViewRecord], tables: set[str]) -> set[str]:
    """The tables, those that a view reads beside one of them, and so on."""
    found = tables
    while True:
        read = [set(view.tables) for view in views if not found.isdisjoint(view.tables)]
        wider = found.union(*read)
        if wider == found:
            return found
        found = wider


def _measure(
    store: Store, start: Positions, end: Positions, batch: Batch
) -> Callable[[Positions], bool]:
    """Tells of an end up to this one whether there is more until there than a batch may have. The
    number of bytes is that of some of the changes, scaled up."""
    places = [(t, r) for t in start for r in start[t] if end[t][r] > start[t][r]]
    bytes_ = {(t, r): store.bytes_of_changes(t, r, start[t][r], end[t][r]) for t, r in places}

    def is_too_much(end: Positions) -> bool:
        changes = {(t, r): end[t][r] - start[t][r] for t, r in places}
        size = sum(bytes_[place] * number for place, number in changes.items())
        return sum(changes.values()) > batch.changes or size > batch.bytes

    return is_too_much


def _micros(time: datetime) -> int:
    return round(time.timestamp() * 1e6)


def time_now() -> int:
    """In µs, as logs have it."""
    return time.time_ns() // 1000
