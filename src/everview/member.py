"""The handle of one member of a view with parameters: the view's rows for certain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from everview.codec import KeyCodec
from everview.codec.point import python_rows
from everview.errors import DataError, EverviewError, reason_of
from everview.intake import keys_to_arrow
from everview.results import frames

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from everview.view import View

Row = dict[str, Any]


class Member:
    """Reads like a view: its rows have the columns of the query, without the parameters."""

    def __init__(self, view: View, values: Sequence[Any], named: Mapping[str, Any]) -> None:
        self.view = view
        schema = view.parameter_schema
        names = schema.key
        missing = [name for name in names[len(values) :] if name not in named]
        unknown = [name for name in named if name not in names[len(values) :]]
        if missing or unknown or len(values) > len(names):
            raise DataError(
                f"view {view.name} has the parameters {', '.join(names)}; give a value for each, "
                "in this order or by name"
            )
        key = (*values, *(named[name] for name in names[len(values) :]))
        self._key = keys_to_arrow(schema, [key[0] if len(key) == 1 else key])
        self._codec = KeyCodec(schema.key_columns)
        (self.values,) = python_rows(self._key.to_batches()[0])

    def __repr__(self) -> str:
        try:
            values = ", ".join(f"{name} = {value!r}" for name, value in self.values.items())
            is_there = "" if self.is_there else ", which is no member"
            return f"<view {self.view.name} for {values}{is_there}>"
        except EverviewError as error:
            return f"<view {self.view.name}: {reason_of(error)}>"

    @property
    def is_there(self) -> bool:
        """Whether it is in the table of members; its rows come with the next epoch."""
        return self.view.members.get(tuple(self.values.values())) is not None

    @property
    def status(self) -> str:
        """That of the view."""
        return self.view.status

    @property
    def epoch(self) -> int:
        """The epoch that the rows show."""
        return self.view.epoch

    @property
    def group(self) -> str:
        """The group of views that it moves together with."""
        return self.view.group

    @property
    def freshness(self) -> timedelta:
        """The age of the oldest change that the view does not show yet; zero if it shows all."""
        return self.view.freshness

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([field for field in self.view.schema if field.name not in self.values])

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row of the member."""
        return tuple(name for name in self.view.key if name not in self.values)

    def get(self, *key: Any) -> Row | None:
        """The row with that key, or None; without columns in `key`, the one row of the member."""
        key = key[0] if len(key) == 1 and isinstance(key[0], tuple) else key
        if len(key) != len(self.key):
            columns = f"the columns {', '.join(self.key)}" if self.key else "no columns"
            raise DataError(f"the key of a member of view {self.view.name} has {columns}")
        values = self.values | dict(zip(self.key, key, strict=True))
        row = self.view.get(tuple(values[name] for name in self.view.key))
        return None if row is None else {name: row[name] for name in self.schema.names}

    def to_arrow(self) -> pa.Table:
        """All rows of the member."""
        rows = self.view.rows_of_member(self._key)
        return rows.filter(self._are_own(rows)).select(self.schema.names)

    def to_pandas(self) -> pd.DataFrame:
        """All rows of the member as a pandas frame."""
        return frames.to_pandas(self.to_arrow())

    def to_polars(self) -> pl.DataFrame:
        """All rows of the member as a Polars frame."""
        return frames.to_polars(self.to_arrow())

    def scan(self) -> Iterator[Row]:
        """All rows of the member as dicts, of one epoch."""
        for batch in self.to_arrow().to_batches():
            yield from python_rows(batch)

    def changes(self, after: int | None = None) -> Iterator[pa.RecordBatch]:
        """The member's part of `view.changes`; its rows have the parameters too."""
        for batch in self.view.changes(after):
            if len(own := self.own_part(batch)):
                yield own

    def own_part(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """The changes of a view that are of this member."""
        before, now = changes.column("before"), changes.column("after")
        rows = pc.if_else(now.is_valid(), now, before)
        return changes.filter(self._are_own(pa.Table.from_struct_array(rows)))

    def __len__(self) -> int:
        return int(self.to_arrow().num_rows)

    def _are_own(self, rows: pa.Table) -> pa.Array:
        """Which rows have the values of the member."""
        columns = [rows[name].combine_chunks() for name in self._key.column_names]
        (own,) = self._codec.encode([column.chunk(0) for column in self._key.columns])
        return pc.equal(self._codec.encode(columns), own)
