"""The everview data source: tables, their changes and views for Spark, Spark Connect and Sail.

    spark.read.format("everview").option("db", "shop.ev").load("orders")
    spark.read.format("everview").option("db", "shop.ev").load("revenue")
    spark.readStream.format("everview").option("db", "shop.ev").option("changes", "true")
        .load("orders")

Spark finds it through `pyspark_everview` without registration, Sail through an entry point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from everview.catalog import NAMED, VIEWS
from everview.errors import InvalidSchema, UnknownColumn, UnsupportedSql
from everview.named import open_view
from everview.schema import TableSchema, quoted, sql_name
from everview.spark.changes import IMAGES, ChangeReader, ChangeStreamReader, changes_shape
from everview.spark.filters import key_range, to_arrow
from everview.spark.options import Options, store_at
from everview.spark.view_changes import (
    Part,
    ViewChangeReader,
    ViewChangeStreamReader,
    parts_of,
    read_part,
    view_changes_shape,
)

PushFilters = Callable[[list[Filter]], Iterable[Filter]]


class EverviewDataSource(DataSource):
    """Reads the tables of a database, their change logs, and its views as of one epoch.

    Options: `db`, the database's directory. `table`, or the argument of `load`, names a table or a
    view. `columns`, comma separated or a JSON array, reads only these; so does a schema of the
    user. (Spark doesn't tell Python data sources which columns a query needs, so it prunes none.)
    `snapshot`, the positions of a snapshot as JSON, `json.dumps(dict(snapshot.positions))`, reads
    the table as it was there.

    `changes` = true reads the change log: key, op, before, after, region, sequence, time. For it,
    `startingPosition` is earliest (default), latest, or positions as JSON; `maxRowsPerBatch`
    bounds a stream's batches; `consumer` is a name under which the log keeps the changes that the
    stream has not committed yet (without it, trimming may overtake the stream).

    The changes of a view have epoch, op, before and after. For them, `startingPosition` is snapshot
    (all rows first, the default of a stream), latest, or an epoch.
    """

    @classmethod
    def name(cls) -> str:
        return "everview"

    def schema(self) -> Any:
        return ", ".join(map(_ddl, self.shape()))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = Options.of(self.options)
        shape = self._declared(options, schema)
        if is_view(options):
            return (ViewChangeReader if options.changes else ViewReader)(options, shape)
        return (ChangeReader if options.changes else TableReader)(options, shape)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = Options.of(self.options)
        if not options.changes:
            raise UnsupportedSql(
                f"table {options.table} can be streamed only as changes; add "
                '.option("changes", "true"), or read it once with spark.read'
            )
        kind = ViewChangeStreamReader if is_view(options) else ChangeStreamReader
        return kind(options, self._declared(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise UnsupportedSql(
            "the everview source only reads; everview.open(path).table(name).put(frame) takes a "
            "frame, in a stream within foreachBatch"
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        self.writer(schema, overwrite)

    def shape(self) -> pa.Schema:
        """The Arrow schema of the rows to read."""
        options = Options.of(self.options)
        if is_view(options):
            return view_changes_shape(options) if options.changes else _view_shape(options)
        table = _describe(options)
        if options.changes:
            return changes_shape(table, options.columns)
        return pa.schema([table.arrow.field(i) for i in table.positions(options.columns)])

    def _declared(self, options: Options, schema: Any) -> pa.Schema:
        """The schema Spark expects, if the source can deliver it."""
        offered = self.shape()
        declared = (
            schema if isinstance(schema, pa.Schema) else to_arrow_schema(schema, timezone="UTC")
        )
        for field in declared:
            _check_offered(options, offered, field)
        return declared


class SailDataSource(EverviewDataSource):
    """The same for Sail, which takes Arrow schemas and can't be trusted with filters.

    Sail 0.7 pushes s NOT LIKE 'a%' as StringStartsWith and CAST(x AS INT) = 1 as EqualTo(x, 1), so
    nothing it pushes may be used; it evaluates every filter itself as well. It has no streams over
    Python sources: its readStream reads what is there and ends.
    """

    def schema(self) -> Any:
        return self.shape()

    def reader(self, schema: Any) -> DataSourceReader:
        reader = super().reader(schema)
        if isinstance(reader, TableReader):
            reader.trusts_filters = False
        return reader


@dataclass
class RegionAt(InputPartition):
    """One region at one position of its log."""

    region: int
    position: int


class optional_pushdown:
    """A `pushFilters` that Spark uses if it allows it, and that is no error if it doesn't.

    pyspark refuses a reader that overrides the method unless the session has
    spark.sql.python.filterPushdown.enabled, which is off by default; it recognizes an override by
    the function behind the method, so this one names the inherited function.
    """

    def __init__(self, function: Callable[[Any, list[Filter]], Iterable[Filter]]) -> None:
        self.function = function

    def __get__(self, reader: Any, owner: type) -> PushFilters:
        bound: Any = partial(self.function, reader)
        bound.__func__ = DataSourceReader.pushFilters
        push: PushFilters = bound
        return push


class TableReader(DataSourceReader):
    """One partition for each region, at the log position it has when the read is planned.

    A task that runs again gives the same rows, and each region is read at one committed state.
    """

    def __init__(self, options: Options, shape: pa.Schema) -> None:
        self.options = options
        self.shape = shape
        self.filters: list[Filter] = []
        self.trusts_filters = True

    @optional_pushdown
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        table = _describe(self.options) if self.trusts_filters else None
        for condition in filters:
            if table is not None and to_arrow(condition, table) is not None:
                self.filters.append(condition)
            else:
                yield condition

    def partitions(self) -> Sequence[RegionAt]:
        with store_at(self.options.db) as store:
            logs = store.log(self.options.table)
        at = {region: log.last for region, log in logs.items()}
        if self.options.snapshot is not None:
            at = self.options.covering("snapshot", self.options.snapshot, logs)
        return [RegionAt(region, position) for region, position in sorted(at.items())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RegionAt)
        with store_at(self.options.db) as store:
            table = store.describe(self.options.table)
            start, stop = key_range(self.filters, table)
            for batch in store.scan(
                table.name,
                columns=self.shape.names,
                where=_conjunction(self.filters, table),
                start=start,
                stop=stop,
                region=partition.region,
                ordered=False,
                at={partition.region: partition.position},
            ):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self.shape)


class ViewReader(DataSourceReader):
    """A view as of the epoch that is committed when the read is planned.

    The rows are read when it is planned and sent to the tasks, since the next epoch may change
    them.
    """

    def __init__(self, options: Options, shape: pa.Schema) -> None:
        self.options = options
        self.shape = shape

    def partitions(self) -> Sequence[Part]:
        with store_at(self.options.db) as store:
            rows = open_view(store, self.options.table).to_arrow()
        for field in self.shape:  # the view may have been replaced meanwhile
            _check_offered(self.options, rows.schema, field)
        names = {name.lower(): name for name in rows.schema.names}
        return parts_of(rows, [names[name.lower()] for name in self.shape.names])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(partition, self.shape)


def is_view(options: Options) -> bool:
    """Whether the name is a view's. A view can't be read at the positions of a snapshot."""
    with store_at(options.db) as store:
        catalog, name = store.catalog, options.table
        is_view = (catalog.get(VIEWS[name]) or catalog.get(NAMED[name])) is not None
    if is_view and options.snapshot is not None:
        raise UnsupportedSql(
            f"{options.table} is a view: it is read as of its newest epoch; leave out the option "
            "snapshot"
        )
    return is_view


def _view_shape(options: Options) -> pa.Schema:
    with store_at(options.db) as store:
        whole = open_view(store, options.table).schema
    if options.columns is None:
        return whole
    fields = {field.name.lower(): field for field in whole}
    unknown = [name for name in options.columns if name.lower() not in fields]
    if unknown:
        raise UnknownColumn(
            f"view {options.table} has no column {unknown[0]}; it has {', '.join(whole.names)}"
        )
    return pa.schema([fields[name.lower()] for name in options.columns])


def _describe(options: Options) -> TableSchema:
    with store_at(options.db) as store:
        return store.describe(options.table)


def _conjunction(filters: list[Filter], table: TableSchema) -> pc.Expression | None:
    return reduce(and_, [to_arrow(condition, table) for condition in filters]) if filters else None


def _check_offered(options: Options, offered: pa.Schema, field: pa.Field[Any]) -> None:
    by_name = {offered_field.name.lower(): offered_field for offered_field in offered}
    own = by_name.get(field.name.lower())
    if own is None:
        raise UnknownColumn(
            f"{options.table} has no column {field.name} to read; it has {', '.join(offered.names)}"
        )
    if own.type != field.type and not (options.changes and _is_image(field, own.type)):
        raise InvalidSchema(
            f"column {field.name} of {options.table} is {_sql_type(own.type)}, not "
            f"{_sql_type(field.type)}; read it as it is and cast it in the query"
        )
    if own.nullable and not field.nullable:
        raise InvalidSchema(
            f"column {field.name} of {options.table} may be NULL; leave out NOT NULL"
        )


def _is_image(field: pa.Field[Any], offered: pa.DataType) -> bool:
    """Whether a field is an image of a row from before columns were added."""
    columns = list(offered) if pa.types.is_struct(offered) else []
    is_part = pa.types.is_struct(field.type) and all(column in columns for column in field.type)
    return field.name.lower() in IMAGES and is_part


def _ddl(field: pa.Field[Any], separator: str = " ") -> str:
    null = "" if field.nullable else " NOT NULL"
    return f"{quoted(field.name)}{separator}{_sql_type(field.type)}{null}"


def _sql_type(arrow: pa.DataType) -> str:
    if pa.types.is_struct(arrow):
        return f"STRUCT<{', '.join(_ddl(field, ': ') for field in arrow)}>"
    return sql_name(arrow)
