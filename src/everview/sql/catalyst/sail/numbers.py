"""Arithmetic, rounding and other functions of numbers that Sail answers otherwise than Spark."""

from __future__ import annotations

from typing import Any

from everview.plan.expressions import Refused, Tree, call, cast, sql
from everview.spark.trees import children_of, constant_of, data_type, kind
from everview.sql.catalyst.sail.operation import REALS, Operation, Rule, refuse, refuse_reals

_MOST_DIGITS = 38  # of a DECIMAL
_OF_BIGDECIMAL = 34  # digits to which Java rounds when it negates


def _decimal(operation: Operation) -> Tree | None:
    """Decimals that may need more digits than there are."""
    if not operation.type.startswith("DECIMAL"):
        return None
    if kind(operation.expression) in ("UnaryMinus", "Abs"):
        digits = data_type(operation.expression).precision()
        return Refused("Spark rounds decimals here") if digits > _OF_BIGDECIMAL else None
    type_ = data_type(operation.expression)
    whole = type_.precision() - type_.scale()
    if whole_digits(operation.expression) <= whole:
        return None
    return operation.unless(
        sql(f"abs({{0}}) < 1e{whole}D", cast(operation.plain, "DOUBLE")),
        f"[NUMERIC_VALUE_OUT_OF_RANGE] a result may not fit {operation.type}",
    )


def whole_digits(expression: Any) -> int:
    """How many digits a decimal needs before its point to hold every result."""
    type_ = data_type(expression)
    name, own = kind(expression), 0
    if kind(type_) == "DecimalType":
        own = type_.precision() - type_.scale()
    if name in ("Add", "Subtract"):
        return 1 + max(whole_digits(child) for child in children_of(expression))
    if name == "Multiply":
        return sum(whole_digits(child) for child in children_of(expression))
    if name == "Cast" and kind(data_type(children_of(expression)[0])) == "DecimalType":
        return min(own, whole_digits(children_of(expression)[0]))
    if (known := constant_of(expression)) is not None and own:
        digits = str(known.toString()).lstrip("-").split(".")[0]
        return min(own, len(digits.lstrip("0")))
    return own


def _quotient(operation: Operation) -> Tree | None:
    """A quotient of decimals has as many digits as fit the dividend, which may be too few."""
    if not operation.type.startswith("DECIMAL"):
        return None
    dividend, quotient = (
        data_type(children_of(operation.expression)[0]),
        data_type(operation.expression),
    )
    room = _MOST_DIGITS - (dividend.precision() - dividend.scale())
    if room >= quotient.scale() - 3:
        return None
    return Refused("Sail divides decimals of so many digits less exactly")


def _hash(operation: Operation) -> Tree | None:
    if any("DECIMAL" in type_ for type_ in operation.types):
        return Refused("Sail hashes DECIMAL otherwise")
    return None


def _extreme(operation: Operation) -> Tree | None:
    """greatest or least: among 0.0 and -0.0 it is the first one."""
    if operation.type not in REALS:
        return None
    zeros = [sql("CASE WHEN {0} = 0 THEN {0} END", part) for part in operation.parts]
    first = call("coalesce", *zeros)
    return sql("CASE WHEN {0} = 0 THEN {1} ELSE {0} END", operation.plain, first)


def _rounded(operation: Operation) -> Tree | None:
    """Rounding: a 0 has no sign."""
    if operation.type not in REALS:
        return None
    zero = f"CASE WHEN {{0}} = 0 THEN CAST(0 AS {operation.type}) ELSE {{0}} END"
    return sql(zero, operation.plain)


def _to_even(operation: Operation) -> Tree:
    """rint: a half goes to the even number; Sail moves it away from 0."""
    half = "abs({0} % 1.0D) = 0.5D THEN 2.0D * rint({0} / 2.0D)"
    return sql(f"CASE WHEN {half} ELSE rint({{0}}) END", *operation.parts)


def _sign(operation: Operation) -> Tree:
    """sign: -0.0 stays as it is."""
    return sql("CASE WHEN {0} = 0 THEN {0} ELSE {1} END", *operation.parts, operation.plain)


def _angle(operation: Operation) -> Tree:
    """atan2: -0.0 counts as 0.0."""
    zero = "CASE WHEN {0} = 0 THEN 0.0D ELSE {0} END"
    return call("atan2", *(sql(zero, part) for part in operation.parts))


def _bucket(operation: Operation) -> Tree:
    """Of so many buckets there is none."""
    most = 2**63 - 1
    return sql(f"CASE WHEN {{0}} < {most}L THEN {{1}} END", operation.parts[3], operation.plain)


RULES: dict[str, Rule] = {
    **dict.fromkeys(["Add", "Subtract", "Multiply", "UnaryMinus", "Abs"], _decimal),
    "Divide": _quotient,
    **dict.fromkeys(["Murmur3Hash", "XxHash64"], _hash),
    **dict.fromkeys(["Greatest", "Least"], _extreme),
    "Round": _rounded,
    "Rint": _to_even,
    "BRound": refuse("Sail rounds half to even otherwise"),
    "Signum": _sign,
    "Log1p": refuse("Sail has another log1p near 0"),
    "Atan2": _angle,
    "Conv": refuse("Sail gives NULL for what is not all of a number"),
    "Hypot": refuse("Sail overflows where the result does not"),
    "Logarithm": refuse("Sail has another logarithm of 0 and to the base 0"),
    "FormatNumber": refuse("Sail writes large numbers and infinite ones otherwise"),
    "Pmod": refuse_reals("Sail has another remainder of 0.0, and by 0.0 and infinities"),
    "ShiftRightUnsigned": refuse("Sail shifts by less than 0 or more than 31 otherwise"),
    "TryToNumber": refuse("Sail reads numbers with spaces around them"),
    "WidthBucket": _bucket,
}
