"""A table's change log as rows for Spark: bounded for `read`, endless for `readStream`.

Positions are {region: sequence}: all changes up to the sequence have been read. A stream restarted
from its checkpoint goes on from its positions, so it loses and repeats nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from everview.errors import LogError
from everview.schema import TableSchema
from everview.spark.options import Options, store_at
from everview.stores.base import change_schema

Positions = dict[int, int]
IMAGES = ("before", "after")


def changes_shape(table: TableSchema, columns: Sequence[str] | None) -> pa.Schema:
    """The schema of a change for Spark; `columns` are those of before and after."""
    schema = change_schema(table, columns)
    key = pa.field("key", pa.struct(list(table.key_arrow)), nullable=False)
    rest = [schema.field(name) for name in ("op", "before", "after", "region", "sequence", "time")]
    return pa.schema([key, *rest])


@dataclass
class LogSlice(InputPartition):
    """The changes of one region with after < sequence <= upto."""

    region: int
    after: int
    upto: int


class ChangeReader(DataSourceReader):
    """The changes from the starting position to the newest at the time of planning."""

    def __init__(self, options: Options, shape: pa.Schema) -> None:
        self.options = options
        self.shape = shape

    def partitions(self) -> Sequence[LogSlice]:
        with store_at(self.options.db) as store:
            logs = store.log(self.options.table)
        start = self.options.starting(logs)
        return slices(start, {region: log.last for region, log in logs.items()})

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogSlice)
        return read_slice(self.options, self.shape, partition)


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Changes as they are written.

    With the option `consumer`, the log keeps the changes that the stream has not committed. Without
    it, the stream ends with `LogTrimmed` if the log is trimmed before the stream has read it.
    """

    def __init__(self, options: Options, shape: pa.Schema) -> None:
        self.options = options
        self.shape = shape
        self.target: Positions | None = None
        self.registered = False

    def initialOffset(self) -> dict[str, int]:
        if self.options.starts == "earliest":
            self._register(None)
        with store_at(self.options.db) as store:
            start = self.options.starting(store.log(self.options.table))
        self._register(start)
        return _to_offset(start)

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self.options.max_rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = self._newest()

    def reportLatestOffset(self) -> dict[str, int]:
        return _to_offset(self._newest())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        positions = _to_positions(start)
        self._register(positions)
        target = self.target or self._newest()
        self._check_same_table(positions, target)
        backlog = {region: target[region] - positions[region] for region in positions}
        if isinstance(limit, ReadMinRows) and sum(backlog.values()) < limit.min_rows:
            return start
        if isinstance(limit, ReadMaxRows):
            backlog = share(limit.max_rows, backlog)
        return _to_offset({region: positions[region] + backlog[region] for region in positions})

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[LogSlice]:
        return slices(_to_positions(start), _to_positions(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogSlice)
        return read_slice(self.options, self.shape, partition)

    def commit(self, end: dict[str, int]) -> None:
        if self.options.consumer:
            with store_at(self.options.db, readonly=False) as store:
                store.acknowledge(self.options.table, self.options.consumer, _to_positions(end))

    def _newest(self) -> Positions:
        with store_at(self.options.db) as store:
            return {region: log.last for region, log in store.log(self.options.table).items()}

    def _register(self, after: Positions | None) -> None:
        """Register the consumer once, so that the log is kept for it; None is from its beginning.

        A stream that goes on from its checkpoint registers too: the consumer may be gone.
        """
        if self.options.consumer and not self.registered:
            with store_at(self.options.db, readonly=False) as store:
                store.register(self.options.table, self.options.consumer, after)
            self.registered = True

    def _check_same_table(self, positions: Positions, newest: Positions) -> None:
        if positions.keys() != newest.keys() or any(positions[r] > newest[r] for r in positions):
            raise LogError(
                f"table {self.options.table}: the stream has read up to {positions}, but the log "
                f"ends at {newest}; the table was dropped and created again, so start with a new "
                "checkpointLocation"
            )


def share(rows: int, backlog: Mapping[int, int]) -> Positions:
    """How many of `rows` each region may read: equal parts, and the rest of one goes to others."""
    parts = {}
    waiting = sorted(backlog, key=lambda region: backlog[region])
    for number, region in enumerate(waiting):
        parts[region] = min(backlog[region], rows // (len(waiting) - number))
        rows -= parts[region]
    return parts


def slices(start: Positions, end: Positions) -> list[LogSlice]:
    """One slice for each region that has something to read."""
    return [LogSlice(r, start[r], end[r]) for r in sorted(start) if start[r] < end[r]]


def read_slice(options: Options, shape: pa.Schema, part: LogSlice) -> Iterator[pa.RecordBatch]:
    """The changes of a slice, in order, as batches of exactly `shape`."""
    with store_at(options.db) as store:
        table = store.describe(options.table)
        images = [field for field in shape if field.name.lower() in IMAGES]
        read = list(dict.fromkeys([*(name for f in images for name in f.type.names), *table.key]))
        for batch in store.changes(table.name, part.region, part.after, part.upto, read):
            columns = {name: batch.column(name) for name in batch.schema.names}
            columns["key"] = _key(table, batch)
            for field in images:
                columns[field.name.lower()] = _image(columns[field.name.lower()], field)
            yield pa.RecordBatch.from_arrays([columns[f.name.lower()] for f in shape], schema=shape)


def _key(table: TableSchema, batch: pa.RecordBatch) -> pa.StructArray:
    after, before = batch.column("after"), batch.column("before")
    values = [
        pc.coalesce(pc.struct_field(after, name), pc.struct_field(before, name))
        for name in table.key
    ]
    return pa.StructArray.from_arrays(values, fields=list(table.key_arrow))


def _image(image: Any, field: pa.Field[Any]) -> pa.StructArray:
    """The image with only the field's columns."""
    columns = [image.field(name) for name in field.type.names]
    return pa.StructArray.from_arrays(columns, fields=list(field.type), mask=image.is_null())


def _to_offset(positions: Positions) -> dict[str, int]:
    return {str(region): positions[region] for region in sorted(positions)}


def _to_positions(offset: Mapping[str, int]) -> Positions:
    return {int(region): sequence for region, sequence in offset.items()}
