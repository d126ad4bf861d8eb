"""Columns of text, as in CSV files and on command lines, to columns of a stored type.

Numbers and dates may have blanks around them; BINARY is base64; BOOLEAN is true or false, 1 or 0.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from everview.intake.columns import in_halves, store_column
from everview.intake.kinds import Array, Kind, kind


def store_text(array: Array, target: pa.DataType) -> pa.ChunkedArray:
    """Text, or the bytes of UTF-8 text, parsed into the stored type. Raises `Unfit`."""
    if types.is_binary(array.type):
        array = in_halves(array, lambda part: pc.cast(part, pa.string()))
    parse = _PARSERS.get(kind(target))
    if parse is not None:
        return in_halves(array, lambda part: parse(part, target))
    if kind(target) == "string":
        return store_column(array, target)
    return in_halves(array, lambda part: store_column(pc.utf8_trim_whitespace(part), target))


def _parse_integers(array: Array, target: pa.DataType) -> Array:
    text = pc.utf8_trim_whitespace(array)
    if pc.any(pc.match_substring(text, "x", ignore_case=True)).as_py():
        raise ValueError("hexadecimal")
    try:
        return pc.cast(text, target)
    except pa.ArrowInvalid:  # 1.0, as programs write it that have whole numbers as floats
        return pc.cast(pc.replace_substring_regex(text, r"^(-?\d+)\.0*$", r"\1"), target)


def _parse_floats(array: Array, target: pa.DataType) -> Array:
    text = pc.utf8_trim_whitespace(array)
    floats = pc.cast(text, target)
    is_written_infinite = pc.match_substring_regex(text, r"^[+-]?inf(inity)?$", ignore_case=True)
    if pc.any(pc.and_(pc.is_inf(floats), pc.invert(is_written_infinite))).as_py():
        raise OverflowError("beyond the largest number of the type")
    return floats


def _parse_booleans(array: Array, target: pa.DataType) -> Array:
    return pc.cast(pc.utf8_trim_whitespace(array), target)


def _parse_base64(array: Array, target: pa.DataType) -> Array:
    values = array.to_pylist()
    decoded = [None if text is None else base64.b64decode(text, validate=True) for text in values]
    return pa.array(decoded, target)


_PARSERS: dict[Kind, Callable[[Array, pa.DataType], Array]] = {
    "boolean": _parse_booleans,
    "integer": _parse_integers,
    "floating": _parse_floats,
    "binary": _parse_base64,
}
