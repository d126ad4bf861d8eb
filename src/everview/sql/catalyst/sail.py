"""What Sail answers otherwise than Spark.

Sail is asked in other words where there are some that give Spark's answer. Where only some values
are answered otherwise, a view stops at those; where too many are, it is refused on Sail before its
first epoch. `tests/breadth` compares both engines, and what it finds stands here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everview.plan.dialects import either, on_sail, refused
from everview.spark.trees import children_of, kind, type_of
from everview.sql.catalyst.checking import whole_seconds

if TYPE_CHECKING:
    from everview.sql.catalyst.expressions import Expressions

_REALS = ("FLOAT", "DOUBLE")
_MOST_DIGITS = 38  # of a DECIMAL
_OF_BIGDECIMAL = 34  # digits to which Java rounds when it negates
_LINE = 57  # bytes that are a line of base64


@dataclass(frozen=True)
class Asked:
    """An expression, the texts of its arguments for Sail, what Sail would be asked, and what holds
    where it is asked."""

    expression: Any
    parts: Sequence[str]
    plain: str
    guards: Sequence[str]

    @property
    def types(self) -> list[str]:
        return [type_of(child) for child in children_of(self.expression)]

    @property
    def type(self) -> str:
        return type_of(self.expression)

    def has_reals(self) -> bool:
        return any(real in type_ for type_ in self.types for real in _REALS)

    def literal(self, place: int) -> Any:
        """The value of an argument; None if it is no constant."""
        child = children_of(self.expression)[place]
        return child.value() if kind(child) == "Literal" else None

    def unless(self, ok: str, why: str, text: str | None = None) -> str:
        """The text, for values that are right; an error for others, where they are asked for."""
        error = f"raise_error('{why}; run this view with the engine spark')"
        last = f"WHEN {' AND '.join(self.guards)} THEN {error}" if self.guards else f"ELSE {error}"
        return f"CASE WHEN coalesce({ok}, true) THEN {text or self.plain} {last} END"


Rule = Callable[[Asked], str | None]


def agreeing(
    texts: Expressions, expression: Any, children: list[Any], made: Any, guards: Sequence[Any]
) -> Any:
    """What an expression was made to, with other words for Sail where it has another answer."""
    rule = _RULES.get(_name(expression))
    if rule is None:
        return made
    spark, parts = str(made.sql()), [on_sail(str(child.sql())) for child in children]
    held = [f"({on_sail(str(guard.sql()))})" for guard in guards]
    sail = rule(Asked(expression, parts, on_sail(spark), held))
    return made if sail is None else texts.written(either(spark, sail))


def ordinary(text: str) -> str:
    """A double that on Sail must be neither -0.0 nor NaN."""
    odd = f"isnan({text}) OR ({text} = 0 AND CAST({text} AS STRING) = '-0.0')"
    why = "Sail takes NaN and -0.0 otherwise here; run this view with the engine spark"
    return either(text, f"CASE WHEN {odd} THEN raise_error('{why}') ELSE {text} END")


def _name(expression: Any) -> str:
    name = kind(expression)
    if name != "StaticInvoke":
        return name
    of = expression.staticObject().getSimpleName().removesuffix("$")
    return f"{of}.{expression.functionName()}"


def _refused(what: str) -> Rule:
    return lambda asked: refused(what)


def _of_reals(what: str) -> Rule:
    """Refused if there are doubles among its arguments, or in them."""
    return lambda asked: refused(what) if asked.has_reals() else None


def _cast(asked: Asked) -> str | None:
    (source,), target = asked.types, asked.type
    is_nested = source.startswith(("ARRAY", "MAP", "STRUCT"))
    if is_nested and "STRING" in target and source != target:
        return refused("Sail writes NULLs and doubles in arrays, maps and structs otherwise")
    if source in _REALS and target == "STRING":
        return _text_of_real(asked)
    if source == "BIGINT" and target == "TIMESTAMP":
        return _seconds(asked)
    if source == "BIGINT" and target.startswith("INTERVAL"):
        return refused("Sail wraps around where a number is too large for an interval")
    if str(asked.expression.evalMode()) == "TRY" and target.startswith("DECIMAL"):
        if source == "STRING":
            return refused("Sail's try_cast to DECIMAL does not read exponents")
        if source in (*_REALS, "TIMESTAMP") or source.startswith("INTERVAL"):
            return refused(f"Sail's try_cast from {source} to DECIMAL has other digits")
    if source == "TIMESTAMP" and target == "BIGINT":
        return whole_seconds(asked.parts[0])
    if source == "BINARY" and str(asked.expression.evalMode()) == "TRY":
        return refused("Sail has no STRING for bytes that are no UTF-8")
    return None


def _text_of_real(asked: Asked) -> str:
    (part,) = asked.parts
    infinite = (
        f"WHEN {part} = CAST('Infinity' AS DOUBLE) THEN 'Infinity' "
        f"WHEN {part} = CAST('-Infinity' AS DOUBLE) THEN '-Infinity'"
    )
    fine = f"({part} = 0 OR isnan({part}) OR (abs({part}) >= 1e-3D AND abs({part}) < 1e7D))"
    why = "Sail writes doubles below 0.001, and from 10000000 on, otherwise than Spark"
    return asked.unless(fine, why).replace("CASE ", f"CASE {infinite} ", 1)


def _seconds(asked: Asked) -> str | None:
    """Seconds as a moment."""
    if asked.types[0] in ("FLOAT", "DOUBLE"):
        return refused("Sail leaves out fractions of seconds")
    return asked.unless(
        f"{asked.parts[0]} BETWEEN -9223372036854L AND 9223372036854L",
        "[ARITHMETIC_OVERFLOW] these seconds are no TIMESTAMP",
    )


def _milliseconds(asked: Asked) -> str:
    return asked.unless(
        f"{asked.parts[0]} BETWEEN -9223372036854775L AND 9223372036854775L",
        "[ARITHMETIC_OVERFLOW] these milliseconds are no TIMESTAMP",
    )


def _decimal(asked: Asked) -> str | None:
    """Decimals that may need more digits than there are."""
    if not asked.type.startswith("DECIMAL"):
        return None
    if kind(asked.expression) in ("UnaryMinus", "Abs"):
        digits = asked.expression.dataType().precision()
        return refused("Spark rounds decimals here") if digits > _OF_BIGDECIMAL else None
    type_ = asked.expression.dataType()
    whole = type_.precision() - type_.scale()
    if whole_digits(asked.expression) <= whole:
        return None
    return asked.unless(
        f"abs(CAST({asked.plain} AS DOUBLE)) < 1e{whole}D",
        f"[NUMERIC_VALUE_OUT_OF_RANGE] a result may not fit {asked.type}",
    )


def whole_digits(expression: Any) -> int:
    """How many digits a decimal may have before its point, if it were to have all of them."""
    type_ = expression.dataType()
    name, own = kind(expression), 0
    if kind(type_) == "DecimalType":
        own = type_.precision() - type_.scale()
    if name in ("Add", "Subtract"):
        return 1 + max(whole_digits(child) for child in children_of(expression))
    if name == "Multiply":
        return sum(whole_digits(child) for child in children_of(expression))
    if name == "Cast" and kind(expression.child().dataType()) == "DecimalType":
        return min(own, whole_digits(expression.child()))
    if name == "Literal" and expression.value() is not None and own:
        digits = str(expression.value().toString()).lstrip("-").split(".")[0]
        return min(own, len(digits.lstrip("0")))
    return own


def _quotient(asked: Asked) -> str | None:
    """Decimals are divided with the digits that fit into the dividend, which may be too few."""
    if not asked.type.startswith("DECIMAL"):
        return None
    given, wanted = asked.expression.left().dataType(), asked.expression.dataType()
    room = _MOST_DIGITS - (given.precision() - given.scale())
    if room >= wanted.scale() - 3:
        return None
    return refused("Sail divides decimals of so many digits less exactly")


def _split(asked: Asked) -> str | None:
    """By nothing at all; a pattern that is a constant is known to be more."""
    pattern = asked.literal(1)
    if pattern is not None and str(pattern.toString()):
        return None
    return asked.unless(f"{asked.parts[1]} <> ''", "Sail splits by an empty text otherwise")


def _hash(asked: Asked) -> str | None:
    if any("DECIMAL" in type_ for type_ in asked.types):
        return refused("Sail hashes DECIMAL otherwise")
    return None


def _map(asked: Asked) -> str | None:
    """Keys that may be equal, or NULL, stop a view on Spark."""
    children = children_of(asked.expression)[::2]
    keys = [str(child.sql()) for child in children if kind(child) == "Literal"]
    if len(set(keys)) == len(children) and "NULL" not in keys:
        return None
    return refused("Sail makes maps in which a key comes twice")


def _extreme(asked: Asked) -> str | None:
    """greatest or least: of 0.0 and -0.0 the first one."""
    if asked.type not in _REALS:
        return None
    zeros = ", ".join(f"CASE WHEN {part} = 0 THEN {part} END" for part in asked.parts)
    return f"CASE WHEN {asked.plain} = 0 THEN coalesce({zeros}) ELSE {asked.plain} END"


def _rounded(asked: Asked) -> str | None:
    """What is rounded to 0 has no sign."""
    if asked.type not in _REALS:
        return None
    return f"CASE WHEN {asked.plain} = 0 THEN CAST(0 AS {asked.type}) ELSE {asked.plain} END"


def _sign(asked: Asked) -> str | None:
    """-0.0 stays as it is."""
    (part,) = asked.parts
    return f"CASE WHEN {part} = 0 THEN {part} ELSE {asked.plain} END"


def _angle(asked: Asked) -> str:
    """atan2, to which -0.0 is 0.0."""
    parts = (f"CASE WHEN {part} = 0 THEN 0.0D ELSE {part} END" for part in asked.parts)
    return f"atan2({', '.join(parts)})"


def _base64(asked: Asked) -> str:
    why = "Sail writes base64 of more than a line otherwise"
    return asked.unless(f"octet_length({asked.parts[0]}) <= {_LINE}", why)


def _elt(asked: Asked) -> str:
    ok = f"{asked.parts[0]} BETWEEN 1 AND {len(asked.parts) - 1}"
    return asked.unless(ok, "[INVALID_ARRAY_INDEX] elt has no argument of this number")


def _moment_as_text(asked: Asked) -> str:
    why = "Sail writes years before 0 and after 9999 otherwise"
    return asked.unless(f"{asked.parts[0]} BETWEEN -62167219200L AND 253402300799L", why)


def _within_nanoseconds(asked: Asked) -> str:
    """Of moments that are nanoseconds since 1970 to Sail, in 64 bits."""
    typed = zip(asked.parts, asked.types, strict=True)
    moments = [part for part, type_ in typed if type_.startswith(("DATE", "TIMESTAMP"))]
    ok = " AND ".join(f"{part} BETWEEN DATE'1678-01-01' AND DATE'2262-01-01'" for part in moments)
    known = " AND ".join(f"{part} IS NOT NULL" for part in asked.parts)
    text = f"CASE WHEN {known} THEN {asked.plain} END"
    return asked.unless(ok, "Sail wraps around before 1678 and after 2261", text)


def _item(asked: Asked) -> str | None:
    if asked.expression.failOnError():
        return None
    _, place = asked.parts
    return f"CASE WHEN {place} >= 0 THEN {asked.plain} END"


def _contains(asked: Asked) -> str | None:
    if asked.expression.left().dataType().containsNull():
        return None
    return f"CASE WHEN {asked.parts[1]} IS NOT NULL THEN {asked.plain} END"


def _overlap(asked: Asked) -> str:
    one, other = asked.parts
    empty = f"(size({one}) = 0 AND {other} IS NOT NULL OR size({other}) = 0 AND {one} IS NOT NULL)"
    return f"CASE WHEN {empty} THEN false ELSE {asked.plain} END"


def _of_bytes(what: str) -> Rule:
    return lambda asked: refused(what) if asked.types[0] == "BINARY" else None


def _array_sort(asked: Asked) -> str | None:
    is_own = "CASE" in str(children_of(asked.expression)[1].sql()).upper()
    return refused("Sail sorts by a function otherwise") if is_own else None


def _json(asked: Asked) -> str:
    """Nothing at all is no JSON."""
    return f"CASE WHEN trim({asked.parts[0]}) <> '' THEN {asked.plain} END"


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
    **dict.fromkeys(["Round", "Rint"], _rounded),
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
}
