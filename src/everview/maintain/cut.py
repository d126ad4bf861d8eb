"""Where an epoch ends: at one moment in all tables, and not too far from its start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime

from everview.batch import Batch
from everview.catalog import Epoch, Positions, ViewRecord
from everview.freshness import oldest_pending
from everview.stores.base import Store

_SHORT = 1000  # µs


def cut(
    store: Store, start: Positions, views: Iterable[ViewRecord], batch: Batch
) -> tuple[Positions, int]:
    """The positions where the next epoch ends, and their time: now, or as late as the batch allows.

    If views of consistency 'complete' read a table, the epoch has only the oldest change of such
    tables; and of tables that some view reads together with them, the changes up to its time.
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
        oldest = oldest_pending(store, used, start)
        assert oldest is not None
        low, high = _micros(oldest), now
        while high - low > _SHORT:
            middle = (low + high) // 2
            if is_too_much(positions_at(store, start, used, middle)):
                high = middle
            else:
                low = middle
        end, now = positions_at(store, start, used, low), low
    complete = {table for view in views if view.consistency == "complete" for table in view.tables}
    one_change = _one_change(store, start, complete, _read_together(views, complete), now)
    return {**end, **one_change}, now


def moment_of(store: Store, epoch: Epoch, followed: Iterable[str]) -> int:
    """The latest moment, in µs, of which an epoch has all changes of the tables that are followed.
    Of other tables the log may lack what is much older: other groups let it be trimmed."""
    now = time_now()
    oldest = oldest_pending(store, followed, epoch.positions)
    if oldest is None:
        return now
    return min(now, max(epoch.time, _micros(oldest) - 1))


def positions_at(store: Store, start: Positions, used: set[str], time: int) -> Positions:
    """The positions at a time, none before `start`; tables that are not `used` stay at `start`."""
    at = {table: store.positions_at(table, time) for table in used}
    return {
        table: {r: max(s, at[table][r]) if table in used else s for r, s in regions.items()}
        for table, regions in start.items()
    }


def _one_change(
    store: Store, start: Positions, tables: set[str], together: set[str], upto: int
) -> Positions:
    """Positions after the oldest pending change of some tables, with those of the tables read
    together with them at its time; no positions if that change is later than `upto`."""
    times = [
        (_micros(time), table, region)
        for table in tables
        for region, time in store.times_after(table, start[table]).items()
    ]
    change_time, table, region = min(times, default=(0, "", 0))
    if change_time > time_now():  # before the clock was set back
        change_time = upto
    if not times or change_time > upto:
        return {}
    end = positions_at(store, {name: start[name] for name in together}, together, change_time)
    changed = {**start[table], region: start[table][region] + 1}
    return {**end, **{name: start[name] for name in tables}, table: changed}


def _read_together(views: Iterable[ViewRecord], tables: set[str]) -> set[str]:
    """The tables, those that a view reads together with one of them, and so on."""
    linked = tables
    while True:
        read = [set(view.tables) for view in views if not linked.isdisjoint(view.tables)]
        wider = linked.union(*read)
        if wider == linked:
            return linked
        linked = wider


def _measure(
    store: Store, start: Positions, end: Positions, batch: Batch
) -> Callable[[Positions], bool]:
    """A test whether the changes up to an end, not after this one, are too much for a batch. It
    estimates their bytes from a sample."""
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
    """The time in µs, as in logs."""
    return time.time_ns() // 1000
