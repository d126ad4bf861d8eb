"""Casts that Sail answers otherwise than Spark."""

from __future__ import annotations

from everview.plan.expressions import Refused, Tree, sql
from everview.spark.trees import mode_of
from everview.sql.catalyst.checking import whole_seconds
from everview.sql.catalyst.sail.operation import REALS, Operation, Rule
from everview.sql.catalyst.sail.times import seconds_as_moment


def _cast(operation: Operation) -> Tree | None:
    (source,), target = operation.types, operation.type
    is_nested = source.startswith(("ARRAY", "MAP", "STRUCT"))
    if is_nested and "STRING" in target and source != target:
        return Refused("Sail writes NULLs and doubles in arrays, maps and structs otherwise")
    if source in REALS and target == "STRING":
        return _text_of_real(operation)
    if source == "BIGINT" and target == "TIMESTAMP":
        return seconds_as_moment(operation)
    if source == "BIGINT" and target.startswith("INTERVAL"):
        return Refused("Sail wraps around where a number is too large for an interval")
    if mode_of(operation.expression) == "TRY" and target.startswith("DECIMAL"):
        if source == "STRING":
            return Refused("Sail's try_cast to DECIMAL does not read exponents")
        if source in (*REALS, "TIMESTAMP") or source.startswith("INTERVAL"):
            return Refused(f"Sail's try_cast from {source} to DECIMAL has other digits")
    if source == "TIMESTAMP" and target == "BIGINT":
        return whole_seconds(operation.parts[0])
    if source == "BINARY" and mode_of(operation.expression) == "TRY":
        return Refused("Sail has no STRING for bytes that are no UTF-8")
    return None


def _text_of_real(operation: Operation) -> Tree:
    infinite = (
        "WHEN {0} = CAST('Infinity' AS DOUBLE) THEN 'Infinity' "
        "WHEN {0} = CAST('-Infinity' AS DOUBLE) THEN '-Infinity'"
    )
    fine = "({0} = 0 OR isnan({0}) OR (abs({0}) >= 1e-3D AND abs({0}) < 1e7D))"
    why = "Sail writes doubles below 0.001, and from 10000000 on, otherwise than Spark"
    return operation.unless(sql(fine, *operation.parts), why, None, sql(infinite, *operation.parts))


RULES: dict[str, Rule] = {
    "Cast": _cast,
}
