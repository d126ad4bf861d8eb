"""How fresh views are: the age of the oldest change that they lack."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import chain

from everview.catalog import Positions
from everview.stores.base import Reader


def oldest_pending(store: Reader, tables: Iterable[str], positions: Positions) -> datetime | None:
    """When the oldest change after the positions was made; None if there is none."""
    times = [store.times_after(table, positions.get(table, {})).values() for table in tables]
    return min(chain.from_iterable(times), default=None)


def oldest_of_groups(store: Reader, groups: Iterable[str]) -> datetime | None:
    """When the oldest change was made that some group has not come to; None if there is none."""
    epochs = [store.catalog.epoch_of(group).positions for group in groups]
    times = [oldest_pending(store, positions, positions) for positions in epochs]
    return min((time for time in times if time is not None), default=None)


def age_of(time: datetime | None) -> float:
    """Seconds since a time; 0 for None."""
    return 0.0 if time is None else max(0.0, (datetime.now(UTC) - time).total_seconds())
