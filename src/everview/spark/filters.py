"""Spark's pushed filters as Arrow expressions and as ranges of keys.

An expression is true, false and NULL for exactly the rows for which Spark's filter is. If Arrow
compares otherwise (NaN) or can't hold the value, there is no expression and Spark keeps the filter.
A range only has to hold every row that passes the filters.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as ds

from everview.schema import Column, TableSchema, is_nested

Key = tuple[Any, ...]

_NULL = pa.scalar(None, pa.bool_())
_DIGITS = decimal.Context(prec=40)


def to_arrow(condition: ds.Filter, table: TableSchema) -> pc.Expression | None:
    """The filter as an expression over the table's columns, or None if there is no equal one."""
    if isinstance(condition, ds.Not):
        child = to_arrow(condition.child, table)
        return None if child is None else ~child
    translate = _TRANSLATIONS.get(type(condition))
    column = _column(condition, table)
    if translate is None or column is None:
        return None
    try:
        return translate(column, getattr(condition, "value", None))
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None


def key_range(filters: Iterable[ds.Filter], table: TableSchema) -> tuple[Key | None, Key | None]:
    """(start, stop) around all keys that pass the filters; None where there is no bound."""
    filters = list(filters)
    prefix: Key = ()
    for column in table.key_columns:
        low, stop, exact = _bounds(column, [f for f in filters if _column(f, table) == column])
        if not exact:
            start = prefix if low is None else (*prefix, low)
            beyond = _after(prefix, table.key_columns) if stop is None else (*prefix, stop)
            return start or None, beyond
        prefix = (*prefix, low)
    return prefix, _after(prefix, table.key_columns)


def _column(condition: ds.Filter, table: TableSchema) -> Column | None:
    """The column of a filter; None if it is nested, as Arrow can't compare such columns."""
    path: ds.ColumnPath = getattr(condition, "attribute", ())
    column = table.column(path[0]) if len(path) == 1 and table.has(path[0]) else None
    return None if column is None or is_nested(column.type) else column


def _scalar(column: Column, value: Any) -> pa.Scalar[Any]:
    scalar = pa.scalar(value, column.type)
    if value is None or scalar.as_py() != value or _may_be_rounded(value):
        raise ValueError(f"{value!r} is not exactly a value of {column.name}")
    return scalar


def _may_be_rounded(value: Any) -> bool:
    """Whether pyspark, which computes literals in 28 digits, may have changed a decimal."""
    return isinstance(value, decimal.Decimal) and len(value.as_tuple().digits) >= 28


def _equal(column: Column, value: Any) -> pc.Expression:
    return pc.field(column.name) == _scalar(column, value)


def _equal_or_both_null(column: Column, value: Any) -> pc.Expression:
    if value is None:
        return pc.field(column.name).is_null()
    return _equal(column, value) & ~pc.field(column.name).is_null()


def _less(column: Column, value: Any) -> pc.Expression:
    return pc.field(column.name) < _scalar(column, value)


def _less_or_equal(column: Column, value: Any) -> pc.Expression:
    return pc.field(column.name) <= _scalar(column, value)


def _greater(column: Column, value: Any) -> pc.Expression:
    # NaN is greater than every number in Spark, and than none in Arrow
    return ~_less_or_equal(column, value)


def _greater_or_equal(column: Column, value: Any) -> pc.Expression:
    return ~_less(column, value)


def _among(column: Column, values: Sequence[Any]) -> pc.Expression:
    if pa.types.is_floating(column.type):
        raise ValueError("Arrow looks up -0.0 and 0.0 as different values")
    scalars = [_scalar(column, value).as_py() for value in values if value is not None]
    field = pc.field(column.name)
    is_in = field.isin(pa.array(scalars, column.type))
    certain: pc.Expression = pc.if_else(field.is_null(), _NULL, is_in)
    # if the list has a NULL, no value is certainly not in it
    unless_null: pc.Expression = pc.if_else(is_in, True, _NULL)
    return unless_null if None in values else certain


def _matching(match: Callable[..., pc.Expression]) -> Callable[[Column, Any], pc.Expression]:
    def translate(column: Column, value: Any) -> pc.Expression:
        return match(pc.field(column.name), _scalar(column, value).as_py())

    return translate


_TRANSLATIONS: dict[type[ds.Filter], Callable[[Column, Any], pc.Expression]] = {
    ds.EqualTo: _equal,
    ds.EqualNullSafe: _equal_or_both_null,
    ds.LessThan: _less,
    ds.LessThanOrEqual: _less_or_equal,
    ds.GreaterThan: _greater,
    ds.GreaterThanOrEqual: _greater_or_equal,
    ds.In: _among,
    ds.IsNull: lambda column, _: pc.field(column.name).is_null(),
    ds.IsNotNull: lambda column, _: ~pc.field(column.name).is_null(),
    ds.StringStartsWith: _matching(pc.starts_with),
    ds.StringEndsWith: _matching(pc.ends_with),
    ds.StringContains: _matching(pc.match_substring),
}


def _bounds(column: Column, filters: list[ds.Filter]) -> tuple[Any, Any, bool]:
    """(low, stop, exact): low <= value < stop for values that pass; exact if only `low` does."""
    if pa.types.is_floating(column.type):
        return None, None, False
    lows, stops = [], []
    for condition in filters:
        match condition:
            case ds.EqualTo(value=value):
                return value, None, True
            case ds.GreaterThan(value=value) | ds.GreaterThanOrEqual(value=value):
                lows.append(value)
            case ds.LessThan(value=value):
                stops.append(value)
            case ds.LessThanOrEqual(value=value):
                stops.append(_next(value, column.type))
            case ds.In(value=values) if present := [v for v in values if v is not None]:
                lows.append(min(present))
                stops.append(_next(max(present), column.type))
            case ds.StringStartsWith(value=value) if value:
                lows.append(value)
                stops.append(_next_prefix(value))
    stops = [stop for stop in stops if stop is not None]
    return max(lows, default=None), min(stops, default=None), False


def _after(prefix: Key, columns: Sequence[Column]) -> Key | None:
    """A key beyond every key that starts with `prefix`."""
    for length in range(len(prefix), 0, -1):
        following = _next(prefix[length - 1], columns[length - 1].type)
        if following is not None:
            return (*prefix[: length - 1], following)
    return None


def _next(value: Any, type_: pa.DataType) -> Any:
    """The smallest value of the type greater than `value`, or None."""
    try:
        return pa.scalar(_increment(pa.scalar(value, type_).as_py(), type_), type_).as_py()
    except (pa.ArrowException, OverflowError):
        return None


def _increment(value: Any, type_: Any) -> Any:
    match value:
        case str():
            return value + "\0"
        case bytes():
            return value + b"\0"
        case datetime.datetime():
            return value + datetime.timedelta(microseconds=1)
        case datetime.date():
            return value + datetime.timedelta(days=1)
        case decimal.Decimal():
            return _DIGITS.add(value, decimal.Decimal(1).scaleb(-type_.scale))
    return value + 1


def _next_prefix(text: str) -> str | None:
    """The smallest text greater than all that start with `text`, or None."""
    following = ord(text[-1]) + 1
    return None if following in (0xD800, 0x110000) else text[:-1] + chr(following)
