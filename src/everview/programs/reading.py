"""The changes and rows of tables as deltas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from everview.delta import weighted
from everview.plan.conditions import passing
from everview.plan.nodes import Source
from everview.programs.step import Step
from everview.schema import is_nested
from everview.stores import shared_store

_CHUNK_ROWS = 1 << 17
_SMALL_BYTES = 64 << 20


def deltas_of(
    step: Step, source: Source, regions: Sequence[int]
) -> Iterator[tuple[int, list[pa.Table]]]:
    """The delta of a source in some regions of its table, in parts: how many rows or changes were
    read, and of them before-images with -1, after-images with +1; in a load all rows with +1."""
    for part in parts_of(step, source.table, names_read(source), regions):
        yield part.number, list(part.deltas(source))


def names_read(source: Source) -> list[str]:
    """The table's columns that a source needs: its own, and those of its conditions."""
    tested = [name for condition in source.where for name in condition.columns()]
    return list(dict.fromkeys([*source.read, *tested]))


def parts_of(
    step: Step, table: str, names: list[str], regions: Sequence[int]
) -> Iterator[Rows | Changes]:
    """What a step has to read of some columns of a table, in parts."""
    store, end = shared_store(step.address, readonly=True), step.end[table]
    if step.start is None:
        for region in regions:
            at = {region: end[region]}
            for rows in store.scan(table, names, region=region, at=at, ordered=False):
                yield Rows(dict(zip(names, rows.columns, strict=True)), rows.num_rows)
        return
    start = step.start[table]
    logs = (store.changes(table, r, start[r], end[r], names) for r in regions)
    for changes in _together(chain.from_iterable(logs)):
        yield Changes.of(changes, names)


@dataclass(frozen=True)
class Rows:
    """Rows of a table, by column."""

    columns: Mapping[str, pa.Array]
    number: int

    def deltas(self, source: Source) -> Iterator[pa.Table]:
        delta = weighted(_table(self.columns, source), 1)
        yield delta.filter(passing(source.where, self.columns)) if source.where else delta


@dataclass(frozen=True)
class Changes:
    """Changes of a table: the columns of the rows before and after, and where there was one."""

    before: Mapping[str, pa.Array]
    after: Mapping[str, pa.Array]
    was: pa.Array
    will_be: pa.Array

    @property
    def number(self) -> int:
        return len(self.was)

    @classmethod
    def of(cls, changes: pa.RecordBatch, names: Sequence[str]) -> Changes:
        images = [changes.column(name) for name in ("before", "after")]
        before, after = (dict(zip(names, image.flatten(), strict=True)) for image in images)
        return cls(before, after, *(image.is_valid() for image in images))

    def deltas(self, source: Source) -> Iterator[pa.Table]:
        """Rows that went and rows that came. Each image is tested by itself; an update that changes
        no column of the source gives none."""
        was, will_be = self.was, self.will_be
        if source.where:
            was = pc.and_(was, passing(source.where, self.before))
            will_be = pc.and_(will_be, passing(source.where, self.after))
        changed = pc.invert(self._unchanged(source, pc.and_(was, will_be)))
        for columns, mask, weight in ((self.before, was, -1), (self.after, will_be, 1)):
            rows = _table(columns, source)
            yield weighted(rows.filter(pc.and_(mask, changed)), weight)

    def _unchanged(self, source: Source, both: pa.Array) -> pa.Array:
        """Which rows are equal before and after, among those that exist in both."""
        same = both
        for old, new in ((self.before[name], self.after[name]) for name in source.read):
            if not pc.any(same).as_py() or is_nested(old.type):
                return pc.and_not(both, both)
            if pa.types.is_floating(old.type):  # -0.0 is another row than 0.0
                bits = pa.int32() if old.type == pa.float32() else pa.int64()
                old, new = old.view(bits), new.view(bits)
            equal = pc.fill_null(pc.equal(old, new), False)
            same = pc.and_(same, pc.or_(equal, pc.and_(old.is_null(), new.is_null())))
        return same


def _table(columns: Mapping[str, pa.Array], source: Source) -> pa.Table:
    """The columns that a source reads."""
    return pa.Table.from_arrays([columns[name] for name in source.read], names=list(source.read))


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in fewer batches, if they are small: few changes of each of several regions cost as
    much, one region after the other, as many."""
    for chunk in in_chunks(pa.Table.from_batches([batch]) for batch in batches):
        yield from (chunk.combine_chunks() if chunk.nbytes < _SMALL_BYTES else chunk).to_batches()


def in_chunks(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows in fewer and larger tables, none of them empty."""
    chunk: list[pa.Table] = []
    for table in tables:
        chunk.append(table)
        if sum(part.num_rows for part in chunk) >= _CHUNK_ROWS:
            yield pa.concat_tables(chunk)
            chunk = []
    if any(part.num_rows for part in chunk):
        yield pa.concat_tables(chunk)
