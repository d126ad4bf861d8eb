"""SQL for expressions of Spark that have no SQL of their own, or an incomplete one.

The optimizer replaces many functions by calls of its own classes, and the text of others leaves out
their options, or that they return NULL instead of failing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from everview.plan.expressions import (
    Tree,
    all_of,
    call,
    cast,
    either,
    field_of,
    null,
    places,
    sql,
    string,
)
from everview.spark.trees import (
    children_of,
    constant_of,
    data_type,
    each,
    kind,
    mode_of,
    sql_type,
)
from everview.sql.catalyst.checking import tried

if TYPE_CHECKING:
    from everview.sql.catalyst.expressions import Expressions

Spell = Callable[["Expressions", Any, list[Tree]], Tree | None]

# expressions that have no name in SQL and change nothing there
PASSING = {
    *("KnownFloatingPointNormalized", "NormalizeNaNAndZero", "KnownNotContainsNull"),
    *("KnownNullable", "KnownNotNull"),
}
# by class and method: the function of SQL, and how many of the arguments it takes
_INVOKED = {
    "Base64.encode": ("base64", 1),
    "Encode.encode": ("encode", 2),
    "StringDecode.decode": ("decode", 2),
    "UrlCodec.encode": ("url_encode", 1),
    "JsonExpressionUtils.lengthOfJsonArray": ("json_array_length", 1),
    "JsonExpressionUtils.jsonObjectKeys": ("json_object_keys", 1),
    "ExpressionImplUtils.isLuhnNumber": ("luhn_check", 1),
    "ExpressionImplUtils.quote": ("quote", 1),
}
_SMALL = ("TINYINT", "SMALLINT")  # for which Sail lacks try_add and the like
_LONGEST = 2**31 - 1  # the length that stands for the rest of a text
_FORGIVING = {
    "Add": "try_add",
    "Subtract": "try_subtract",
    "Multiply": "try_multiply",
    "Divide": "try_divide",
    "Remainder": "try_mod",
}
# substring of a text, from a place, of a length
_START = "CASE WHEN {1} > 0 THEN {1} WHEN {1} < 0 THEN length({0}) + {1} + 1 ELSE 1 END"
_COUNT = f"CAST(greatest(CAST({{2}} AS BIGINT) + least({_START}, 1) - 1, 0) AS INT)"
_PART = f"substring({{0}}, greatest({_START}, 1), {_COUNT})"


def spelled(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    """The expression over children that are trees already, in our words; None if Catalyst's own
    will do."""
    spell = _SPELLINGS.get(kind(expression))
    return None if spell is None else spell(trees, expression, children)


def _static_invoke(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    class_ = expression.staticObject().getSimpleName().removesuffix("$")
    name = f"{class_}.{expression.functionName()}"
    if name == "UrlCodec.decode":
        constants = (child for child in children_of(expression)[1:] if kind(child) == "Literal")
        is_strict = bool(constant_of(next(constants)))
        return call("url_decode" if is_strict else "try_url_decode", children[0])
    function, number = _INVOKED.get(name, ("", 0))
    return call(function, *children[:number]) if function else None


def _invoke(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    evaluator = constant_of(expression.targetObject())
    arguments = children[1:]
    if evaluator is None:
        return None
    if kind(evaluator) == "StructsToJsonEvaluator":
        return call("to_json", *arguments, *_options(evaluator.options()))
    if kind(evaluator) == "ParseUrlEvaluator":
        return call("parse_url" if evaluator.failOnError() else "try_parse_url", *arguments)
    return None


def _options(options: Any) -> list[Tree]:
    """The options of a function as its last argument, if there are any."""
    pairs = [string(str(text)) for option in each(options) for text in (option._1(), option._2())]
    return [call("map", *pairs)] if pairs else []


def _of_schema(name: str) -> Spell:
    """A function whose text leaves out the schema that it reads."""

    def spell(trees: Expressions, expression: Any, children: list[Tree]) -> Tree:
        schema = string(str(expression.schema().sql()))
        return call(name, children[0], schema, *_options(expression.options()))

    return spell


def _with_options(name: str) -> Spell:
    def spell(trees: Expressions, expression: Any, children: list[Tree]) -> Tree:
        return call(name, *children, *_options(expression.options()))

    return spell


def _forgiving(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    """Arithmetic that returns NULL instead of failing."""
    if mode_of(expression) != "TRY":
        return None
    if kind(expression) == "Divide" and kind(data_type(expression)).startswith("Double"):
        divisor = sql("nullif({0}, 0)", children[1])
        return trees.forms.applied(expression, [children[0], divisor])
    tree = call(_FORGIVING[kind(expression)], *children)
    if kind(expression) in ("Add", "Subtract", "Multiply") and sql_type(expression) in _SMALL:
        return either(tree, tried(kind(expression), children, sql_type(expression)))
    return tree


def _element(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    if kind(children_of(expression)[0]) == "StringSplitSQL":
        return call("split_part", *children[0].parts(), children[1])
    if expression.failOnError():
        return None
    element = call("try_element_at", *children)
    if expression.defaultValueOutOfBound().isEmpty():
        return element
    # split_part of constants, of which Spark's optimizer has made an array
    none = "{1} IS NOT NULL AND {2} IS NOT NULL THEN ''"
    return sql(f"coalesce({{0}}, CASE WHEN {none} END)", element, *children)


def _item(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    return None if expression.failOnError() else call("get", *children)


def _timestamp(trees: Expressions, expression: Any, children: list[Tree]) -> Tree:
    name = "to_timestamp_ntz" if _is_without_zone(expression) else "to_timestamp"
    return call(name if expression.failOnError() else "try_to_timestamp", *children)


def _microseconds(trees: Expressions, expression: Any, children: list[Tree]) -> Tree:
    """Conversion between moments and microseconds, for time windows."""
    if not kind(data_type(expression)).startswith("Timestamp"):
        return call("unix_micros", cast(children[0], "TIMESTAMP"))
    moment = call("timestamp_micros", *children)
    return cast(moment, "TIMESTAMP_NTZ") if _is_without_zone(expression) else moment


def _is_without_zone(expression: Any) -> bool:
    return kind(data_type(expression)).startswith("TimestampNTZ")


def _seconds(trees: Expressions, expression: Any, children: list[Tree]) -> Tree:
    return sql("date_part('SECOND', {0})", *children)


def _replaced(trees: Expressions, expression: Any, children: list[Tree]) -> Tree:
    """regexp_replace, from the beginning unless it names another place."""
    is_from_start = constant_of(children_of(expression)[-1]) == 1
    return call("regexp_replace", *(children[:-1] if is_from_start else children))


def _is_nan(trees: Expressions, expression: Any, children: list[Tree]) -> Tree:
    """isnan(NULL) is false in Spark, and NULL in other engines."""
    return sql("coalesce(isnan({0}), false)", *children)


def _contains(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    """Whether an array has a value; NULL if it has a NULL instead."""
    if not data_type(children_of(expression)[0]).containsNull():
        return None
    array, value = children
    overlaps = call("arrays_overlap", array, call("array", value))
    return call("if", call("isnull", value), null("BOOLEAN"), overlaps)


def _equal(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    """Compare structs by their fields, in which NULL equals NULL: not all engines do so."""
    types = [data_type(child) for child in children_of(expression)]
    if kind(types[0]) != "StructType":
        return None
    first, second = (sql("({0})", child) for child in children)
    if kind(expression) == "EqualTo":
        return _unless_null(first, second, types[0], types[1])
    return _same(first, second, types[0], types[1])


def _unless_null(first: Tree, second: Tree, first_type: Any, second_type: Any) -> Tree:
    """Whether two values are equal; NULL if one of them is NULL."""
    same = _same(first, second, first_type, second_type)
    known = "{0} IS NOT NULL AND {1} IS NOT NULL"
    return sql(f"(CASE WHEN {known} THEN {{2}} END)", first, second, same)


def _same(first: Tree, second: Tree, first_type: Any, second_type: Any) -> Tree:
    """Whether two values are equal, or both NULL."""
    if kind(first_type) != "StructType":
        return sql("{0} <=> {1}", first, second)
    parts: list[Tree] = [sql("({0} IS NULL) = ({1} IS NULL)", first, second)]
    for first_field, second_field in zip(first_type.fields(), second_type.fields(), strict=True):
        fields = field_of(first, first_field.name()), field_of(second, second_field.name())
        parts.append(_same(*fields, first_field.dataType(), second_field.dataType()))
    return sql("({0})", all_of(parts))


def _in(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    """Whether a struct equals one of several."""
    type_, *types = map(data_type, children_of(expression))
    if kind(type_) != "StructType":
        return None
    value, *candidates = (sql("({0})", child) for child in children)
    pairs = zip(candidates, types, strict=True)
    comparisons = [
        _unless_null(value, candidate, type_, candidate_type) for candidate, candidate_type in pairs
    ]
    return sql(f"({places(len(comparisons), ' OR ')})", *comparisons)


def _substring(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    """A substring. Engines differ if it begins before the text, or has a length below 0 or NULL."""
    place, length = map(constant_of, children_of(expression)[1:])
    is_plain = place is not None and length is not None and length >= 0
    if is_plain and (place >= 0 or length == _LONGEST):
        return None
    parts = [sql("({0})", child) for child in children]
    known = "{1} IS NOT NULL AND {2} IS NOT NULL"
    return sql(f"(CASE WHEN {known} THEN {_PART} END)", *parts)


def _padded(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    """A padded text. A length below 0 counts as 0; Sail fails on it."""
    length = children_of(expression)[1]
    if kind(length) == "Literal" and (constant_of(length) or 0) >= 0:
        return None
    text, wanted_length, padding = (sql("({0})", child) for child in children)
    positive_length = sql("CASE WHEN {0} < 0 THEN 0 ELSE {0} END", wanted_length)
    return call(str(expression.prettyName()), text, positive_length, padding)


def _located(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    """locate. An empty text is found at place 1, wherever the search begins."""
    if constant_of(children_of(expression)[2]) == 1:
        return None
    return sql(
        "(CASE WHEN {2} IS NULL THEN 0 WHEN {0} IS NULL OR {1} IS NULL THEN NULL WHEN "
        "{2} < 1 THEN 0 WHEN {0} = '' THEN 1 ELSE locate({0}, {1}, {2}) END)",
        *(sql("({0})", child) for child in children),
    )


def _struct(trees: Expressions, expression: Any, children: list[Tree]) -> Tree:
    return call("named_struct", *children)


_SPELLINGS: dict[str, Spell] = {
    "StaticInvoke": _static_invoke,
    "Invoke": _invoke,
    "JsonToStructs": _of_schema("from_json"),
    "CsvToStructs": _of_schema("from_csv"),
    "StructsToCsv": _with_options("to_csv"),
    "StructsToXml": _with_options("to_xml"),
    "ElementAt": _element,
    "GetArrayItem": _item,
    "GetTimestamp": _timestamp,
    "PreciseTimestampConversion": _microseconds,
    "SecondWithFraction": _seconds,
    "RegExpReplace": _replaced,
    "IsNaN": _is_nan,
    "ArrayContains": _contains,
    "CreateNamedStruct": _struct,
    "Substring": _substring,
    **dict.fromkeys(["StringLPad", "StringRPad"], _padded),
    "StringLocate": _located,
    "EqualTo": _equal,
    "EqualNullSafe": _equal,
    "In": _in,
    **dict.fromkeys(_FORGIVING, _forgiving),
}
