"""What Spark computes but has no SQL for, or less of it than there is: said in functions of SQL.

The optimizer replaces many functions by calls of its own classes, and the text of others leaves out
their options, or that they forgive what fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from everview.plan.dialects import either
from everview.schema import quoted
from everview.spark.trees import children_of, each, kind, sql_type
from everview.sql.catalyst.checking import tried

if TYPE_CHECKING:
    from everview.sql.catalyst.expressions import Expressions

Spell = Callable[["Expressions", Any, list[Any]], Any]

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


def spelled(texts: Expressions, expression: Any, children: list[Any]) -> Any | None:
    """The expression, with children that are spelled already, as one that has a text; None if its
    own text says it all."""
    spell = _SPELLINGS.get(kind(expression))
    return None if spell is None else spell(texts, expression, children)


def _static_invoke(texts: Expressions, expression: Any, children: list[Any]) -> Any | None:
    of = expression.staticObject().getSimpleName().removesuffix("$")
    name = f"{of}.{expression.functionName()}"
    if name == "UrlCodec.decode":
        strict = bool(next(_literals(children[1:])))
        return texts.function("url_decode" if strict else "try_url_decode", children[:1])
    function, number = _INVOKED.get(name, ("", 0))
    return texts.function(function, children[:number]) if function else None


def _invoke(texts: Expressions, expression: Any, children: list[Any]) -> Any | None:
    target = expression.targetObject()
    evaluator = target.value() if kind(target) == "Literal" else None
    arguments = children[1:]
    if evaluator is None:
        return None
    if kind(evaluator) == "StructsToJsonEvaluator":
        return texts.function("to_json", [*arguments, *_options(texts, evaluator.options())])
    if kind(evaluator) == "ParseUrlEvaluator":
        name = "parse_url" if evaluator.failOnError() else "try_parse_url"
        return texts.function(name, arguments)
    return None


def _literals(expressions: list[Any]) -> Any:
    return (one.value() for one in expressions if kind(one) == "Literal")


def _options(texts: Expressions, options: Any) -> list[Any]:
    """The options of a function as its last argument; nothing where there are none."""
    pairs = [text for one in each(options) for text in (one._1(), one._2())]
    return [texts.function("map", [texts.constant(text) for text in pairs])] if pairs else []


def _of_schema(name: str) -> Spell:
    """A function whose text leaves out the schema that it reads by."""

    def spell(texts: Expressions, expression: Any, children: list[Any]) -> Any:
        schema = texts.constant(str(expression.schema().sql()))
        options = _options(texts, expression.options())
        return texts.function(name, [children[0], schema, *options])

    return spell


def _with_options(name: str) -> Spell:
    def spell(texts: Expressions, expression: Any, children: list[Any]) -> Any:
        return texts.function(name, [*children, *_options(texts, expression.options())])

    return spell


def _forgiving(texts: Expressions, expression: Any, children: list[Any]) -> Any | None:
    """Arithmetic that gives NULL where it would fail."""
    if str(expression.evalMode()) != "TRY":
        return None
    if kind(expression) == "Divide" and kind(expression.dataType()).startswith("Double"):
        divisor = texts.function("nullif", [children[1], texts.constant(0)])
        return expression.withNewChildren(texts.sequence([children[0], divisor]))
    made = texts.function(_FORGIVING[kind(expression)], children)
    if kind(expression) in ("Add", "Subtract", "Multiply") and sql_type(expression) in _SMALL:
        parts = [str(child.sql()) for child in children]
        sail = tried(kind(expression), parts, sql_type(expression))
        return texts.written(either(str(made.sql()), sail))
    return made


def _element(texts: Expressions, expression: Any, children: list[Any]) -> Any | None:
    if kind(expression.left()) == "StringSplitSQL":
        return texts.function("split_part", [*children_of(children[0]), children[1]])
    return None if expression.failOnError() else texts.function("try_element_at", children)


def _item(texts: Expressions, expression: Any, children: list[Any]) -> Any | None:
    return None if expression.failOnError() else texts.function("get", children)


def _timestamp(texts: Expressions, expression: Any, children: list[Any]) -> Any:
    name = "to_timestamp_ntz" if _is_without_zone(expression) else "to_timestamp"
    return texts.function(name if expression.failOnError() else "try_to_timestamp", children)


def _microseconds(texts: Expressions, expression: Any, children: list[Any]) -> Any:
    """Between moments and microseconds, as time windows are computed."""
    if not kind(expression.dataType()).startswith("Timestamp"):
        moment = texts.as_type(children[0], "TIMESTAMP")
        return texts.function("unix_micros", [moment])
    moment = texts.function("timestamp_micros", children)
    return texts.as_type(moment, "TIMESTAMP_NTZ") if _is_without_zone(expression) else moment


def _is_without_zone(expression: Any) -> bool:
    return kind(expression.dataType()).startswith("TimestampNTZ")


def _seconds(texts: Expressions, expression: Any, children: list[Any]) -> Any:
    return texts.function("date_part", [texts.constant("SECOND"), *children])


def _replaced(texts: Expressions, expression: Any, children: list[Any]) -> Any:
    """regexp_replace, from the beginning unless another place is said."""
    *given, place = children
    from_start = kind(place) == "Literal" and place.value() == 1
    return texts.function("regexp_replace", given if from_start else children)


def _is_nan(texts: Expressions, expression: Any, children: list[Any]) -> Any:
    """NULL is a number to Spark, and NULL to others."""
    return texts.function("coalesce", [texts.function("isnan", children), texts.constant(False)])


def _contains(texts: Expressions, expression: Any, children: list[Any]) -> Any | None:
    """Whether an array has a value is unknown if it has a NULL instead."""
    if not expression.left().dataType().containsNull():
        return None
    array, value = children
    found = texts.function("arrays_overlap", [array, texts.function("array", [value])])
    unknown = texts.function("isnull", [value])
    return texts.function("if", [unknown, texts.as_type(texts.constant(None), "BOOLEAN"), found])


def _equal(texts: Expressions, expression: Any, children: list[Any]) -> Any | None:
    """Structs by their fields, in which NULL equals NULL: not so to all engines."""
    if kind(expression.left().dataType()) != "StructType":
        return None
    one, other = (f"({child.sql()})" for child in children)
    type_, of_other = expression.left().dataType(), expression.right().dataType()
    if kind(expression) == "EqualTo":
        return texts.written(_unless_null(one, other, type_, of_other))
    return texts.written(_same(one, other, type_, of_other))


def _unless_null(one: str, other: str, type_: Any, of_other: Any) -> str:
    """Whether two values are equal, unknown if one of them is NULL."""
    same = _same(one, other, type_, of_other)
    return f"(CASE WHEN {one} IS NOT NULL AND {other} IS NOT NULL THEN {same} END)"


def _same(one: str, other: str, type_: Any, of_other: Any) -> str:
    """Whether two values are equal, or both NULL."""
    if kind(type_) != "StructType":
        return f"{one} <=> {other}"
    pairs = zip(type_.fields(), of_other.fields(), strict=True)
    parts = [f"({one} IS NULL) = ({other} IS NULL)"]
    for mine, theirs in pairs:
        fields = f"{one}.{quoted(mine.name())}", f"{other}.{quoted(theirs.name())}"
        parts.append(_same(*fields, mine.dataType(), theirs.dataType()))
    return f"({' AND '.join(parts)})"


def _in(texts: Expressions, expression: Any, children: list[Any]) -> Any | None:
    """A struct that equals one of several."""
    type_ = expression.value().dataType()
    if kind(type_) != "StructType":
        return None
    one, *others = (f"({child.sql()})" for child in children)
    types = [other.dataType() for other in each(expression.list())]
    pairs = zip(others, types, strict=True)
    found = [_unless_null(one, other, type_, of_other) for other, of_other in pairs]
    return texts.written(f"({' OR '.join(found)})")


def _substring(texts: Expressions, expression: Any, children: list[Any]) -> Any | None:
    """From a place before the beginning, of a length below 0, or of NULL: others differ there."""
    _, place, length = children_of(expression)
    if kind(place) == kind(length) == "Literal" and place.value() is not None:
        is_plain = length.value() is not None and length.value() >= 0
        if is_plain and (place.value() >= 0 or length.value() == _LONGEST):
            return None
    of, at, long = (f"({child.sql()})" for child in children)
    start = f"CASE WHEN {at} > 0 THEN {at} WHEN {at} < 0 THEN length({of}) + {at} + 1 ELSE 1 END"
    count = f"CAST(greatest(CAST({long} AS BIGINT) + least({start}, 1) - 1, 0) AS INT)"
    part = f"substring({of}, greatest({start}, 1), {count})"
    return texts.written(f"(CASE WHEN {at} IS NOT NULL AND {long} IS NOT NULL THEN {part} END)")


def _padded(texts: Expressions, expression: Any, children: list[Any]) -> Any | None:
    """A length below 0 is none; Sail fails on it."""
    length = children_of(expression)[1]
    if kind(length) == "Literal" and (length.value() or 0) >= 0:
        return None
    of, long, with_ = (f"({child.sql()})" for child in children)
    some = f"CASE WHEN {long} < 0 THEN 0 ELSE {long} END"
    return texts.written(f"{expression.prettyName()}({of}, {some}, {with_})")


def _located(texts: Expressions, expression: Any, children: list[Any]) -> Any | None:
    """Nothing is found at the first place, wherever it is looked for from."""
    if kind(start := children_of(expression)[2]) == "Literal" and start.value() == 1:
        return None
    what, where, at = (f"({child.sql()})" for child in children)
    return texts.written(
        f"(CASE WHEN {at} IS NULL THEN 0 WHEN {what} IS NULL OR {where} IS NULL THEN NULL WHEN "
        f"{at} < 1 THEN 0 WHEN {what} = '' THEN 1 ELSE locate({what}, {where}, {at}) END)"
    )


def _struct(texts: Expressions, expression: Any, children: list[Any]) -> Any:
    return texts.function("named_struct", children)


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
