"""What a table looks like: columns with Spark SQL types, a primary key, regions, observers.

In memory every type is an Arrow type; `sql_name` and `arrow_type` translate to and from Spark SQL.
Names keep the case they were written in and are found in any case, as in Spark.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from everview.errors import InvalidSchema, UnknownColumn
from everview.typenames import named_field, nested_parts

DEFAULT_REGIONS = 4
MAX_REGIONS = 1024
LONGEST_NAME = 255  # bytes
MAX_VERSIONS = 0xFFFF  # a row has 2 bytes for the version of its schema

_ARROW_BY_NAME: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_LTZ": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "INTERVAL DAY TO SECOND": pa.duration("us"),
}
_NAME_BY_ARROW = {
    arrow: name
    for name, arrow in _ARROW_BY_NAME.items()
    if name not in ("BYTE", "SHORT", "INTEGER", "LONG", "REAL", "TIMESTAMP_LTZ")
}
_DECIMAL = re.compile(r"(?:DECIMAL|DEC|NUMERIC)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_TEXT = re.compile(r"(?:VARCHAR|CHAR|CHARACTER)\s*\(\s*\d+\s*\)")
_UNIT = r"(?:DAY|HOUR|MINUTE|SECOND)"
_INTERVAL = re.compile(rf"INTERVAL\s+{_UNIT}(?:\s+TO\s+{_UNIT})?")
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_QUOTED = re.compile(r"`(?:[^`]|``)+`")
_KNOWN = [*_NAME_BY_ARROW.values(), "DECIMAL(p,s)", "ARRAY<T>", "MAP<K, V>", "STRUCT<name: T, ...>"]


def arrow_type(sql: str) -> pa.DataType:
    """The Arrow type of a Spark SQL type name; VARCHAR(n) and CHAR(n) are STRING, and intervals of
    days or less are INTERVAL DAY TO SECOND.

    Whatever is within an array, struct or map may be NULL, also where the name says NOT NULL; only
    a map's keys may not.
    """
    if nested := nested_parts(sql):
        return _nested_type(sql, *nested)
    name = sql.strip().upper()
    if name in _ARROW_BY_NAME:
        return _ARROW_BY_NAME[name]
    if _TEXT.fullmatch(name):
        return pa.string()
    if _INTERVAL.fullmatch(name):
        return pa.duration("us")
    if match := _DECIMAL.fullmatch(name):
        precision, scale = int(match[1] or 10), int(match[2] or 0)
        if not (1 <= precision <= 38 and scale <= precision):
            raise InvalidSchema(
                f"{sql}: a DECIMAL has 1 to 38 digits and a scale within them, "
                "for example DECIMAL(38,10)"
            )
        return pa.decimal128(precision, scale)
    raise InvalidSchema(f"type {sql} can't be stored in a table; available: {', '.join(_KNOWN)}")


def _nested_type(sql: str, kind: str, parts: list[str]) -> pa.DataType:
    if kind == "STRUCT":
        fields = [named_field(part) for part in parts]
        typed_fields = [(unquoted(field[0]), arrow_type(field[1])) for field in fields if field]
        if len(typed_fields) == len(fields) == len({name.lower() for name, _ in typed_fields}):
            return pa.struct(typed_fields)
    elif kind == "MAP" and len(parts) == 2:
        return pa.map_(*map(arrow_type, parts))
    elif kind == "ARRAY" and len(parts) == 1:
        return array_type(arrow_type(parts[0]))
    raise InvalidSchema(
        f"type {sql} can't be read; write ARRAY<T>, MAP<K, V>, or STRUCT<name: T, ...> with names "
        "that differ"
    )


def array_type(element: pa.DataType) -> pa.DataType:
    """The type of arrays of some type."""
    return pa.list_(pa.field("element", element))


def sql_name(arrow: pa.DataType) -> str:
    """The Spark SQL name of a stored type."""
    if pa.types.is_list(arrow):
        return f"ARRAY<{sql_name(arrow.value_type)}>"
    if pa.types.is_map(arrow):
        return f"MAP<{sql_name(arrow.key_type)}, {sql_name(arrow.item_type)}>"
    if pa.types.is_struct(arrow):
        fields = (f"{_name_in_type(f.name)}: {sql_name(f.type)}" for f in arrow)
        return f"STRUCT<{', '.join(fields)}>"
    if pa.types.is_decimal(arrow):
        return f"DECIMAL({arrow.precision},{arrow.scale})"
    try:
        return _NAME_BY_ARROW[arrow]
    except KeyError:
        raise InvalidSchema(f"Arrow type {arrow} has no stored Spark SQL type") from None


def check_visible(kind: str, name: str) -> None:
    """Raises `InvalidSchema` if a new name has characters that control what is shown: line ends,
    NUL, marks that turn the direction of text. Two names that look alike might then differ.

    Joiners, which some scripts and emoji need, are fine. So are names from before this check.
    """
    for character in name:
        kinds = unicodedata.category(character)
        if kinds in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in "\u200c\u200d":
            character_name = unicodedata.name(character, "a control character").lower()
            raise InvalidSchema(
                f"{name!a} can't be the name of a {kind}: it has U+{ord(character):04X} "
                f"({character_name}), which does not show; leave it out"
            )


def quoted(name: str) -> str:
    """The name as an identifier in SQL text."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def unquoted(text: str) -> str:
    """The name without its quotes, if the text is a name and nothing else."""
    return text[1:-1].replace("``", "`") if _QUOTED.fullmatch(text) else text


