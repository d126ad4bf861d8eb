"""Rows as JSON, both ways and without loss.

Decimals, dates and timestamps are strings, BINARY is base64, and the floats JSON has no number for
are "NaN", "Infinity" and "-Infinity". Numbers in JSON are read digit by digit, never as floats.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from everview.intake.columns import in_halves
from everview.intake.kinds import kind
from everview.intake.text import store_text
from everview.intake.values import store_values

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


def format_document(row: Mapping[str, Any]) -> str:
    """One row as one line of JSON."""
    values = {name: json_value(value) for name, value in row.items()}
    return json.dumps(values, ensure_ascii=False, default=_nested_value)


def store_json(values: list[Any], target: pa.DataType) -> pa.ChunkedArray:
    """JSON values as a column of the stored type. Raises `Unfit`."""
    if kind(target) == "binary":
        return store_text(in_halves(values, lambda part: pa.array(part, pa.string())), target)
    if kind(target) == "floating":
        values = [_NO_NUMBERS.get(v, v) if isinstance(v, str) else v for v in values]
    return store_values(values, target)


def _nested_value(value: Any) -> Any:
    """What queries may return inside arrays and structs, and types no table stores."""
    converted = json_value(value)
    return str(value) if converted is value else converted


def json_value(value: Any) -> Any:
    """What JSON has no word for, as text."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
