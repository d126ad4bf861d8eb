"""Functions of arrays and maps that Sail answers otherwise than Spark."""

from __future__ import annotations

from everview.plan.expressions import Refused, Tree, call, sql, string
from everview.spark.trees import children_of, data_type, kind
from everview.sql.catalyst.sail.operation import Operation, Rule, refuse, refuse_reals


def _item(operation: Operation) -> Tree | None:
    if operation.expression.failOnError():
        return None
    return sql("CASE WHEN {0} >= 0 THEN {1} END", operation.parts[1], operation.plain)


def _contains(operation: Operation) -> Tree | None:
    if data_type(children_of(operation.expression)[0]).containsNull():
        return None
    return sql("CASE WHEN {0} IS NOT NULL THEN {1} END", operation.parts[1], operation.plain)


def _overlap(operation: Operation) -> Tree:
    empty = "(size({0}) = 0 AND {1} IS NOT NULL OR size({1}) = 0 AND {0} IS NOT NULL)"
    return sql(f"CASE WHEN {empty} THEN false ELSE {{2}} END", *operation.parts, operation.plain)


def _array_sort(operation: Operation) -> Tree | None:
    is_own = "CASE" in str(children_of(operation.expression)[1].sql()).upper()
    return Refused("Sail sorts by a function otherwise") if is_own else None


def _slice(operation: Operation) -> Tree:
    """A start below 0 counts from the end; Sail takes it otherwise, and allows 0."""
    error = call("raise_error", string("a slice can't start at 0, or have less than 0 elements"))
    cases = [
        sql("WHEN {0} IS NULL OR {1} IS NULL OR {2} IS NULL THEN NULL", *operation.parts),
        sql("WHEN {0} = 0 OR {1} < 0 THEN {2}", *operation.parts[1:], error),
        sql("WHEN {1} < 0 AND size({0}) + {1} < 0 THEN slice({0}, 1, 0)", *operation.parts[:2]),
        sql("WHEN {1} < 0 THEN slice({0}, size({0}) + {1} + 1, {2})", *operation.parts),
    ]
    return sql("CASE {0} {1} {2} {3} ELSE {4} END", *cases, operation.plain)


def _map(operation: Operation) -> Tree | None:
    """map with keys that may be equal or NULL, which stop a view on Spark."""
    children = children_of(operation.expression)[::2]
    keys = [str(child.sql()) for child in children if kind(child) == "Literal"]
    if len(set(keys)) == len(children) and "NULL" not in keys:
        return None
    return Refused("Sail makes maps in which a key comes twice")


RULES: dict[str, Rule] = {
    "GetArrayItem": _item,
    "ArrayContains": _contains,
    "ArraysOverlap": _overlap,
    "ArraySort": _array_sort,
    "Slice": _slice,
    **dict.fromkeys(
        ["ArrayIntersect", "ArrayExcept", "ArrayUnion", "ArrayDistinct", "ArrayMin", "ArrayMax"],
        refuse_reals("Sail tells 0.0 from -0.0 in arrays"),
    ),
    "CreateMap": _map,
    **dict.fromkeys(
        ["MapFromArrays", "MapFromEntries", "MapConcat", "StringToMap", "TransformKeys"],
        refuse("Sail makes maps in which a key comes twice"),
    ),
}