def _name_in_type(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quoted(name)


def is_nested(arrow: pa.DataType) -> bool:
    """Whether the type is an array, a struct or a map."""
    return bool(pa.types.is_nested(arrow))


def is_variable(arrow: pa.DataType) -> bool:
    """Whether values of the type have different lengths."""
    return arrow in (pa.string(), pa.binary()) or is_nested(arrow)


def has_floats(arrow: pa.DataType) -> bool:
    """Whether equal values of the type may differ in their bits, as -0.0 and 0.0 do."""
    parts = [arrow.field(i).type for i in range(arrow.num_fields)]
    return bool(pa.types.is_floating(arrow)) or any(map(has_floats, parts))


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


def stored_type(arrow: pa.DataType, column: str) -> pa.DataType:
    """The type in which values of an incoming Arrow type are stored, as Spark would read it."""
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    if pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow):
        return pa.string()
    if pa.types.is_large_binary(arrow) or pa.types.is_binary_view(arrow):
        return pa.binary()
    if pa.types.is_fixed_size_binary(arrow):
        return pa.binary()
    if pa.types.is_date64(arrow):
        return pa.date32()
    if pa.types.is_timestamp(arrow):
        return pa.timestamp("us", tz="UTC" if arrow.tz else None)
    if pa.types.is_duration(arrow):
        return pa.duration("us")
    if pa.types.is_decimal(arrow):
        return arrow_type(f"DECIMAL({arrow.precision},{arrow.scale})")
    if is_list(arrow):
        return array_type(stored_type(arrow.value_type, column))
    if pa.types.is_map(arrow):
        return pa.map_(stored_type(arrow.key_type, column), stored_type(arrow.item_type, column))
    if pa.types.is_struct(arrow) and arrow.num_fields:
        fields = [(f.name, stored_type(f.type, column)) for f in arrow]
        return arrow_type(sql_name(pa.struct(fields)))
    if arrow in _NAME_BY_ARROW:
        return arrow
    raise InvalidSchema(
        f"column {column}: Arrow type {arrow} has no stored type; cast it to one of "
        f"{', '.join(_KNOWN)}"
    )


def is_list(arrow: pa.DataType) -> bool:
    """Whether an incoming type is one of Arrow's kinds of list."""
    tests = (
        pa.types.is_list,
        pa.types.is_large_list,
        pa.types.is_fixed_size_list,
        pa.types.is_list_view,
        pa.types.is_large_list_view,
    )
    return any(test(arrow) for test in tests)


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
