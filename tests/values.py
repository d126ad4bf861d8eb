"""Random columns and values of every stored type, for property tests."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from everview.schema import arrow_type, is_nested, quoted, sql_name

TYPES = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(5,2)",
    "DECIMAL(18,0)", "DECIMAL(19,3)", "DECIMAL(38,10)", "DECIMAL(38,38)", "STRING", "BINARY",
    "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "INTERVAL DAY TO SECOND",
)  # fmt: skip

_EPOCH = dt.datetime(1970, 1, 1)
_FIELDS = ("a", "B", "odd name", "d`q", "\u00e9", "x: y<")


def nested_types() -> st.SearchStrategy[str]:
    """Names of arrays, structs and maps to some depth."""
    plain = st.sampled_from(TYPES)

    def around(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        fields = st.lists(st.tuples(st.sampled_from(_FIELDS), inner), min_size=1, max_size=3)
        return (
            inner.map("ARRAY<{}>".format)
            | st.tuples(plain | inner, inner).map(lambda kv: f"MAP<{kv[0]}, {kv[1]}>")
            | fields.map(lambda found: f"STRUCT<{', '.join(map(_field, dict(found).items()))}>")
        )

    return around(st.recursive(plain, around, max_leaves=4))


def _field(field: tuple[str, str]) -> str:
    return f"{quoted(field[0])}: {field[1]}"


def values(name: str) -> st.SearchStrategy[Any]:
    """Values of a type as Python objects, extremes included."""
    arrow = arrow_type(name)
    if is_nested(arrow):
        return _nested_values(arrow)
    if pa.types.is_boolean(arrow):
        return st.booleans()
    if pa.types.is_integer(arrow):
        half = 1 << (arrow.bit_width - 1)
        return st.integers(-half, half - 1) | st.sampled_from([-half, -1, 0, 1, half - 1])
    if pa.types.is_floating(arrow):
        return st.floats(width=arrow.bit_width)
    if pa.types.is_decimal(arrow):
        top = 10**arrow.precision - 1
        return (st.integers(-top, top) | st.sampled_from([-top, 0, top])).map(
            lambda n, scale=arrow.scale: Decimal((int(n < 0), _digits(n), -scale))
        )
    if name == "STRING":
        return st.text(max_size=20) | st.text("\0a\u00e9\U0001f600", max_size=6)
    if name == "BINARY":
        return st.binary(max_size=20) | st.binary(max_size=3).map(lambda b: b"\0\xff" + b)
    if name == "DATE":
        return st.dates()
    if pa.types.is_duration(arrow):
        day, most = 86_400_000_000, (1 << 63) - 1  # Arrow takes none of the first day's
        micros = st.integers(day - most, most) | st.sampled_from([day - most, -1, 0, 1, most])
        return micros.map(lambda number: dt.timedelta(microseconds=number))
    tz = dt.UTC if name == "TIMESTAMP" else None
    return st.datetimes().map(lambda value: value.replace(tzinfo=tz))


def _nested_values(arrow: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(arrow):
        return st.fixed_dictionaries({f.name: _or_null(f.type) for f in arrow})
    if pa.types.is_list(arrow):
        return st.lists(_or_null(arrow.value_type), max_size=4)
    pairs = st.tuples(values(sql_name(arrow.key_type)), _or_null(arrow.item_type))
    return st.lists(pairs, max_size=4, unique_by=lambda pair: str(pair[0]).replace("-0.0", "0.0"))


def _or_null(arrow: pa.DataType) -> st.SearchStrategy[Any]:
    return st.none() | values(sql_name(arrow))


def column(name: str, found: list[Any]) -> pa.Array:
    return pa.array(found, arrow_type(name))


def order_of(value: Any) -> Any:
    """What to sort by to get Spark's order: NaN above all numbers, -0.0 equal to 0.0."""
    if isinstance(value, float):
        return (value != value, 0.0 if value != value else value + 0.0)
    if isinstance(value, str):
        return value.encode()
    return value


def _digits(number: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(number))))
