"""Filters as Arrow expressions, where NULL and NaN are as in Spark, and as ranges of keys."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from everview import TableSchema
from everview.spark.filters import key_range, to_arrow

X = ("x",)


def passing(condition, type_: pa.DataType, values: list) -> list:
    """The values, of a column x, that the filter lets through."""
    schema = TableSchema.of("t", pa.schema([("k", pa.int64()), ("x", type_)]), key="k")
    rows = pa.table({"x": pa.array(values, type_)})
    return rows.filter(to_arrow(condition, schema)).column("x").to_pylist()


def test_nan_is_greater_than_every_number():
    values = [-math.inf, 1.0, math.inf, math.nan, None]
    assert str(passing(GreaterThan(X, 1.0), pa.float64(), values)) == "[inf, nan]"
    assert str(passing(GreaterThanOrEqual(X, math.inf), pa.float64(), values)) == "[inf, nan]"
    assert passing(LessThan(X, math.inf), pa.float64(), values) == [-math.inf, 1.0]
    assert str(passing(Not(LessThanOrEqual(X, 1.0)), pa.float64(), values)) == "[inf, nan]"


def test_zero_equals_negative_zero():
    assert passing(EqualTo(X, 0.0), pa.float32(), [0.0, -0.0, 1.0]) == [0.0, -0.0]
    assert passing(GreaterThanOrEqual(X, 0.0), pa.float32(), [-0.0]) == [-0.0]


def test_null_passes_neither_a_filter_nor_its_opposite():
    for condition in (EqualTo(X, 1), LessThan(X, 1), In(X, (1, 2))):
        assert passing(condition, pa.int32(), [None]) == []
        assert passing(Not(condition), pa.int32(), [None]) == []


def test_not_in_a_list_with_null_lets_nothing_through():
    assert passing(In(X, (1, None)), pa.int32(), [1, 2, None]) == [1]
    assert passing(Not(In(X, (1, None))), pa.int32(), [1, 2, None]) == []


def test_null_safe_equality_is_never_null():
    assert passing(EqualNullSafe(X, 1), pa.int32(), [1, 2, None]) == [1]
    assert passing(Not(EqualNullSafe(X, 1)), pa.int32(), [1, 2, None]) == [2, None]
    assert passing(EqualNullSafe(X, None), pa.int32(), [1, None]) == [None]


@pytest.mark.parametrize(
    ("condition", "type_"),
    [
        (EqualTo(X, math.nan), pa.float64()),
        (In(X, (0.0, 1.0)), pa.float64()),
        (GreaterThan(X, 200), pa.int8()),
        (EqualTo(X, 0.1), pa.float32()),
        (EqualTo(X, Decimal("1.005")), pa.decimal128(12, 2)),
        (EqualTo(X, Decimal("1234567890123456789012345678")), pa.decimal128(38, 0)),
        (EqualTo(X, None), pa.int64()),
        (IsNull(("x", "y")), pa.int64()),
    ],
)
def test_what_arrow_would_see_otherwise_stays_with_spark(condition, type_):
    schema = TableSchema.of("t", pa.schema([("k", pa.int64()), ("x", type_)]), key="k")
    assert to_arrow(condition, schema) is None
    assert to_arrow(Not(condition), schema) is None


A, B = ("a",), ("b",)


@pytest.mark.parametrize(
    ("filters", "start", "stop"),
    [
        ([], None, None),
        ([EqualTo(A, "x")], ("x",), ("x\0",)),
        ([EqualTo(A, "x"), EqualTo(B, 3)], ("x", 3), ("x", 4)),
        ([EqualTo(A, "x"), EqualTo(B, 2**31 - 1)], ("x", 2**31 - 1), ("x\0",)),
        ([EqualTo(A, "x"), GreaterThan(B, 3)], ("x", 3), ("x\0",)),
        ([EqualTo(A, "x"), LessThan(B, 3)], ("x",), ("x", 3)),
        ([GreaterThanOrEqual(A, "m"), LessThanOrEqual(A, "p")], ("m",), ("p\0",)),
        ([In(A, ("m", "b", None))], ("b",), ("m\0",)),
        ([StringStartsWith(A, "ab")], ("ab",), ("ac",)),
        ([StringStartsWith(A, "a\U0010ffff")], ("a\U0010ffff",), None),
        ([EqualTo(B, 3)], None, None),
        ([Not(EqualTo(A, "x"))], None, None),
    ],
)
def test_filters_on_leading_key_columns_become_a_range(filters, start, stop):
    schema = TableSchema.of("t", {"a": "STRING", "b": "INT"}, key=["a", "b"])
    assert key_range(filters, schema) == (start, stop)


@pytest.mark.parametrize(
    ("type_", "value", "following"),
    [
        ("DATE", dt.date(2024, 2, 28), (dt.date(2024, 2, 29),)),
        ("DATE", dt.date.max, None),
        ("TIMESTAMP_NTZ", dt.datetime(2024, 1, 1), (dt.datetime(2024, 1, 1, 0, 0, 0, 1),)),
        ("DECIMAL(5,2)", Decimal("1.10"), (Decimal("1.11"),)),
        ("DECIMAL(5,2)", Decimal("999.99"), None),
        ("BINARY", b"\xff", (b"\xff\0",)),
        ("BOOLEAN", True, None),
    ],
)
def test_a_range_ends_at_the_next_value_of_the_type(type_, value, following):
    schema = TableSchema.of("t", {"a": type_}, key="a")
    assert key_range([LessThanOrEqual(A, value)], schema) == (None, following)


def test_floating_point_keys_have_no_ranges():
    schema = TableSchema.of("t", {"a": "DOUBLE"}, key="a")
    assert key_range([EqualTo(A, 0.0)], schema) == (None, None)
