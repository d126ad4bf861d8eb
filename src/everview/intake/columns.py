"""Arrow columns of any type to columns of a stored type, exactly or not at all.

A rule converts a whole column at once and raises when a value doesn't fit; only then is the column
halved to find the first such value. Which type may become which is one table, `_RULES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from everview.intake.kinds import (
    FIRST_DAY,
    FIRST_US,
    LAST_DAY,
    LAST_US,
    Array,
    Kind,
    Unfit,
    is_bytes,
    is_naive,
    is_text,
    kind,
    plain,
)
from everview.intake.nested import parts_of_column, store_parts
from everview.schema import is_nested

Rule = Callable[[Array, pa.DataType], Array]
Test = Callable[[pa.DataType], bool]
_INTERVAL = re.compile(
    r"([+-])?(?:(\d{1,9}) )?([01]?\d|2[0-3]):([0-5]?\d):([0-5]?\d)(?:\.(\d{1,6}))?", re.ASCII
)
_PLAIN = ("arrow.json", "arrow.uuid")  # text, and bytes
REFUSALS = (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError)


def store_column(array: Array, target: pa.DataType) -> pa.ChunkedArray:
    """The column in its stored type, without a copy if it has it already. Raises `Unfit`."""
    array = _plainly(array)
    if is_nested(target) and (parts := parts_of_column(array, target)):
        return store_parts(parts, target, store_column)
    rule = _rule(array.type, target)
    if rule is None:
        if array.null_count == len(array):
            return pa.chunked_array([pa.nulls(len(array), target)])
        position = pc.index(pc.is_valid(array), True).as_py()
        raise Unfit(position, plain(array[position]))
    return in_halves(array, lambda part: _in_range(rule(part, target)))


def in_halves(values: Any, convert: Callable[[Any], Array]) -> pa.ChunkedArray:
    """`convert` of the values at once, or of smaller and smaller parts where it refuses."""
    try:
        converted = convert(values)
    except REFUSALS:
        if len(values) <= 1:
            raise Unfit(0, plain(values[0])) from None
        half = len(values) // 2
        left = in_halves(values[:half], convert)
        try:
            right = in_halves(values[half:], convert)
        except Unfit as unfit:
            raise Unfit(half + unfit.position, unfit.value) from None
        return pa.chunked_array([*left.chunks, *right.chunks])
    return converted if isinstance(converted, pa.ChunkedArray) else pa.chunked_array([converted])


def parse_timestamps(array: Array, target: pa.DataType) -> Array:
    """ISO text to timestamps; text without an offset is UTC."""
    has_zone = pc.match_substring_regex(array, r"[T ].*(Z|[+-]\d\d(:?\d\d)?)$")
    is_date = pc.match_substring_regex(array, r"^\d{4}-\d\d-\d\d$")
    end = pc.if_else(has_zone, "", pc.if_else(is_date, "T00:00Z", "Z"))
    return pc.cast(pc.binary_join_element_wise(array, end, ""), target)


def _parse_intervals(array: Array, target: pa.DataType) -> Array:
    """Text such as '-1 02:03:04.5', of days, hours, minutes and seconds, to intervals."""
    return pa.array(
        [None if text is None else _interval(text) for text in array.to_pylist()], target
    )


def _interval(text: str) -> timedelta:
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise ValueError("no interval")
    sign, days, hours, minutes, seconds, micros = match.groups(default="0")
    size = timedelta(
        days=int(days),
        hours=int(hours),
        minutes=int(minutes),
        seconds=int(seconds),
        microseconds=int(micros.ljust(6, "0")),
    )
    return -size if sign == "-" else size


def _rule(source: pa.DataType, target: pa.DataType) -> Rule | None:
    if source == target:
        return _as_it_is
    if types.is_null(source):
        return _cast
    return next((rule for test, rule in _RULES.get(kind(target), ()) if test(source)), None)


def _plainly(array: Array) -> Array:
    """The column as plain values: not a dictionary, run lengths or an extension type."""
    if isinstance(array.type, pa.BaseExtensionType) and array.type.extension_name in _PLAIN:
        array = pc.cast(array, array.type.storage_type)
    if types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    return _by_value(array) if types.is_dictionary(array.type) else array


def _by_value(array: Array) -> pa.ChunkedArray:
    """A dictionary column without its dictionary; Arrow can't take from views of text or bytes."""
    type_ = array.type.value_type
    if types.is_string_view(type_) or types.is_binary_view(type_):
        type_ = pa.string() if types.is_string_view(type_) else pa.binary()
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    decoded = [chunk.dictionary.cast(type_).take(chunk.indices) for chunk in chunks]
    return pa.chunked_array(decoded, type_)


