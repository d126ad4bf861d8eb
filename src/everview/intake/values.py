"""Lists of Python values to columns of a stored type.

Values of the one Python type that belongs to the column go to Arrow in one call. Others are grouped
by type, each group becomes an Arrow column, and the rules for Arrow columns decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from everview.intake.columns import in_halves, store_column
from everview.intake.kinds import Kind, Unfit, kind, plain
from everview.intake.nested import parts_of_values, store_parts
from everview.schema import is_nested

_NOTHING = type(None)
_OWN_TYPES: dict[Kind, frozenset[type]] = {
    "boolean": frozenset({bool, _NOTHING}),
    "integer": frozenset({int, _NOTHING}),
    "floating": frozenset(),
    "decimal": frozenset({Decimal, int, _NOTHING}),
    "string": frozenset({str, _NOTHING}),
    "binary": frozenset({bytes, _NOTHING}),
    "date": frozenset({date, _NOTHING}),
    "timestamp": frozenset(),
    "timestamp_ntz": frozenset(),
    "interval": frozenset({timedelta, _NOTHING}),
}
_CONVERTERS: dict[str, Callable[[list[Any]], Any]] = {
    "bool": lambda values: pa.array(values, pa.bool_()),
    "int": lambda values: _integers(values),
    "float": lambda values: pa.array(values, pa.float64()),
    "decimal": lambda values: pa.array(values),
    "text": lambda values: pa.array(values, pa.string()),
    "bytes": lambda values: pa.array(values, pa.binary()),
    "date": lambda values: pa.array(values, pa.date32()),
    "naive": lambda values: pa.array(values, pa.timestamp("us")),
    "aware": lambda values: pa.array(values, pa.timestamp("us", tz="UTC")),
    "interval": lambda values: pa.array(values, pa.duration("us")),
}


def store_values(
    values: list[Any], target: pa.DataType, nan_is_null: bool = False
) -> pa.ChunkedArray:
    """The values as a column of the stored type; None is NULL. Raises `Unfit`."""
    if is_nested(target):
        whole_values = [_whole_value(value, nan_is_null) for value in values]
        store = partial(store_values, nan_is_null=nan_is_null)
        return store_parts(parts_of_values(whole_values, target), target, store)
    types = set(map(type, values))
    if nan_is_null and any(issubclass(type_, float) for type_ in types):
        values = [None if value != value else value for value in values]
        types = set(map(type, values))
    if types <= _OWN_TYPES[kind(target)]:
        return in_halves(values, lambda part: pa.array(part, target))
    if len(types - {_NOTHING}) == 1 and (group := _one_group(values, types)):
        return _store_group(group, values, target)
    return _store_groups(values, target)


def _one_group(values: list[Any], types: set[type]) -> str | None:
    """The group of values that are all of one of the plain types, or None."""
    if datetime in types:
        zones = {value.tzinfo is None for value in values if value is not None}
        return ("naive" if zones.pop() else "aware") if len(zones) == 1 else None
    return next((group for group, type_ in _GROUPS if type_ in types), None)


def _store_groups(values: list[Any], target: pa.DataType) -> pa.ChunkedArray:
    groups: dict[str, list[int]] = {}
    values = [_plain_value(value) for value in values]
    for position, value in enumerate(values):
        groups.setdefault(_group(value), []).append(position)
    if list(groups) == ["null"]:
        return pa.chunked_array([pa.nulls(len(values), target)])
    columns: list[pa.ChunkedArray] = []
    order: list[int] = []
    misfits: list[int] = []
    for name, positions in groups.items():
        try:
            columns.append(_store_group(name, [values[i] for i in positions], target))
            order += positions
        except Unfit as unfit:
            misfits.append(positions[unfit.position])
    if misfits:
        raise Unfit(min(misfits), plain(values[min(misfits)]))
    if len(columns) == 1:
        return columns[0]
    inverse = pa.array(sorted(range(len(order)), key=order.__getitem__), pa.int64())
    joined = pa.chunked_array([chunk for column in columns for chunk in column.chunks])
    return joined.take(inverse)


def _store_group(name: str, values: list[Any], target: pa.DataType) -> pa.ChunkedArray:
    if name == "null":
        return pa.chunked_array([pa.nulls(len(values), target)])
    if name not in _CONVERTERS:
        raise Unfit(0, values[0])
    # Floats reach further than Arrow's decimals.
    as_float = name == "decimal" and kind(target) == "floating"
    to_arrow = _nearest_floats if as_float else _CONVERTERS[name]

    def convert(part: list[Any]) -> pa.ChunkedArray:
        try:
            return store_column(to_arrow(part), target)
        except Unfit as unfit:
            raise ValueError(f"value {unfit.position}") from None

    return in_halves(values, convert)


def _integers(values: list[int]) -> Any:
    try:
        return pa.array(values, pa.int64())
    except OverflowError:
        return pa.array(values, pa.decimal128(38))


def _nearest_floats(values: list[Decimal | None]) -> Any:
    floats = [None if value is None else float(value) for value in values]
    if not all(value is None or math.isfinite(value) for value in floats):
        raise OverflowError("beyond the largest number of the type")
    return pa.array(floats, pa.float64())


def _plain_value(value: Any) -> Any:
    """A Python value for a numpy scalar, None for pandas' NA and NaT."""
    module = type(value).__module__
    if module == "numpy":
        return value.item()
    if module.startswith("pandas.") and type(value).__name__ in ("NAType", "NaTType"):
        return None
    return value


def _whole_value(value: Any, nan_is_null: bool) -> Any:
    """A Python value for an array, a struct or a map; None where it is missing."""
    if isinstance(value, float) and nan_is_null:
        return None if value != value else value
    return value if isinstance(value, np.ndarray) else _plain_value(value)


def _group(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, datetime):
        if getattr(value, "nanosecond", 0):
            return "other"
        return "naive" if value.tzinfo is None else "aware"
    if getattr(value, "nanoseconds", 0):  # of a Timedelta
        return "other"
    for group, type_ in _GROUPS:
        if isinstance(value, type_):
            return group
    return "other"


# bool is an int and datetime a date: the narrower comes first.
_GROUPS: tuple[tuple[str, type], ...] = (
    ("bool", bool),
    ("int", int),
    ("float", float),
    ("decimal", Decimal),
    ("text", str),
    ("bytes", bytes),
    ("date", date),
    ("interval", timedelta),
)
