"""How one table's keys and rows become what LMDB stores.

LMDB keys end at 511 bytes. A longer key is stored as its first 495 bytes and a 128-bit digest of
the whole: found by one look-up as ever, and in order among all keys that differ in those bytes.
Long keys that agree in them are put in order when they are read, from the rows themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

from everview.codec import KeyCodec, TableCodec
from everview.codec.buffers import Ints, offsets_of, one_batch
from everview.errors import Damaged, Outdated
from everview.schema import TableSchema

LONGEST = 511
DIGEST = 16
PREFIX = LONGEST - DIGEST


class Layout:
    """The codecs of a table, and the stored form of its keys.

    `now` gives the layout of the table of that name as of now.
    """

    def __init__(self, schema: TableSchema, directory: str, now: Callable[[], Layout]) -> None:
        self.schema = schema
        self.directory = directory
        self.keys = KeyCodec(schema.key_columns)
        self.rows = TableCodec(schema.columns, schema.widths, self._newer_rows)
        self.key_positions = schema.positions(schema.key)

        self._now = now

    def _newer_rows(self) -> TableCodec:
        now = self._now()
        if now.directory != self.directory:
            raise Outdated(
                f"table {self.schema.name} was dropped and created again meanwhile; read it again"
            )
        return now.rows

    def encode_keys(self, table: pa.Table | pa.RecordBatch) -> pa.BinaryArray:
        """Whole keys of the rows, from their key columns."""
        return self.keys.encode([_whole(table.column(name)) for name in self.schema.key])

    def bound(self, key: tuple[Any, ...] | None) -> bytes | None:
        """A key, or its leading columns, as the bytes that bound a range."""
        if key is None:
            return None
        columns = [
            pa.array([value], column.type)
            for value, column in zip(key, self.schema.key_columns, strict=False)
        ]
        return self.keys.encode(columns)[0].as_py()  # type: ignore[no-any-return]

    def stored_keys(self, keys: pa.BinaryArray) -> tuple[list[bytes], Ints | slice]:
        """Ascending keys as LMDB stores them, in ascending order, and the place of each before."""
        whole_keys: list[bytes] = keys.to_pylist()
        if not self.keys.variable or np.diff(offsets_of(keys)).max(initial=0) <= PREFIX:
            return whole_keys, slice(None)
        cut_keys = [stored_key(key) for key in whole_keys]
        order = sorted(range(len(cut_keys)), key=cut_keys.__getitem__)
        return [cut_keys[i] for i in order], np.array(order, np.int64)

    def check_stored_keys(self, keys: pa.BinaryArray, stored_keys: pa.BinaryArray) -> None:
        """Raises `Damaged` unless whole keys of rows are those under which the rows are stored."""
        if self.has_long(stored_keys):
            keys = pa.array(map(stored_key, keys.to_pylist()), pa.binary())
        if not keys.equals(stored_keys):
            raise Damaged("a row is stored under a key that is not its own")

    def has_long(self, stored_keys: pa.BinaryArray) -> bool:
        """Whether a stored key is one that was cut."""
        return self.keys.variable and np.diff(offsets_of(stored_keys)).max(initial=0) == LONGEST

    def current(self, rows: pa.Table) -> pa.Table:
        """The rows with all columns, NULL in those that were added after the rows were made.

        Raises `Outdated` if the rows were made for a table that had other columns.
        """
        fields = list(self.schema.arrow)
        width = rows.num_columns if rows.num_columns in self.schema.widths else len(fields)
        self.check_made_for(rows, pa.schema(fields[:width]))
        for field in fields[width:]:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        return rows

    def check_made_for(self, rows: pa.Table, expected: pa.Schema) -> None:
        """Raises `Outdated` unless rows or keys have the expected columns."""
        if rows.schema.names != expected.names or rows.schema.types != expected.types:
            raise Outdated(
                f"table {self.schema.name} has the columns {', '.join(expected.names)}, and these "
                f"rows or keys were made for {', '.join(rows.schema.names)}, or for other types; "
                "someone may have dropped the table and created it again: write again"
            )

    def encode_row(self, row: pa.Table) -> bytes:
        """A single row, without a version."""
        return self.rows.encode(one_batch(row))[0].as_py()  # type: ignore[no-any-return]

    def arrow(self, positions: Sequence[int]) -> pa.Schema:
        return pa.schema([self.schema.arrow.field(i) for i in positions])

    def batch(self, arrays: Sequence[pa.Array], positions: Sequence[int]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(list(arrays), schema=self.arrow(positions))

    @cached_property
    def all_columns(self) -> range:
        return range(len(self.schema.columns))


def stored_key(key: bytes) -> bytes:
    if len(key) <= PREFIX:
        return key
    return key[:PREFIX] + blake2b(key, digest_size=DIGEST).digest()


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
