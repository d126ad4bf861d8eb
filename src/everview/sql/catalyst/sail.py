"""Rules for expressions that Sail answers otherwise than Spark.

If other words make Sail give Spark's answer, Sail gets those. If only some values are answered
otherwise, a view stops at those; if too many are, it is refused on Sail before its first epoch.
`tests/breadth` compares both engines to find such expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from everview.plan.expressions import (
    Refused,
    Tree,
    all_of,
    call,
    cast,
    either,
    places,
    sql,
    string,
)
from everview.spark.trees import children_of, constant_of, data_type, kind, mode_of, type_of
from everview.sql.catalyst.checking import whole_milliseconds, whole_seconds

_REALS = ("FLOAT", "DOUBLE")
_MOST_DIGITS = 38  # of a DECIMAL
_OF_BIGDECIMAL = 34  # digits to which Java rounds when it negates
_LINE = 57  # bytes that are a line of base64


@dataclass(frozen=True)
class Operation:
    """An expression, its arguments, its plain tree for Sail, and the guards where it counts."""

    expression: Any
    parts: Sequence[Tree]
    plain: Tree
    guards: Sequence[Tree]

    @property
    def types(self) -> list[str]:
        return [type_of(child) for child in children_of(self.expression)]

    @property
    def type(self) -> str:
        return type_of(self.expression)

    def has_reals(self) -> bool:
        return any(real in type_ for type_ in self.types for real in _REALS)

    def literal(self, place: int) -> Any:
        """The value of an argument that is a constant, else None."""
        return constant_of(children_of(self.expression)[place])

    def unless(self, ok: Tree, why: str, result: Tree | None = None, *cases: Tree) -> Tree:
        """The result for values that are `ok`; for others an error, where the guards hold. Other
        cases come first."""
        error = call("raise_error", string(f"{why}; run this view with the engine spark"))
        fine = sql("WHEN coalesce({0}, true) THEN {1}", ok, result or self.plain)
        last = sql("ELSE {0}", error)
        if self.guards:
            holds = all_of([sql("({0})", guard) for guard in self.guards])
            last = sql("WHEN {0} THEN {1}", holds, error)
        return sql(f"CASE {places(len(cases) + 2, ' ')} END", *cases, fine, last)


Rule = Callable[[Operation], Tree | None]


def agreeing(expression: Any, children: Sequence[Tree], tree: Tree, guards: Sequence[Tree]) -> Tree:
    """The tree of an expression, with other words for Sail if it would answer otherwise."""
    rule = _RULES.get(_name(expression))
    if rule is None:
        return tree
    sail = rule(Operation(expression, children, tree, guards))
    return tree if sail is None else either(tree, sail)


def ordinary(tree: Tree) -> Tree:
    """A double that on Sail must be neither -0.0 nor NaN."""
    why = "Sail takes NaN and -0.0 otherwise here; run this view with the engine spark"
    odd = "isnan({0}) OR ({0} = 0 AND CAST({0} AS STRING) = '-0.0')"
    error = call("raise_error", string(why))
    return either(tree, sql(f"CASE WHEN {odd} THEN {{1}} ELSE {{0}} END", tree, error))


def _name(expression: Any) -> str:
    name = kind(expression)
    if name == "Invoke":
        evaluator = constant_of(expression.targetObject())
        return name if evaluator is None else kind(evaluator)
    if name != "StaticInvoke":
        return name
    class_ = expression.staticObject().getSimpleName().removesuffix("$")
    return f"{class_}.{expression.functionName()}"


def _refused(what: str) -> Rule:
    return lambda operation: Refused(what)


def _of_reals(what: str) -> Rule:
    """Refuses expressions with doubles among or in their arguments."""
    return lambda operation: Refused(what) if operation.has_reals() else None


def _cast(operation: Operation) -> Tree | None:
    (source,), target = operation.types, operation.type
    is_nested = source.startswith(("ARRAY", "MAP", "STRUCT"))
    if is_nested and "STRING" in target and source != target:
        return Refused("Sail writes NULLs and doubles in arrays, maps and structs otherwise")
    if source in _REALS and target == "STRING":
        return _text_of_real(operation)
    if source == "BIGINT" and target == "TIMESTAMP":
        return _seconds(operation)
    if source == "BIGINT" and target.startswith("INTERVAL"):
        return Refused("Sail wraps around where a number is too large for an interval")
    if mode_of(operation.expression) == "TRY" and target.startswith("DECIMAL"):
        if source == "STRING":
            return Refused("Sail's try_cast to DECIMAL does not read exponents")
        if source in (*_REALS, "TIMESTAMP") or source.startswith("INTERVAL"):
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


def _seconds(operation: Operation) -> Tree | None:
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


def _split(operation: Operation) -> Tree | None:
    """split by an empty text; a pattern that is a constant is known not to be empty."""
    pattern = operation.literal(1)
    if pattern is not None and str(pattern.toString()):
        return None
    ok = sql("{0} <> ''", operation.parts[1])
    return operation.unless(ok, "Sail splits by an empty text otherwise")


def _hash(operation: Operation) -> Tree | None:
    if any("DECIMAL" in type_ for type_ in operation.types):
        return Refused("Sail hashes DECIMAL otherwise")
    return None


def _map(operation: Operation) -> Tree | None:
    """map with keys that may be equal or NULL, which stop a view on Spark."""
    children = children_of(operation.expression)[::2]
    keys = [str(child.sql()) for child in children if kind(child) == "Literal"]
    if len(set(keys)) == len(children) and "NULL" not in keys:
        return None
    return Refused("Sail makes maps in which a key comes twice")


def _extreme(operation: Operation) -> Tree | None:
    """greatest or least: among 0.0 and -0.0 it is the first one."""
    if operation.type not in _REALS:
        return None
    zeros = [sql("CASE WHEN {0} = 0 THEN {0} END", part) for part in operation.parts]
    first = call("coalesce", *zeros)
    return sql("CASE WHEN {0} = 0 THEN {1} ELSE {0} END", operation.plain, first)


def _rounded(operation: Operation) -> Tree | None:
    """Rounding: a 0 has no sign."""
    if operation.type not in _REALS:
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


def _base64(operation: Operation) -> Tree:
    why = "Sail writes base64 of more than a line otherwise"
    return operation.unless(sql(f"octet_length({{0}}) <= {_LINE}", operation.parts[0]), why)


def _elt(operation: Operation) -> Tree:
    ok = sql(f"{{0}} BETWEEN 1 AND {len(operation.parts) - 1}", operation.parts[0])
    return operation.unless(ok, "[INVALID_ARRAY_INDEX] elt has no argument of this number")


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


def _of_bytes(what: str) -> Rule:
    return lambda operation: Refused(what) if operation.types[0] == "BINARY" else None


def _array_sort(operation: Operation) -> Tree | None:
    is_own = "CASE" in str(children_of(operation.expression)[1].sql()).upper()
    return Refused("Sail sorts by a function otherwise") if is_own else None


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


def _part_of_text(operation: Operation) -> Tree | None:
    """split_part: there is no text where there is no such part; Sail gives NULL."""
    if kind(children_of(operation.expression)[0]) != "StringSplitSQL":
        return None
    text, separator = operation.parts[0].parts()
    none = "{1} IS NOT NULL AND {2} IS NOT NULL AND {3} IS NOT NULL THEN ''"
    arguments = operation.plain, text, separator, operation.parts[1]
    return sql(f"coalesce({{0}}, CASE WHEN {none} END)", *arguments)


def _moment(operation: Operation) -> Tree:
    ok = sql("{0} BETWEEN 1 AND 9999", operation.parts[0])
    return operation.unless(ok, "Sail has no moments in other years than 1 to 9999")


def _bucket(operation: Operation) -> Tree:
    """Of so many buckets there is none."""
    most = 2**63 - 1
    return sql(f"CASE WHEN {{0}} < {most}L THEN {{1}} END", operation.parts[3], operation.plain)


_RULES: dict[str, Rule] = {
    "Cast": _cast,
    **dict.fromkeys(["Add", "Subtract", "Multiply", "UnaryMinus", "Abs"], _decimal),
    "Divide": _quotient,
    **dict.fromkeys(
        ["MultiplyDTInterval", "DivideDTInterval"],
        _refused("Sail rounds intervals otherwise, and wraps around"),
    ),
    "SecondsToTimestamp": _seconds,
    "MillisToTimestamp": _milliseconds,
    "StringSplit": _split,
    **dict.fromkeys(["Murmur3Hash", "XxHash64"], _hash),
    "CreateMap": _map,
    **dict.fromkeys(
        ["MapFromArrays", "MapFromEntries", "MapConcat", "StringToMap", "TransformKeys"],
        _refused("Sail makes maps in which a key comes twice"),
    ),
    **dict.fromkeys(["Greatest", "Least"], _extreme),
    "Round": _rounded,
    "Rint": _to_even,
    "BRound": _refused("Sail rounds half to even otherwise"),
    "Signum": _sign,
    "Log1p": _refused("Sail has another log1p near 0"),
    "Atan2": _angle,
    "Base64.encode": _base64,
    "Elt": _elt,
    "FromUnixTime": _moment_as_text,
    **dict.fromkeys(["TruncTimestamp", "TruncDate", "MonthsBetween"], _within_nanoseconds),
    "GetArrayItem": _item,
    "ArrayContains": _contains,
    "ArraysOverlap": _overlap,
    "ArraySort": _array_sort,
    "JsonToStructs": _json,
    **dict.fromkeys(
        ["ArrayIntersect", "ArrayExcept", "ArrayUnion", "ArrayDistinct", "ArrayMin", "ArrayMax"],
        _of_reals("Sail tells 0.0 from -0.0 in arrays"),
    ),
    "Substring": _of_bytes("Sail counts the characters of BINARY, and not its bytes"),
    "Conv": _refused("Sail gives NULL for what is not all of a number"),
    "Hypot": _refused("Sail overflows where the result does not"),
    "InitCap": _refused("Sail begins a word after any sign"),
    "JsonExpressionUtils.lengthOfJsonArray": _refused("Sail counts what is no array"),
    "Logarithm": _refused("Sail has another logarithm of 0 and to the base 0"),
    "FormatNumber": _refused("Sail writes large numbers and infinite ones otherwise"),
    "Pmod": _of_reals("Sail has another remainder of 0.0, and by 0.0 and infinities"),
    "Levenshtein": _levenshtein,
    "MakeDTInterval": _refused("Sail gives NULL for intervals that are too large for it"),
    "ParseUrlEvaluator": _part_of_url,
    "Slice": _slice,
    "ElementAt": _part_of_text,
    "ShiftRightUnsigned": _refused("Sail shifts by less than 0 or more than 31 otherwise"),
    "UnixSeconds": lambda operation: whole_seconds(operation.parts[0]),
    "UnixMillis": lambda operation: whole_milliseconds(operation.parts[0]),
    "MakeTimestamp": _moment,
    "TryToNumber": _refused("Sail reads numbers with spaces around them"),
    "WidthBucket": _bucket,
}
