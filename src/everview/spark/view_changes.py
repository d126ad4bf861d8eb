"""The changes of a view as rows for Spark: bounded for `read`, endless for `readStream`.

A position is an epoch: all its changes have been read. A stream that restarts from its checkpoint
goes on after its epoch, so it loses and repeats nothing. A stream from a snapshot begins with all
rows of the view, as inserts of the epoch that the view has then.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from everview import following
from everview.codec.streams import from_stream, to_stream
from everview.errors import SqlError
from everview.named import open_view
from everview.spark.options import Options, store_at
from everview.stores.base import Store
from everview.view import View

Offset = dict[str, int]
_ROWS_OF_PART = 100_000
_SECONDS = 24 * 3600.0  # that the log stays for a stream without a `consumer`
_NOTHING = {"epoch": -1}  # of a stream that has not even read the snapshot


def view_changes_shape(options: Options) -> pa.Schema:
    """What a change of a view looks like to Spark."""
    if options.columns is not None or options.max_rows is not None:
        raise SqlError(
            f"{options.table} is a view: its changes are read epoch by epoch, with all columns; "
            "leave out the options columns and maxRowsPerBatch"
        )
    with store_at(options.db) as store:
        return open_view(store, options.table).changes_schema


@dataclass
class Part(InputPartition):
    """Rows or changes of a view as an Arrow stream. They are read when a read is planned, and sent
    to the tasks: an epoch later they might be others, or trimmed."""

    stream: bytes


class ViewChangeReader(DataSourceReader):
    """All rows of a view as inserts, or the changes that its log has after an epoch."""

    def __init__(self, options: Options, shape: pa.Schema) -> None:
        self.options = options
        self.shape = shape

    def partitions(self) -> Sequence[Part]:
        starts = self.options.starts
        with store_at(self.options.db) as store:
            view = open_view(store, self.options.table)
            if starts == "snapshot":
                _, rows = following.read_snapshot(store, view.followed_name)
                return parts_of(view.own_changes(rows), self.shape.names)
            after = None if starts == "earliest" else _epoch_of(self.options, store)
            return parts_of(_changes(store, view, after), self.shape.names)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(partition, self.shape)


class ViewChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The changes of a view as they are committed; from its beginning, all rows first.

    The view's log keeps the changes until the stream has committed them: under the name of the
    option `consumer`, or for a day under a name of its own.
    """

    def __init__(self, options: Options, shape: pa.Schema) -> None:
        self.options = options
        self.shape = shape
        self.consumer = options.consumer or f"stream {uuid.uuid4().hex[:12]}"
        self.seconds = None if options.consumer else _SECONDS
        self.start: int | None = None  # where it registered
        self.target: Offset | None = None

    def initialOffset(self) -> Offset:
        with store_at(self.options.db, readonly=False) as store:
            if self.options.starts in ("earliest", "snapshot"):
                return _NOTHING
            after = _epoch_of(self.options, store)
            self._register(store, after)
            return {"epoch": after}

    def prepareForTriggerAvailableNow(self) -> None:
        with store_at(self.options.db, readonly=False) as store:
            self.target = self._newest(store)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        with store_at(self.options.db, readonly=False) as store:
            self._register(store, None if start == _NOTHING else start["epoch"])
            newest = self.target or self._newest(store)
            assert self.start is not None
            if newest["epoch"] < max(self.start, start["epoch"]):  # of an epoch that is begun
                return start
            return newest

    def partitions(self, start: Offset, end: Offset) -> Sequence[Part]:
        with store_at(self.options.db, readonly=False) as store:
            view = open_view(store, self.options.table)
            if start == _NOTHING:
                _, rows = following.read_snapshot(store, view.followed_name, end["epoch"])
                rows = view.own_changes(rows)
            else:
                self._register(store, start["epoch"])
                rows = _changes(store, view, start["epoch"], end)
            return parts_of(rows, self.shape.names)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(partition, self.shape)

    def commit(self, end: Offset) -> None:
        with store_at(self.options.db, readonly=False) as store:
            view = open_view(store, self.options.table)
            name = view.follower_name(self.consumer)
            following.acknowledge(store, view.followed_name, name, end["epoch"], self.seconds)

    def _newest(self, store: Store) -> Offset:
        return {"epoch": open_view(store, self.options.table).epoch}

    def _register(self, store: Store, after: int | None) -> None:
        """Have the log kept, once. A stream that goes on from its checkpoint asks again, since its
        consumer may be forgotten."""
        if self.start is None:
            view = open_view(store, self.options.table)
            name = view.follower_name(self.consumer)
            self.start = following.register(store, view.followed_name, name, after, self.seconds)


def _changes(store: Store, view: View, after: int | None, end: Offset | None = None) -> pa.Table:
    view.check_followed()
    upto = None if end is None else end["epoch"]
    batches = following.read_changes(store, view.followed_name, after, upto)
    schema = following.changes_schema(view.sink)
    return view.own_changes(pa.Table.from_batches(batches, schema))


def _epoch_of(options: Options, store: Store) -> int:
    """The epoch after which changes are read: a number, or the newest."""
    if options.starts == "latest":
        return open_view(store, options.table).epoch
    if not options.starts.isdecimal():
        raise SqlError(
            f"option startingPosition can't be {options.starts!r} for the view {options.table}; "
            "use snapshot, latest or the number of an epoch"
        )
    return int(options.starts)


def parts_of(rows: pa.Table, names: list[str]) -> list[Part]:
    rows = rows.select(names)
    places = range(0, max(rows.num_rows, 1), _ROWS_OF_PART)
    return [Part(to_stream(rows.slice(at, _ROWS_OF_PART))) for at in places]


def read_part(partition: InputPartition, shape: pa.Schema) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, Part)
    for batch in from_stream(partition.stream).to_batches():
        yield pa.RecordBatch.from_arrays(batch.columns, schema=shape)
