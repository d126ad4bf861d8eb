"""Functions of texts and bytes, JSON and URLs that Sail answers otherwise than Spark."""

from __future__ import annotations

from everview.plan.expressions import Refused, Tree, sql
from everview.spark.trees import children_of, constant_of, kind
from everview.sql.catalyst.sail.operation import Operation, Rule, refuse

_LINE = 57  # bytes that are a line of base64


def _split(operation: Operation) -> Tree | None:
    """split by an empty text; a pattern that is a constant is known not to be empty."""
    pattern = operation.literal(1)
    if pattern is not None and str(pattern.toString()):
        return None
    ok = sql("{0} <> ''", operation.parts[1])
    return operation.unless(ok, "Sail splits by an empty text otherwise")


def _base64(operation: Operation) -> Tree:
    why = "Sail writes base64 of more than a line otherwise"
    return operation.unless(sql(f"octet_length({{0}}) <= {_LINE}", operation.parts[0]), why)


def _elt(operation: Operation) -> Tree:
    ok = sql(f"{{0}} BETWEEN 1 AND {len(operation.parts) - 1}", operation.parts[0])
    return operation.unless(ok, "[INVALID_ARRAY_INDEX] elt has no argument of this number")


def _refuse_bytes(what: str) -> Rule:
    return lambda operation: Refused(what) if operation.types[0] == "BINARY" else None


def _json(operation: Operation) -> Tree:
    """from_json: an empty text is no JSON."""
    return sql("CASE WHEN trim({0}) <> '' THEN {1} END", operation.parts[0], operation.plain)


def _levenshtein(operation: Operation) -> Tree | None:
    if len(operation.parts) < 3:
        return None
    why = "Sail gives NULL where the threshold of levenshtein is NULL"
    return operation.unless(sql("({0} IS NOT NULL)", operation.parts[2]), why)


def _part_of_url(operation: Operation) -> Tree | None:
    if not constant_of(operation.expression.targetObject()).failOnError():
        return None
    return Refused("Sail gives NULL for what is no URL")


def _part_of_text(operation: Operation) -> Tree | None:
    """split_part: there is no text where there is no such part; Sail gives NULL."""
    if kind(children_of(operation.expression)[0]) != "StringSplitSQL":
        return None
    text, separator = operation.parts[0].parts()
    none = "{1} IS NOT NULL AND {2} IS NOT NULL AND {3} IS NOT NULL THEN ''"
    arguments = operation.plain, text, separator, operation.parts[1]
    return sql(f"coalesce({{0}}, CASE WHEN {none} END)", *arguments)


RULES: dict[str, Rule] = {
    "StringSplit": _split,
    "Base64.encode": _base64,
    "Elt": _elt,
    "JsonToStructs": _json,
    "Substring": _refuse_bytes("Sail counts the characters of BINARY, and not its bytes"),
    "InitCap": refuse("Sail begins a word after any sign"),
    "JsonExpressionUtils.lengthOfJsonArray": refuse("Sail counts what is no array"),
    "Levenshtein": _levenshtein,
    "ParseUrlEvaluator": _part_of_url,
    "ElementAt": _part_of_text,
}
