"""Conditions that are tested while a table is read, before an engine sees its rows: only those for
which Arrow's answer is exactly Spark's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_COMPARE: dict[str, Callable[..., pa.Array]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True)
class Condition:
    """Compares a column of a table with another one, or with a value. IN has several values, IS
    NULL and IS NOT NULL have none. Values are texts of their column's type."""

    column: str
    comparison: str
    values: tuple[str, ...] = ()
    other: str | None = None

    def __str__(self) -> str:
        texts = [value if _NUMBER.fullmatch(value) else f"'{value}'" for value in self.values]
        operands = f"({', '.join(texts)})" if self.comparison == "IN" else "".join(texts)
        return " ".join(filter(None, [self.column, self.comparison, operands, self.other]))

    def columns(self) -> list[str]:
        return [self.column] if self.other is None else [self.column, self.other]


def is_compared(arrow: pa.DataType) -> bool:
    """Whether values of the type can be compared here. Floats can't, as Arrow orders NaN otherwise,
    nor can times."""
    return _parser(arrow) is not None


def value(text: str, arrow: pa.DataType) -> pa.Scalar[Any] | None:
    """The value of exactly this type that a text stands for; None if there is none."""
    parser = _parser(arrow)
    try:
        return None if parser is None else pa.scalar(parser(text), arrow)
    except (ValueError, ArithmeticError):
        return None


def _parser(arrow: pa.DataType) -> Callable[[str], Any] | None:
    """A function that parses a text as a value of the type."""
    if pa.types.is_integer(arrow):
        return int
    if pa.types.is_decimal(arrow):
        return Decimal
    if pa.types.is_date32(arrow):
        return date.fromisoformat
    return str if pa.types.is_string(arrow) else None


def passing(conditions: Sequence[Condition], columns: Mapping[str, pa.Array]) -> pa.Array:
    """For each row whether all conditions hold; there must be at least one."""
    results = [_holds(condition, columns) for condition in conditions]
    return reduce(pc.and_, [pc.fill_null(result, False) for result in results])


def _holds(condition: Condition, columns: Mapping[str, pa.Array]) -> pa.Array:
    column = columns[condition.column]
    if condition.comparison == "IS NULL":
        return column.is_null()
    if condition.comparison == "IS NOT NULL":
        return column.is_valid()
    if condition.other is not None:
        return _COMPARE[condition.comparison](column, columns[condition.other])
    values = [value(text, column.type) for text in condition.values]
    if condition.comparison == "IN":
        return pc.is_in(column, value_set=pa.array(values, column.type))
    return _COMPARE[condition.comparison](column, values[0])
