"""Functions of moments, dates and intervals that Sail answers otherwise than Spark."""

from __future__ import annotations

from everview.plan.expressions import Refused, Tree, all_of, sql
from everview.sql.catalyst.checking import whole_milliseconds, whole_seconds
from everview.sql.catalyst.sail.operation import Operation, Rule, refuse


def seconds_as_moment(operation: Operation) -> Tree | None:
    """Seconds as a moment."""
    if operation.types[0].startswith(("FLOAT", "DOUBLE", "DECIMAL")):
        return Refused("Sail leaves out fractions of seconds")
    return operation.unless(
        sql("{0} BETWEEN -9223372036854L AND 9223372036854L", operation.parts[0]),
        "[ARITHMETIC_OVERFLOW] these seconds are no TIMESTAMP",
    )


def _milliseconds(operation: Operation) -> Tree:
    return operation.unless(
        sql("{0} BETWEEN -9223372036854775L AND 9223372036854775L", operation.parts[0]),
        "[ARITHMETIC_OVERFLOW] these milliseconds are no TIMESTAMP",
    )


def _moment_as_text(operation: Operation) -> Tree:
    why = "Sail writes years before 0 and after 9999 otherwise"
    return operation.unless(
        sql("{0} BETWEEN -62167219200L AND 253402300799L", operation.parts[0]), why
    )


def _within_nanoseconds(operation: Operation) -> Tree:
    """Functions of moments, which Sail has as nanoseconds since 1970 in 64 bits."""
    typed = zip(operation.parts, operation.types, strict=True)
    moments = [part for part, type_ in typed if type_.startswith(("DATE", "TIMESTAMP"))]
    between = "{0} BETWEEN DATE'1678-01-01' AND DATE'2262-01-01'"
    ok = all_of([sql(between, part) for part in moments])
    known = all_of([sql("{0} IS NOT NULL", part) for part in operation.parts])
    result = sql("CASE WHEN {0} THEN {1} END", known, operation.plain)
    return operation.unless(ok, "Sail wraps around before 1678 and after 2261", result)


def _moment(operation: Operation) -> Tree:
    ok = sql("{0} BETWEEN 1 AND 9999", operation.parts[0])
    return operation.unless(ok, "Sail has no moments in other years than 1 to 9999")


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ["MultiplyDTInterval", "DivideDTInterval"],
        refuse("Sail rounds intervals otherwise, and wraps around"),
    ),
    "SecondsToTimestamp": seconds_as_moment,
    "MillisToTimestamp": _milliseconds,
    "FromUnixTime": _moment_as_text,
    **dict.fromkeys(["TruncTimestamp", "TruncDate", "MonthsBetween"], _within_nanoseconds),
    "MakeDTInterval": refuse("Sail gives NULL for intervals that are too large for it"),
    "UnixSeconds": lambda operation: whole_seconds(operation.parts[0]),
    "UnixMillis": lambda operation: whole_milliseconds(operation.parts[0]),
    "MakeTimestamp": _moment,
}
