"""The handle of a table: put, delete, get, scan, changes, observers.

It takes dicts, and Arrow, pandas, Polars and Spark frames. `everview.intake` converts them to Arrow
of exactly the table's types, and the store gets that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.point import python_rows
from everview.errors import DataError, EverviewError, ReadOnly, TableNotFound, reason_of
from everview.intake import Keys, Rows, bound_to_key, keys_to_arrow, rows_to_arrow
from everview.results import frames
from everview.results.html import SHOWN_ROWS, html_of
from everview.results.result import count_rows
from everview.schema import Column, TableSchema, columns_of
from everview.stores.base import (
    BATCH_ROWS,
    LogRange,
    Observer,
    Reader,
    RegionStatus,
    Snapshot,
    Tables,
    WriteReport,
    check_consumer,
)

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Key = Any
Row = dict[str, Any]


class Table:
    """A table with a primary key.

    A handle is cheap to make, and threads may share it. After the table is dropped, every use of it
    raises `TableNotFound`.
    """

    def __init__(self, store: Reader, name: str) -> None:
        self._store = store
        check_name(name)
        self.name = store.describe(name).name

    def __repr__(self) -> str:
        try:
            return f"<table {self.name}: {count_rows(len(self))}>"
        except EverviewError as error:
            return f"<table {self.name}: {reason_of(error)}>"

    def _repr_html_(self) -> str:
        def first_rows() -> tuple[pa.Table, int]:
            batches = list[pa.RecordBatch]()
            for batch in self.batches(batch_rows=SHOWN_ROWS):
                batches.append(batch)
                if sum(map(len, batches)) >= SHOWN_ROWS:
                    break
            return pa.Table.from_batches(batches, self.schema.arrow), len(self)

        return html_of(self, first_rows)

    @property
    def _writable(self) -> Tables:
        if not isinstance(self._store, Tables):
            raise ReadOnly("a pin only reads; write through the database itself")
        return self._store

    @property
    def schema(self) -> TableSchema:
        return self._store.describe(self.name)

    def add_columns(self, columns: pa.Schema | dict[str, str] | Iterable[Column]) -> None:
        """Add columns at the end, from an Arrow schema or {column: SQL type}.

        They are NULL in the rows that the table has. No row is written and no view is loaded again.
        """
        self._writable.add_columns(self.name, columns_of(self.name, columns))

    def put(self, rows: Rows) -> WriteReport:
        """Insert rows, or replace those with the same key.

        `rows` is a dict, a list of dicts, an Arrow table or batch, or a pandas, Polars or Spark
        frame. A Spark frame is collected into this process. A column that is left out is NULL. If
        several rows have the same key, the last one counts. A row that equals the stored row is not
        written; the report says how many rows changed and how many did not.
        """
        return self._writable.put(self.name, rows_to_arrow(self.schema, rows))

    def delete(self, keys: Keys) -> WriteReport:
        """Delete the rows with these keys; keys without a row are no error.

        `keys` is a list (of tuples, if the key has several columns), or an Arrow table of the key
        columns.
        """
        return self._writable.delete(self.name, keys_to_arrow(self.schema, keys))

    def get(self, key: Key, columns: Sequence[str] | None = None) -> Row | None:
        """The row with that key as a dict, or None."""
        return self._store.get_row(self.name, key, columns)

    def get_many(self, keys: Keys, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows with these keys, in the order of `keys`; keys without a row are left out."""
        return self._store.get(self.name, keys_to_arrow(self.schema, keys), columns)[0]

    def scan(
        self,
        start: Key | None = None,
        stop: Key | None = None,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        limit: int | None = None,
    ) -> Iterator[Row]:
        """Rows as dicts, in key order, with start <= key < stop.

        `start` and `stop` may have only the leading columns of the key.
        """
        if limit is not None:
            _check_count("limit", limit, 0)
        # Rows are filtered a batch at a time: small batches pay only if all of them are wanted.
        is_small = where is None and limit is not None
        batch_rows = min(BATCH_ROWS, max(1, limit or 0)) if is_small else BATCH_ROWS
        for batch in self.batches(start, stop, columns, where, batch_rows):
            rows = python_rows(batch)
            yield from rows if limit is None else rows[:limit]
            if limit is not None and (limit := limit - len(rows)) <= 0:
                return

    def batches(
        self,
        start: Key | None = None,
        stop: Key | None = None,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        batch_rows: int = BATCH_ROWS,
        ordered: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of `scan` in Arrow batches; without `ordered`, region by region."""
        schema = self.schema
        _check_count("batch_rows", batch_rows, 1)
        if where is not None:
            _check_where(schema, where)
        return self._store.scan(
            self.name,
            columns,
            where,
            bound_to_key(schema, start),
            bound_to_key(schema, stop),
            batch_rows=batch_rows,
            ordered=ordered,
        )

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        ordered: bool = False,
    ) -> pa.Table:
        """All rows as an Arrow table. With `ordered` they are in key order, which takes longer."""
        schema = self.schema
        arrow = pa.schema([schema.arrow.field(i) for i in schema.positions(columns)])
        return pa.Table.from_batches(
            self.batches(columns=arrow.names, where=where, ordered=ordered), arrow
        )

    def to_pandas(
        self, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> pd.DataFrame:
        """All rows in key order as a pandas frame; see `everview.results.frames`."""
        return frames.to_pandas(self.to_arrow(columns, where, ordered=True))

    def to_polars(
        self, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> pl.DataFrame:
        """All rows in key order as a Polars frame."""
        return frames.to_polars(self.to_arrow(columns, where, ordered=True))

    def __len__(self) -> int:
        return sum(region.rows for region in self._store.status(self.name))

    def version(self, key: Key) -> int:
        """The version of a row, which rises with every write of it; 0 if there is no row."""
        return self._store.version(self.name, keys_to_arrow(self.schema, [key]))

    def test_and_set(
        self,
        key: Key,
        row: Row | None,
        *,
        expected: Row | None = None,
        version: int | None = None,
    ) -> int | None:
        """Write `row`, or delete it if `row` is None, only if nobody changed it meanwhile.

        The stored row must equal `expected`, or have this `version`. Returns the new version. If
        the stored row is different, nothing changes and the result is None.
        """
        schema = self.schema
        return self._writable.test_and_set(
            self.name,
            keys_to_arrow(schema, [key]),
            None if row is None else rows_to_arrow(schema, [row]),
            expected=None if expected is None else rows_to_arrow(schema, [expected]),
            version=version,
        )

    def snapshot(self, seconds: float = 3600) -> Snapshot:
        """The table as it is now, for any number of reads during `seconds`; close it when done."""
        return self._writable.snapshot(self.name, seconds)

    def log(self) -> dict[int, LogRange]:
        """The first and last change that the log of each region has."""
        return self._store.log(self.name)

    def changes(
        self, after: Mapping[int, int] | None = None, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """The changes after some positions (region -> sequence), region by region.

        Without positions, all changes that the log has.
        """
        _check_count("batch_rows", batch_rows, 1)
        columns = self.schema.names
        for region, log_range in self.log().items():
            start = (log_range.first - 1) if after is None else after.get(region, 0)
            yield from self._store.changes(
                self.name, region, start, columns=columns, batch_rows=batch_rows
            )

    def register(self, consumer: str, after: Mapping[int, int] | None = None) -> None:
        """Keep the changes after some positions in the log until `consumer` acknowledges them."""
        check_consumer(consumer)
        self._writable.register(self.name, consumer, after)

    def acknowledge(self, consumer: str, upto: Mapping[int, int]) -> None:
        """Say that `consumer` no longer needs the changes up to these positions."""
        check_consumer(consumer)
        self._writable.acknowledge(self.name, consumer, upto)

    def unregister(self, consumer: str) -> None:
        """Say that `consumer` no longer needs any changes."""
        check_consumer(consumer)
        self._writable.unregister(self.name, consumer)

    def trim(self, upto: Mapping[int, int] | None = None) -> int:
        """Delete changes that no consumer and no snapshot needs; returns how many."""
        return self._writable.trim(self.name, upto)

    def attach(self, observer: Observer | str) -> None:
        """Let an observer see each write: an object in this process, 'module:Class' in all."""
        self._writable.attach(self.name, observer)

    def detach(self, observer: Observer | str) -> None:
        """Undo `attach`."""
        self._writable.detach(self.name, observer)

    def status(self) -> list[RegionStatus]:
        """Number of rows, log, bytes on disk and consumers of each region."""
        return self._store.status(self.name)


def check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise TableNotFound(f"the name of a table or view must be text, not {type(name).__name__}")


def _check_count(name: str, number: Any, least: int) -> None:
    if not isinstance(number, int) or number < least:
        raise DataError(f"{name} must be a number of rows, at least {least}, not {number!r}")


def _check_where(schema: TableSchema, where: Any) -> None:
    """Refuse a condition that fails on every row, before the scan reads the first."""
    try:
        if not isinstance(where, pc.Expression):
            raise TypeError(f"it is a {type(where).__name__}")
        schema.arrow.empty_table().filter(where)
    except (pa.ArrowException, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"table {schema.name}: where can't be evaluated: {reason}; write an expression such as "
            f"pyarrow.compute.field({schema.key[0]!r}) == 1 over {', '.join(schema.names)}"
        ) from None
