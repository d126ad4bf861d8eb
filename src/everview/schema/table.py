"""Definitions of tables: columns with types, a primary key, regions, observers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from everview.errors import InvalidSchema, UnknownColumn
from everview.schema.names import LONGEST_NAME, check_visible
from everview.schema.types import arrow_type, is_nested, sql_name, stored_type

DEFAULT_REGIONS = 4
MAX_REGIONS = 1024
MAX_VERSIONS = 0xFFFF  # a row has 2 bytes for the version of its schema


@dataclass(frozen=True)
class Column:
    name: str
    type: pa.DataType
    nullable: bool = True

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "type": sql_name(self.type), "nullable": self.nullable}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Column:
        return cls(document["name"], arrow_type(document["type"]), document["nullable"])


@dataclass(frozen=True)
class TableSchema:
    """A table's definition.

    `observers` are 'module:Class' names that every writing process loads and attaches. `widths`
    has the number of columns at creation and after each change: columns are only added, at the
    end. Rows of an `append_only` table are neither changed nor deleted.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    regions: int = DEFAULT_REGIONS
    observers: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()
    append_only: bool = False
    _lower: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._check_name("table", self.name)
        for position, column in enumerate(self.columns):
            self._check_name("column", column.name)
            if column.name.lower() in self._lower:
                raise InvalidSchema(f"table {self.name}: column {column.name} appears twice")
            self._lower[column.name.lower()] = position
        if not self.columns:
            raise InvalidSchema(f"table {self.name} has no columns")
        if not self.key:
            raise InvalidSchema(
                f"table {self.name} has no primary key; add PRIMARY KEY (column, ...)"
            )
        if not isinstance(self.regions, int) or not 1 <= self.regions <= MAX_REGIONS:
            raise InvalidSchema(f"table {self.name}: regions must be 1 to {MAX_REGIONS}")
        key = tuple(self.column(name).name for name in self.key)
        if len(set(key)) != len(key):
            raise InvalidSchema(f"table {self.name}: a column appears twice in the primary key")
        for column in map(self.column, key):
            if is_nested(column.type):
                raise InvalidSchema(
                    f"table {self.name}: column {column.name} of type {sql_name(column.type)} "
                    "can't be part of a primary key; use columns of other types"
                )
        columns = tuple(
            replace(column, nullable=False) if column.name in key else column
            for column in self.columns
        )
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "widths", self.widths or (len(columns),))

    def _check_name(self, kind: str, name: str) -> None:
        if not isinstance(name, str):
            raise InvalidSchema(f"the name of a {kind} must be text, not {name!r}")
        size = len(name.encode("utf-8", "replace"))
        if any(ord(c) < 32 for c in name):
            check_visible(kind, name)
        if not 1 <= size <= LONGEST_NAME or any(c in "`./\\" for c in name):
            raise InvalidSchema(
                f"{name!r} can't be a {kind} name; use 1 to 255 bytes without . / \\ and `"
            )

    @classmethod
    def of(
        cls,
        name: str,
        columns: pa.Schema | dict[str, str] | Iterable[Column],
        key: str | Sequence[str],
        **options: Any,
    ) -> TableSchema:
        """A schema from an Arrow schema, from {name: SQL type}, or from columns."""
        key = (key,) if isinstance(key, str) else key or ()
        if not isinstance(key, Iterable) or not all(isinstance(name, str) for name in key):
            raise InvalidSchema(
                f"table {name}: the key is the name of a column or a list of names, not {key!r}"
            )
        key = tuple(key)
        return cls(name, columns_of(name, columns), key, **options)

    def with_columns(self, columns: Sequence[Column]) -> TableSchema:
        """The table with more columns at the end; rows that exist have NULL in them."""
        if not columns:
            raise InvalidSchema(f"table {self.name}: name at least one column to add")
        for column in columns:
            if self.has(column.name):
                raise InvalidSchema(
                    f"table {self.name} has a column {column.name} already; it has "
                    f"{', '.join(self.names)}: choose another name"
                )
            if not column.nullable:
                raise InvalidSchema(
                    f"table {self.name}: the new column {column.name} can't be NOT NULL, since the "
                    "rows of the table have no value in it; leave out NOT NULL"
                )
        if self.version == MAX_VERSIONS:
            raise InvalidSchema(
                f"columns were added to table {self.name} {MAX_VERSIONS - 1:,} times, which is the "
                "limit; create a new table and copy the rows there"
            )
        all_columns = (*self.columns, *columns)
        return replace(self, columns=all_columns, widths=(*self.widths, len(all_columns)))

    @property
    def version(self) -> int:
        """Counts changes of the columns, 1 at creation."""
        return len(self.widths)

    def column(self, name: str) -> Column:
        """The column of that name, in any case."""
        if self.has(name):
            return self.columns[self._lower[name.lower()]]
        shown_name = name if isinstance(name, str) and name == name.strip() else repr(name)
        raise UnknownColumn(
            f"table {self.name} has no column {shown_name}; it has {', '.join(self.names)}"
        )

    def has(self, name: str) -> bool:
        return isinstance(name, str) and name.lower() in self._lower

    def positions(self, names: Iterable[str] | None) -> list[int]:
        """Positions of the named columns, of all of them for None."""
        if names is None:
            return list(range(len(self.columns)))
        is_single = isinstance(names, str) or not isinstance(names, Iterable)
        names = [names] if is_single else list(names)  # type: ignore[list-item]
        if not names:
            raise UnknownColumn(
                f"table {self.name}: name at least one column; it has {', '.join(self.names)}"
            )
        return [self._lower[self.column(name).name.lower()] for name in names]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(self.column(name) for name in self.key)

    @cached_property
    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.type, c.nullable) for c in self.columns])

    @cached_property
    def key_arrow(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.type, False) for c in self.key_columns])

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "columns": [column.to_json() for column in self.columns],
            "key": list(self.key),
            "regions": self.regions,
            "observers": list(self.observers),
            "version": self.version,
            "widths": list(self.widths),
            "append_only": self.append_only,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> TableSchema:
        return cls(
            name=document["name"],
            columns=tuple(Column.from_json(column) for column in document["columns"]),
            key=tuple(document["key"]),
            regions=document["regions"],
            observers=tuple(document["observers"]),
            widths=tuple(document.get("widths", ())),
            append_only=document.get("append_only", False),
        )


class ViewKey(TableSchema):
    """The key of a view, as a table would have it; its columns may have any name that a query can
    give."""

    def _check_name(self, kind: str, name: str) -> None:
        pass


def columns_of(
    table: str, columns: pa.Schema | dict[str, str] | Iterable[Column]
) -> tuple[Column, ...]:
    """Columns from an Arrow schema, from {name: SQL type}, or as they are."""
    if isinstance(columns, pa.Schema):
        return tuple(Column(f.name, stored_type(f.type, f.name), f.nullable) for f in columns)
    pairs = columns.items() if isinstance(columns, dict) else columns
    return tuple(_column_of(table, pair) for pair in pairs)


def _column_of(table: str, column: Any) -> Column:
    """A column from a Column, or from a pair of a name and a SQL or Arrow type."""
    if isinstance(column, Column):
        return column
    try:
        if isinstance(column, str):  # of two letters, say, which are no name and no type
            raise TypeError
        name, type_ = column
    except (TypeError, ValueError):
        raise InvalidSchema(
            f"table {table}: {column!r} does not define a column; give names with types, such as "
            "{'id': 'BIGINT'}, or an Arrow schema"
        ) from None
    return Column(name, arrow_type(type_) if isinstance(type_, str) else stored_type(type_, name))
