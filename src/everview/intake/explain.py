"""Why a value doesn't fit its column, in the words of an error message."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from everview.intake.kinds import Kind, integer_range, kind
from everview.schema import sql_name

SHOWN = 60
_ZONE = re.compile(r"\d[T ].*(Z|[+-]\d\d(:?\d\d)?)$")
_ZONED = "it has a time zone: convert it to local time without one, or use TIMESTAMP"


def misfit(value: Any, target: pa.DataType) -> str:
    """'abc' is not a DECIMAL(12,2); pass ..."""
    return (
        f"{short_repr(value)} is not {_article(target)}; {_REMEDIES[kind(target)](value, target)}"
    )


def short_repr(value: Any) -> str:
    """The value as Python writes it, shortened."""
    if isinstance(value, Decimal | datetime | date):
        return str(value)
    if isinstance(value, str | bytes) and len(value) > SHOWN:
        return f"{value[:SHOWN]!r}... ({len(value):,} long)"
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _article(target: pa.DataType) -> str:
    name = sql_name(target)
    return f"an {name}" if name[0] in "AI" else f"a {name}"


def _number(value: Any) -> Decimal | None:
    """The finite number that a number, or text of one, stands for."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _decimals(number: Decimal) -> int:
    digits, exponent = number.as_tuple()[1:]
    trailing = len(digits) - len(str(int("".join(map(str, digits)))).rstrip("0"))
    return max(0, -int(exponent) - trailing) if number else 0


def _boolean(value: Any, target: pa.DataType) -> str:
    return "pass True or False" if not isinstance(value, str) else "write true or false"


def _integer(value: Any, target: pa.DataType) -> str:
    number = _number(value)
    if number is not None and _decimals(number):
        return "it has a fraction: round it first"
    low, high = integer_range(target)
    if number is not None and not low <= number <= high:
        return f"it is outside {low} to {high}: use a wider type"
    return "pass a whole number" + _not_text(value)


def _floating(value: Any, target: pa.DataType) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return "its digits don't all fit: pass a float to round it, or use DECIMAL"
    if _number(value) is not None and not isinstance(value, str):
        return "it is too large: use a wider type"
    return "pass a number" + _not_text(value)


def _not_text(value: Any) -> str:
    return ", not text" if isinstance(value, str) and _number(value) is not None else ""


def _decimal(value: Any, target: pa.DataType) -> str:
    number = _number(value)
    if number is None:
        return "pass a Decimal, an int, or text such as '9.90'"
    if _decimals(number) > target.scale:
        return f"it has more than {target.scale} decimals: round it first"
    if number.adjusted() + 1 > target.precision - target.scale:
        whole_digits = target.precision - target.scale
        return f"it has more than {whole_digits} digits before the point: use a wider type"
    return "write plain digits, such as '9.90'"


def _string(value: Any, target: pa.DataType) -> str:
    if isinstance(value, bytes):
        return f"{'it is not UTF-8: ' if not _is_utf8(value) else ''}decode it to text first"
    if isinstance(value, str) and not _is_unicode(value):
        return "it has lone surrogates and so is not valid Unicode"
    if isinstance(value, str):
        return "it is in a column of another Arrow type: cast that to string"
    return "pass a str"


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _binary(value: Any, target: pa.DataType) -> str:
    return "pass bytes, or write base64 in files and on the command line"


def _date(value: Any, target: pa.DataType) -> str:
    if isinstance(value, datetime):
        zone = "a time zone" if value.tzinfo else "a time of day"
        return f"it has {zone}: pass its date"
    return "pass a date from 0001-01-01 to 9999-12-31, or text such as '2024-12-31'"


def _timestamp(value: Any, target: pa.DataType) -> str:
    if getattr(value, "nanosecond", 0):
        return "it has nanoseconds and the type has microseconds: round it first"
    if isinstance(value, datetime) and value.tzinfo and target.tz is None:
        return _ZONED
    if isinstance(value, str) and target.tz is None and _ZONE.search(value):
        return _ZONED
    example = "2024-12-31 23:59:59.5" + ("+01:00" if target.tz else "")
    return f"pass a datetime of the years 1 to 9999, or text such as '{example}'"


def _interval(value: Any, target: pa.DataType) -> str:
    if getattr(value, "nanoseconds", 0):
        return "it has nanoseconds and the type has microseconds: round it first"
    return "pass a timedelta, or text of days and time such as '1 02:03:04.5'"


def _array(value: Any, target: pa.DataType) -> str:
    return "pass a list"


def _struct(value: Any, target: pa.DataType) -> str:
    return f"pass a dict with no other fields than {', '.join(field.name for field in target)}"


def _map(value: Any, target: pa.DataType) -> str:
    return "pass a dict, or a list of pairs, with keys that are not NULL and differ"


_REMEDIES: dict[Kind, Callable[[Any, pa.DataType], str]] = {
    "boolean": _boolean,
    "integer": _integer,
    "floating": _floating,
    "decimal": _decimal,
    "string": _string,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp,
    "interval": _interval,
    "array": _array,
    "struct": _struct,
    "map": _map,
}
