"""The values of constants in expressions."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from everview.errors import InvalidSchema
from everview.plan.expressions import Lit
from everview.schema import arrow_type

_INTEGER = re.compile(r"(-?\d+)[LSY]?")
_DECIMAL = re.compile(r"(-?\d+(?:\.\d+)?(?:E[+-]?\d+)?)(?:BD)?")
_DOUBLE = re.compile(r"(-?\d+(?:\.\d+)?(?:E[+-]?\d+)?)D")
_DATE = re.compile(r"DATE ?'(\d{4}-\d\d-\d\d)'")
_STRING = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)


def type_of(sql: str) -> pa.DataType | None:
    """The type of a name in SQL; None if no table can have it."""
    try:
        return arrow_type(sql)
    except InvalidSchema:
        return None


def value_of(literal: Lit) -> pa.Scalar | None:
    """The value of a constant; None if it is of a kind that is not read here."""
    type_ = type_of(literal.type)
    if type_ is None or literal.type.upper().startswith(("VARCHAR", "CHAR")):
        return None
    if literal.text == f"CAST(NULL AS {literal.type})":
        return pa.scalar(None, type_)
    value = _parsed(literal.text, type_)
    try:
        return None if value is None else pa.scalar(value, type_)
    except pa.ArrowInvalid:
        return None


def _parsed(text: str, type_: pa.DataType) -> Any:
    if pa.types.is_integer(type_) and (match := _INTEGER.fullmatch(text)):
        return int(match[1])
    if pa.types.is_decimal(type_) and (match := _DECIMAL.fullmatch(text)):
        return Decimal(match[1])
    if pa.types.is_float64(type_) and (match := _DOUBLE.fullmatch(text)):
        return float(match[1])
    if pa.types.is_date32(type_) and (match := _DATE.fullmatch(text)):
        return date.fromisoformat(match[1])
    if pa.types.is_boolean(type_) and text in ("true", "false"):
        return text == "true"
    if pa.types.is_string(type_) and (match := _STRING.fullmatch(text)):
        return re.sub(r"\\(.)", r"\1", match[1], flags=re.DOTALL)
    return None
