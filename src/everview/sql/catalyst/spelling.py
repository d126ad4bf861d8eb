"""What Spark computes but has no SQL for, or less of it than there is: said in functions of SQL.

The optimizer replaces many functions by calls of its own classes, and the text of others leaves out
their options, or that they forgive what fails.
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

# what has no name in SQL and changes nothing there
PASSING = {
    *("KnownFloatingPointNormalized", "NormalizeNaNAndZero", "KnownNotContainsNull"),
    *("KnownNullable", "KnownNotNull"),
}
# by class and method: the function, and how many of the arguments are its own
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
_LONGEST = 2**31 - 1  # how long the rest of a text is said to be
_FORGIVING = {
    "Add": "try_add",
    "Subtract": "try_subtract",
    "Multiply": "try_multiply",
    "Divide": "try_divide",
    "Remainder": "try_mod",
}
# of a text, from a place, so many signs
_START = "CASE WHEN {1} > 0 THEN {1} WHEN {1} < 0 THEN length({0}) + {1} + 1 ELSE 1 END"
_COUNT = f"CAST(greatest(CAST({{2}} AS BIGINT) + least({_START}, 1) - 1, 0) AS INT)"
_PART = f"substring({{0}}, greatest({_START}, 1), {_COUNT})"


def spelled(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    """The expression over children that are trees already, in words of its own; None if Catalyst's
    say it all."""
    spell = _SPELLINGS.get(kind(expression))
    return None if spell is None else spell(trees, expression, children)


def _static_invoke(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    of = expression.staticObject().getSimpleName().removesuffix("$")
    name = f"{of}.{expression.functionName()}"
    if name == "UrlCodec.decode":
        constants = (one for one in children_of(expression)[1:] if kind(one) == "Literal")
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
    """The options of a function as its last argument; nothing where there are none."""
    pairs = [string(str(text)) for one in each(options) for text in (one._1(), one._2())]
    return [call("map", *pairs)] if pairs else []


def _of_schema(name: str) -> Spell:
    """A function whose text leaves out the schema that it reads by."""

    def spell(trees: Expressions, expression: Any, children: list[Tree]) -> Tree:
        schema = string(str(expression.schema().sql()))
        return call(name, children[0], schema, *_options(expression.options()))

    return spell


def _with_options(name: str) -> Spell:
    def spell(trees: Expressions, expression: Any, children: list[Tree]) -> Tree:
        return call(name, *children, *_options(expression.options()))

    return spell


def _forgiving(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    """Arithmetic that gives NULL where it would fail."""
    if mode_of(expression) != "TRY":
        return None
    if kind(expression) == "Divide" and kind(data_type(expression)).startswith("Double"):
        divisor = sql("nullif({0}, 0)", children[1])
        return trees.forms.applied(expression, [children[0], divisor])
    made = call(_FORGIVING[kind(expression)], *children)
    if kind(expression) in ("Add", "Subtract", "Multiply") and sql_type(expression) in _SMALL:
        return either(made, tried(kind(expression), children, sql_type(expression)))
    return made


def _element(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    if kind(children_of(expression)[0]) == "StringSplitSQL":
        return call("split_part", *children[0].parts(), children[1])
    return None if expression.failOnError() else call("try_element_at", *children)


def _item(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    return None if expression.failOnError() else call("get", *children)


def _timestamp(trees: Expressions, expression: Any, children: list[Tree]) -> Tree:
    name = "to_timestamp_ntz" if _is_without_zone(expression) else "to_timestamp"
    return call(name if expression.failOnError() else "try_to_timestamp", *children)


def _microseconds(trees: Expressions, expression: Any, children: list[Tree]) -> Tree:
    """Between moments and microseconds, as time windows are computed."""
    if not kind(data_type(expression)).startswith("Timestamp"):
        return call("unix_micros", cast(children[0], "TIMESTAMP"))
    moment = call("timestamp_micros", *children)
    return cast(moment, "TIMESTAMP_NTZ") if _is_without_zone(expression) else moment


def _is_without_zone(expression: Any) -> bool:
    return kind(data_type(expression)).startswith("TimestampNTZ")


def _seconds(trees: Expressions, expression: Any, children: list[Tree]) -> Tree:
    return sql("date_part('SECOND', {0})", *children)


def _replaced(trees: Expressions, expression: Any, children: list[Tree]) -> Tree:
    """regexp_replace, from the beginning unless another place is said."""
    is_from_start = constant_of(children_of(expression)[-1]) == 1
    return call("regexp_replace", *(children[:-1] if is_from_start else children))


def _is_nan(trees: Expressions, expression: Any, children: list[Tree]) -> Tree:
    """NULL is a number to Spark, and NULL to others."""
    return sql("coalesce(isnan({0}), false)", *children)


def _contains(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    """Whether an array has a value is unknown if it has a NULL instead."""
    if not data_type(children_of(expression)[0]).containsNull():
        return None
    array, value = children
    found = call("arrays_overlap", array, call("array", value))
    return call("if", call("isnull", value), null("BOOLEAN"), found)


def _equal(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    """Structs by their fields, in which NULL equals NULL: not so to all engines."""
    types = [data_type(child) for child in children_of(expression)]
    if kind(types[0]) != "StructType":
        return None
    one, other = (sql("({0})", child) for child in children)
    if kind(expression) == "EqualTo":
        return _unless_null(one, other, types[0], types[1])
    return _same(one, other, types[0], types[1])


def _unless_null(one: Tree, other: Tree, type_: Any, of_other: Any) -> Tree:
    """Whether two values are equal, unknown if one of them is NULL."""
    same = _same(one, other, type_, of_other)
    known = "{0} IS NOT NULL AND {1} IS NOT NULL"
    return sql(f"(CASE WHEN {known} THEN {{2}} END)", one, other, same)


def _same(one: Tree, other: Tree, type_: Any, of_other: Any) -> Tree:
    """Whether two values are equal, or both NULL."""
    if kind(type_) != "StructType":
        return sql("{0} <=> {1}", one, other)
    parts: list[Tree] = [sql("({0} IS NULL) = ({1} IS NULL)", one, other)]
    for mine, theirs in zip(type_.fields(), of_other.fields(), strict=True):
        fields = field_of(one, mine.name()), field_of(other, theirs.name())
        parts.append(_same(*fields, mine.dataType(), theirs.dataType()))
    return sql("({0})", all_of(parts))


def _in(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    """A struct that equals one of several."""
    type_, *types = map(data_type, children_of(expression))
    if kind(type_) != "StructType":
        return None
    one, *others = (sql("({0})", child) for child in children)
    pairs = zip(others, types, strict=True)
    found = [_unless_null(one, other, type_, of_other) for other, of_other in pairs]
    return sql(f"({places(len(found), ' OR ')})", *found)


def _substring(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    """From a place before the beginning, of a length below 0, or of NULL: others differ there."""
    place, length = map(constant_of, children_of(expression)[1:])
    is_plain = place is not None and length is not None and length >= 0
    if is_plain and (place >= 0 or length == _LONGEST):
        return None
    given = [sql("({0})", child) for child in children]
    known = "{1} IS NOT NULL AND {2} IS NOT NULL"
    return sql(f"(CASE WHEN {known} THEN {_PART} END)", *given)


def _padded(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    """A length below 0 is none; Sail fails on it."""
    length = children_of(expression)[1]
    if kind(length) == "Literal" and (constant_of(length) or 0) >= 0:
        return None
    of, long, with_ = (sql("({0})", child) for child in children)
    some = sql("CASE WHEN {0} < 0 THEN 0 ELSE {0} END", long)
    return call(str(expression.prettyName()), of, some, with_)


def _located(trees: Expressions, expression: Any, children: list[Tree]) -> Tree | None:
    """Nothing is found at the first place, wherever it is looked for from."""
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
