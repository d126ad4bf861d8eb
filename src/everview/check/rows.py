"""Rows as the checker compares them: multisets of cells by column name.

Decimals, dates, timestamps and bytes are what they are in JSON, except that numbers are numbers.
Doubles that differ in their last digits are the same, for sums of them depend on the order of rows.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from everview.intake.documents import format_value, json_value

Row = tuple[tuple[str, Any], ...]
Rows = Counter[Row]
_CLOSE = 1e-9
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")


def cell(value: Any, is_number: bool = False) -> Any:
    """A value to compare; text in a column of numbers is one."""
    if isinstance(value, str) and is_number and value not in _NO_NUMBERS:
        return Decimal(value)
    if isinstance(value, Decimal) and value.as_tuple().exponent == 0:
        return int(value)
    if isinstance(value, list | dict):
        return format_value(value)
    return value if isinstance(value, Decimal) else json_value(value)


def rows_of(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """Rows with the columns they say they have."""
    return Counter(
        tuple(sorted((name.lower(), cell(value)) for name, value in row.items())) for row in rows
    )


def difference(actual: Rows, expected: Rows) -> tuple[Rows, Rows]:
    """The rows that are missing from those shown, and those shown that are unexpected."""
    if actual == expected:
        return Counter(), Counter()
    missing, unexpected = expected - actual, actual - expected
    _forgive_last_digits(missing, unexpected)
    return +missing, +unexpected


def _forgive_last_digits(missing: Rows, unexpected: Rows) -> None:
    floats = {
        name for row in (*missing, *unexpected) for name, value in row if isinstance(value, float)
    }
    if not floats:
        return
    alike: defaultdict[Row, list[Row]] = defaultdict(list)
    for row in unexpected.elements():
        alike[_without(row, floats)].append(row)
    for row in list(missing.elements()):
        candidates = alike[_without(row, floats)]
        match = next((c for c in candidates if _close(row, c, floats)), None)
        if match is not None:
            candidates.remove(match)
            missing[row] -= 1
            unexpected[match] -= 1


def _without(row: Row, names: set[str]) -> Row:
    return tuple(pair for pair in row if pair[0] not in names)


def _close(row: Row, other: Row, names: set[str]) -> bool:
    cells = dict(other)
    return all(_equal(value, cells.get(name)) for name, value in row if name in names)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, int | float | Decimal) and isinstance(b, int | float | Decimal):
        return math.isclose(a, b, rel_tol=_CLOSE)
    return bool(a == b)
