"""INSERT ... VALUES of plain literals, read without an engine."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.expressions import DType
from sqlglot.tokenizer_core import TokenType

from everview.intake.columns import store_column
from everview.intake.kinds import Unfit
from everview.parsing import Statement

_TIMES = {
    DType.DATE: pa.date32(),
    DType.TIMESTAMPTZ: pa.timestamp("us", tz="UTC"),
    DType.TIMESTAMPLTZ: pa.timestamp("us", tz="UTC"),
    DType.TIMESTAMPNTZ: pa.timestamp("us"),
}


class NotPlain(Exception):
    """An expression only the engine can evaluate."""


def plain_rows(statement: Statement, values: exp.Values) -> list[list[Any]] | None:
    """The rows as Python values if all are plain literals, else None."""
    for token in statement.tokens:
        # only the engine reads escapes in strings
        if token.token_type == TokenType.STRING and (
            "\\" in statement.text[token.start : token.end + 1]
        ):
            return None
    try:
        return [[_value(cell) for cell in row.expressions] for row in values.expressions]
    except NotPlain:
        return None


def _value(node: exp.Expr) -> Any:
    if isinstance(node, exp.Literal):
        return node.this if node.is_string else _number(node.this)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and node.this.is_number:
        return -_number(node.this.this)
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.HexString) and len(node.this) % 2 == 0:
        return bytes.fromhex(node.this)
    if isinstance(node, exp.Array) and not node.expressions:  # engines have no type for it
        return []
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        return _time(node.this.this, node.to.this)
    raise NotPlain


def _number(text: str) -> int | float | Decimal:
    """A number of the type that Spark gives it: 1 is whole, 1.0 a DECIMAL, 1e0 a DOUBLE."""
    if text.isdigit():
        return int(text)
    return float(text) if "e" in text.lower() else Decimal(text)


def _time(text: str, type_: DType) -> date | datetime:
    target = _TIMES.get(type_)
    if target is None:
        raise NotPlain
    try:
        value: date | datetime = store_column(pa.array([text], pa.string()), target)[0].as_py()
    except Unfit:
        raise NotPlain from None
    return value
