"""Rows as JSON, both ways and without loss.

Decimals, dates, timestamps and intervals are strings, BINARY is base64, and the floats JSON has no
number for are "NaN", "Infinity" and "-Infinity". Numbers in JSON are read digit by digit, never as
floats.
An ARRAY is an array, a STRUCT an object, a MAP an object or an array of pairs; it is written as an
object if its keys are STRING.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from everview.intake.columns import in_halves
from everview.intake.kinds import Array, Unfit, kind
from everview.intake.nested import parts_of_values, store_parts
from everview.intake.text import store_text
from everview.intake.values import store_values
from everview.schema import is_nested

_decoder = json.JSONDecoder(parse_float=Decimal)
_NO_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def parse_document(text: str | bytes) -> Any:
    """The JSON value of a text or of its UTF-8 bytes; raises ValueError."""
    try:
        return _decoder.decode(text if isinstance(text, str) else text.decode())
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:  # from int(), which has a limit
        raise ValueError("a number has too many digits") from None


def format_document(row: Mapping[str, Any], schema: pa.Schema | None = None) -> str:
    """One row as one line of JSON; the schema tells maps from arrays of pairs."""
    return format_value(row, None if schema is None else pa.struct(list(schema)))


def format_value(value: Any, arrow: pa.DataType | None = None) -> str:
    """A value as JSON; if no table can store its type, what Python's str gives."""
    return json.dumps(json_value(value, arrow), ensure_ascii=False, default=str)


def store_json(values: list[Any], target: pa.DataType) -> pa.ChunkedArray:
    """JSON values as a column of the stored type. Raises `Unfit`."""
    if is_nested(target):
        return store_parts(parts_of_values(values, target), target, store_json)
    if kind(target) == "binary":
        return store_text(in_halves(values, lambda part: pa.array(part, pa.string())), target)
    if kind(target) == "floating":
        values = [_NO_NUMBERS.get(v, v) if isinstance(v, str) else v for v in values]
    return store_values(values, target)


def store_json_text(array: Array, target: pa.DataType) -> pa.ChunkedArray:
    """Text that is JSON, or its UTF-8 bytes, as a column of the stored type. Raises `Unfit`."""
    values = []
    for position, text in enumerate(array.to_pylist()):
        try:
            values.append(None if text is None else parse_document(text))
        except ValueError:
            readable = text if isinstance(text, str) else text.decode(errors="replace")
            raise Unfit(position, readable) from None
    return store_json(values, target)


def json_value(value: Any, arrow: pa.DataType | None = None) -> Any:
    """The value as JSON has it; text where JSON has no such value, also in arrays, structs and
    maps."""
    if isinstance(value, Mapping):
        types = {} if arrow is None else {field.name: field.type for field in arrow}
        return {name: json_value(part, types.get(name)) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return _json_list(value, arrow)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return format_interval(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def format_interval(value: timedelta) -> str:
    """An interval as SQL writes it: -1 02:03:04.5 is a day and some hours ago."""
    size = abs(value)
    minutes, seconds = divmod(size.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    micros = f".{size.microseconds:06}".rstrip("0").rstrip(".")
    sign = "-" if value < timedelta() else ""
    return f"{sign}{size.days} {hours:02}:{minutes:02}:{seconds:02}{micros}"


def _json_list(value: Sequence[Any], arrow: pa.DataType | None) -> Any:
    if arrow is None or not pa.types.is_map(arrow):
        items = None if arrow is None else arrow.value_type
        return [json_value(item, items) for item in value]
    pairs = [[json_value(k, arrow.key_type), json_value(v, arrow.item_type)] for k, v in value]
    return dict(pairs) if arrow.key_type == pa.string() else pairs