def _as_it_is(array: Array, target: pa.DataType) -> Array:
    return array


def _cast(array: Array, target: pa.DataType) -> Array:
    return pc.cast(array, target)


def _narrow(array: Array, target: pa.DataType) -> Array:
    narrowed = pc.cast(array, target)
    if pc.any(pc.not_equal(pc.is_inf(narrowed), pc.is_inf(array))).as_py():
        raise OverflowError("beyond the largest number of the type")
    return narrowed


def _nearest(array: Array, target: pa.DataType) -> Array:
    # Arrow's own cast of decimals to doubles is off by one in the last place now and then.
    nearest = pc.cast(pc.cast(array, pa.string()), target)
    if pc.any(pc.is_inf(nearest)).as_py():
        raise OverflowError("beyond the largest number of the type")
    return nearest


def _integer_to_decimal(array: Array, target: pa.DataType) -> Array:
    return pc.cast(pc.cast(array, pa.decimal128(20)), target)


def _float_to_decimal(array: Array, target: pa.DataType) -> Array:
    # The digits people see: 0.1 is 0.1 and not the binary fraction nearest to it.
    return pc.cast(pc.cast(array, pa.string()), target)


def _midnight_to_date(array: Array, target: pa.DataType) -> Array:
    days = pc.cast(array, target)
    if pc.any(pc.not_equal(pc.cast(days, array.type), array)).as_py():
        raise ValueError("a time of day")
    return days


def _in_range(array: Array) -> Array:
    """The column, unless a date or time lies outside the years 1 to 9999."""
    if types.is_date(array.type):
        low, high, numbers = FIRST_DAY, LAST_DAY, pa.int32()
    elif types.is_timestamp(array.type):
        low, high, numbers = FIRST_US, LAST_US, pa.int64()
    else:
        return array
    bounds = pc.min_max(array.cast(numbers))
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    if least is not None and not (low <= least and most <= high):
        raise OverflowError("outside the years 1 to 9999")
    return array


_RULES: dict[Kind, tuple[tuple[Test, Rule], ...]] = {
    "boolean": (),
    "integer": (
        (types.is_integer, _cast),
        (types.is_floating, _cast),
        (types.is_decimal, _cast),
    ),
    "floating": (
        (types.is_integer, _cast),
        (types.is_floating, _narrow),
        (types.is_decimal, _nearest),
    ),
    "decimal": (
        (types.is_decimal, _cast),
        (types.is_integer, _integer_to_decimal),
        (types.is_floating, _float_to_decimal),
        (is_text, _cast),
    ),
    "string": ((is_text, _cast),),
    "binary": ((is_bytes, _cast),),
    "date": ((types.is_date, _cast), (is_naive, _midnight_to_date), (is_text, _cast)),
    "timestamp": (
        (types.is_timestamp, _cast),
        (types.is_date, _cast),
        (is_text, parse_timestamps),
    ),
    "timestamp_ntz": ((is_naive, _cast), (types.is_date, _cast), (is_text, _cast)),
    "interval": ((types.is_duration, _cast), (is_text, _parse_intervals)),
}
