"""Ten bugs planted in the product, each by replacing one of its functions for a while.

They reach the operators because Sail runs those in this process. A bug that the product would
itself refuse is planted in what refuses it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import lmdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from everview import view
from everview.delta import WEIGHT
from everview.maintain import epochs
from everview.operators.aggregate import AggregateOperator
from everview.operators.sink import ViewSink
from everview.programs import applying, direct, reading, workers
from everview.programs.applying import StatePart
from everview.programs.step import Step
from everview.stores.base import DELETE
from everview.stores.embedded import EmbeddedStore, catalog, log, shard
from everview.stores.embedded.log import Images
from everview.stores.embedded.region import Region
from everview.stores.embedded.shard import EmbeddedShard

Patch = pytest.MonkeyPatch
FORGOTTEN = ("orders", 1)


def skip_the_outbox(patch: Patch) -> None:
    """An operator that has applied an epoch already answers with nothing."""
    original = EmbeddedShard.apply

    def apply(
        self: EmbeddedShard, epoch: int, token: int, work: Callable[[Any], pa.Table], *log: Any
    ) -> pa.Table:
        worked = []

        def noted(state: Any) -> pa.Table:
            worked.append(epoch)
            return work(state)

        given = original(self, epoch, token, noted, *log)
        return given if worked or WEIGHT not in given.column_names else given.slice(0, 0)

    patch.setattr(EmbeddedShard, "apply", apply)


def apply_twice(patch: Patch) -> None:
    """No shard knows which epoch it has applied."""
    patch.setattr(EmbeddedShard, "_check_order", lambda self, notes, epoch: None)


def commit_before_a_shard_is_done(patch: Patch) -> None:
    """A view's first shard is written when the epoch is committed."""
    waiting: list[Callable[[], Any]] = []
    apply_sink, run_epoch = applying.apply_sink, epochs._run_epoch

    def later(part: StatePart, *given: Any) -> int:
        if part.part.shard != part.step.shards[0]:
            return apply_sink(part, *given)
        waiting.append(lambda: apply_sink(part, *given))
        return 0

    def run(*given: Any) -> bool:
        ran = run_epoch(*given)
        while waiting:
            waiting.pop()()
        return ran

    for module in (workers, direct):
        patch.setattr(module, "apply_sink", later)
    patch.setattr(epochs, "_run_epoch", run)


def ignore_the_token(patch: Patch) -> None:
    """Neither shards nor the catalog refuse an older token."""
    for module, name in ((catalog, "check_token"), (shard, "check_token")):
        patch.setattr(module, name, lambda token, newest: None)


def trim_too_early(patch: Patch) -> None:
    """The whole log goes, also what no epoch has had; and who reads what is gone finds nothing."""

    def trim(self: Region, txn: lmdb.Transaction, upto: int | None, older: float) -> int:
        return log.trim(txn, self._log, self.last(txn), float("inf"))

    def changes(
        self: Region, txn: lmdb.Transaction, after: int, upto: int | None, rows: int
    ) -> Iterator[Images]:
        return log.read(txn, self._log, after, self.last(txn) if upto is None else upto, rows)

    patch.setattr(Region, "trim", trim)
    patch.setattr(Region, "changes", changes)


def swap_two_versions_of_a_key(patch: Patch) -> None:
    """Of two versions in one epoch, the older comes last."""
    original = Region.changes

    def changes(self: Region, *given: Any) -> Iterator[Images]:
        yield from map(_swapped, original(self, *given))

    patch.setattr(Region, "changes", changes)


def _swapped(images: Images) -> Images:
    """Each row that a later change replaces comes again after that one."""
    starts, lengths = images.after_starts.copy(), images.after_lengths.copy()
    places: dict[bytes, int] = {}
    for place in range(len(images)):
        before = _row(images.data, images.before_starts[place], images.before_lengths[place])
        if before in places:
            first = places[before]
            starts[place], lengths[place] = images.after_starts[first], images.after_lengths[first]
        after = _row(images.data, images.after_starts[place], images.after_lengths[place])
        places |= {after: place} if after else {}
    return replace(images, after_starts=starts, after_lengths=lengths)


def _row(data: bytes, start: int, length: int) -> bytes:
    return data[start : start + length]


def drop_a_delete(patch: Patch) -> None:
    """The first delete of an epoch's changes in a region is left out."""
    original = EmbeddedStore.changes

    def changes(self: EmbeddedStore, *given: Any) -> Iterator[pa.RecordBatch]:
        for batch in original(self, *given):
            place = pc.index(batch.column("op"), DELETE).as_py()
            yield batch if place < 0 else batch.take([n for n in range(len(batch)) if n != place])

    patch.setattr(EmbeddedStore, "changes", changes)


def read_new_rows_before_commit(patch: Patch) -> None:
    """Readers take the rows of the epoch that is under way."""
    read, current = ViewSink.read, view.current
    patch.setattr(
        ViewSink, "read", lambda self, values, committed: read(self, values, committed + 1)
    )
    patch.setattr(view, "current", lambda value, committed: current(value, committed + 1))


def forget_one_regions_range(patch: Patch) -> None:
    """An epoch has no changes of one region."""
    original = reading.parts_of

    def parts(step: Step, table: str, names: list[str], regions: Sequence[int]) -> Iterator[Any]:
        kept = [region for region in regions if (table, region) != FORGOTTEN]
        return original(step, table, names, kept)

    for reader in (reading, direct):
        patch.setattr(reader, "parts_of", parts)


def lose_a_groups_last_delete(patch: Patch) -> None:
    """A group that has no rows any more does not say that it is gone."""
    original = AggregateOperator.apply

    def apply(self: AggregateOperator, inputs: list[pa.Table], state: Any) -> pa.Table:
        given = original(self, inputs, state)
        groups = [tuple(row.values()) for row in given.select(self._node.groups).to_pylist()]
        weights = given[WEIGHT].to_pylist()
        there = {group for group, weight in zip(groups, weights, strict=True) if weight > 0}
        return given.filter(pa.array([group in there for group in groups], pa.bool_()))

    patch.setattr(AggregateOperator, "apply", apply)


PLANTED: dict[str, Callable[[Patch], None]] = {
    "skip the outbox": skip_the_outbox,
    "apply twice": apply_twice,
    "commit before a shard is done": commit_before_a_shard_is_done,
    "ignore the token": ignore_the_token,
    "trim too early": trim_too_early,
    "swap two versions of a key": swap_two_versions_of_a_key,
    "drop a delete": drop_a_delete,
    "read new rows before commit": read_new_rows_before_commit,
    "forget one region's range": forget_one_regions_range,
    "lose a group's last delete": lose_a_groups_last_delete,
}
