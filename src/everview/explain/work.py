"""The work of the last epochs of a view: by operator and shard, and the changes that caused it.

It comes from two records: shards keep the work of epochs, and for each table, and each group of
views, a record has the last epochs that changed it, with the number of changes. Both keep the last
twenty. The analysis has only epochs that all records still have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from everview.catalog import MAIN, Changes, Key, Positions, ViewRecord, changes_key
from everview.stores.base import Reader
from everview.stores.work import KEPT_EPOCHS, ShardWork, Work, total


@dataclass(frozen=True)
class OperatorWork:
    """The work of the load and of some epochs, by shard, of an operator or of a view's rows."""

    loads: Mapping[int, Work]
    shards: Mapping[int, Work]

    @cached_property
    def whole(self) -> Work:
        """The work of the epochs in all shards."""
        return total(self.shards.values())

    @property
    def load(self) -> Work:
        """The work of the load in all shards."""
        return total(self.loads.values())

    @property
    def skew(self) -> float | None:
        """The rows that came to the busiest shard, against the mean; None if none came."""
        rows = [work.rows_in for work in self.shards.values()]
        return max(rows) * len(rows) / sum(rows) if any(rows) else None


@dataclass(frozen=True)
class Analysis:
    """The epochs analyzed, their number of changes by table, and their work by the identity of the
    operator, or 'view'."""

    epochs: list[int]
    changes: Mapping[str, int]
    operators: Mapping[str, OperatorWork]

    @property
    def whole(self) -> Work:
        return total(operator.whole for operator in self.operators.values())

    @property
    def load(self) -> Work:
        return total(operator.load for operator in self.operators.values())


def with_changes(
    store: Reader, group: str, epoch: int, start: Positions, end: Positions
) -> dict[Key[Changes], Changes]:
    """The records of the tables that an epoch of a group changed, with that epoch."""
    records = {}
    for table in start:
        changes = sum(end[table].values()) - sum(start[table].values())
        if changes:
            epochs = (*_changes(store, group, table), (epoch, changes))
            records[changes_key(group, table)] = Changes(epochs[-KEPT_EPOCHS:])
    return records


def _changes(store: Reader, group: str, table: str) -> tuple[tuple[int, int], ...]:
    return (store.catalog.get(changes_key(group, table)) or Changes()).epochs


def recent_changes(
    store: Reader, tables: Iterable[str], group: str = MAIN
) -> tuple[dict[str, int], int]:
    """How many changes each table had in the last epochs of a group that are known of all tables,
    and how many epochs these are."""
    changes = {table: _changes(store, group, table) for table in tables}
    after = max((_before([epoch for epoch, _ in epochs]) for epochs in changes.values()), default=0)
    recent = {t: [pair for pair in epochs if pair[0] > after] for t, epochs in changes.items()}
    numbers = {epoch for epochs in recent.values() for epoch, _ in epochs}
    return {t: sum(n for _, n in epochs) for t, epochs in recent.items()}, len(numbers)


def analyze(store: Reader, view: ViewRecord, committed: int) -> Analysis:
    """The work of the committed epochs of a loaded view."""
    changes = {table: _changes(store, view.group, table) for table in view.tables}
    works = {
        operator: {number: store.states.shard(state, number).work() for number in view.shards}
        for operator, state in view.states.items()
    }
    shards = [shard for operator in works.values() for shard in operator.values()]
    after = max(
        view.loaded_at,
        *(_before([epoch for epoch, _ in epochs]) for epochs in changes.values()),
        *(_before([work.epoch for work in shard.epochs]) for shard in shards),
    )
    epochs_in_range = range(after + 1, committed + 1)
    return Analysis(
        sorted(
            {
                epoch
                for epochs in changes.values()
                for epoch, _ in epochs
                if epoch in epochs_in_range
            }
        ),
        {
            table: sum(number for epoch, number in epochs if epoch in epochs_in_range)
            for table, epochs in changes.items()
        },
        {operator: _within(epochs_in_range, shards) for operator, shards in works.items()},
    )


def _before(epochs: list[int]) -> int:
    """The last epoch that the record may have forgotten."""
    return epochs[0] - 1 if len(epochs) == KEPT_EPOCHS else 0


def _within(epochs: range, shards: Mapping[int, ShardWork]) -> OperatorWork:
    return OperatorWork(
        {number: shard.load for number, shard in shards.items() if shard.load},
        {
            number: total(work for work in shard.epochs if work.epoch in epochs)
            for number, shard in shards.items()
        },
    )
