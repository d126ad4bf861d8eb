"""Types of columns: an Arrow type in memory, with a name in Spark SQL.

`sql_name` and `arrow_type` translate to and from Spark SQL; `stored_type` says which type the
values of other Arrow types are stored in.
"""

from __future__ import annotations

import re

import pyarrow as pa

from everview.errors import InvalidSchema
from everview.schema.names import name_in_type, unquoted
from everview.typenames import named_field, nested_parts

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
        fields = (f"{name_in_type(f.name)}: {sql_name(f.type)}" for f in arrow)
        return f"STRUCT<{', '.join(fields)}>"
    if pa.types.is_decimal(arrow):
        return f"DECIMAL({arrow.precision},{arrow.scale})"
    try:
        return _NAME_BY_ARROW[arrow]
    except KeyError:
        raise InvalidSchema(f"Arrow type {arrow} has no stored Spark SQL type") from None


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
