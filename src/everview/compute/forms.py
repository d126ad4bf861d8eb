"""Which forms of expressions are computed here, and by what."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from everview.compute import conditions, numbers, texts
from everview.compute.literals import type_of
from everview.compute.values import Builder, Step

_BUILDERS: dict[str, Builder] = {
    "{0} + {1}": numbers.arithmetic("add"),
    "{0} - {1}": numbers.arithmetic("subtract"),
    "{0} * {1}": numbers.arithmetic("multiply"),
    "{0} / {1}": numbers.divide,
    "{0} div {1}": numbers.whole_divide,
    "{0} % {1}": numbers.remainder,
    "- {0}": numbers.signed("negate"),
    "round({0}, {1})": numbers.rounded,
    "abs({0})": numbers.signed("abs"),
    "{0} = {1}": conditions.compared("equal"),
    "{0} < {1}": conditions.compared("less"),
    "{0} <= {1}": conditions.compared("less_equal"),
    "{0} > {1}": conditions.compared("greater"),
    "{0} >= {1}": conditions.compared("greater_equal"),
    "{0} <=> {1}": conditions.equal_or_both_null,
    "NOT {0}": conditions.negation,
    "{0} IS NULL": conditions.is_null,
    "isnull({0})": conditions.is_null,
    "{0} IS NOT NULL": conditions.is_not_null,
    "isnotnull({0})": conditions.is_not_null,
    "coalesce({0}, true)": conditions.true_if_unknown,
    "if({0}, {1}, {2})": conditions.chosen,
    "IF({0}, {1}, {2})": conditions.chosen,
    "{0} LIKE {1}": texts.like,
    "startswith({0}, {1})": texts.matched("starts_with"),
    "endswith({0}, {1})": texts.matched("ends_with"),
    "contains({0}, {1})": texts.matched("match_substring"),
    "substring({0}, {1}, {2})": texts.substring,
    "length({0})": texts.length,
    "upper({0})": texts.in_case("upper"),
    "lower({0})": texts.in_case("lower"),
    "year({0})": texts.part_of_date("year"),
    "month({0})": texts.part_of_date("month"),
    "quarter({0})": texts.part_of_date("quarter"),
    "dayofmonth({0})": texts.part_of_date("day"),
}
_PLACE = r"\{\d+\}"
_CAST = re.compile(rf"CAST\({_PLACE} AS (.+)\)")
_CONSTANT = re.compile(r"CAST\((-?\d+) AS (.+)\)")
_CASE = re.compile(rf"CASE(?: WHEN {_PLACE} THEN {_PLACE})+(?: ELSE {_PLACE})? END")
_LISTS: dict[re.Pattern[str], Builder] = {
    re.compile(rf"{_PLACE}(?: AND {_PLACE})+"): conditions.logic(pc.and_kleene),
    re.compile(rf"{_PLACE}(?: OR {_PLACE})+"): conditions.logic(pc.or_kleene),
    re.compile(rf"{_PLACE} IN \({_PLACE}(?:, {_PLACE})*\)"): conditions.one_of,
    re.compile(rf"coalesce\({_PLACE}(?:, {_PLACE})*\)"): conditions.first_present,
    re.compile(rf"concat\({_PLACE}(?:, {_PLACE})*\)"): texts.joined,
    re.compile(r"\{0\}"): lambda arguments: Step(arguments[0].type, lambda values: values),
    _CASE: conditions.chosen,
}
_PLACES = re.compile(r"\{(\d+)\}")


@lru_cache(4096)
def builder(form: str) -> Builder | None:
    """What builds the step of a form; None if the engine has to compute it."""
    while form.startswith("(") and form.endswith(")") and _encloses(form):
        form = form[1:-1]
    if form in _BUILDERS:
        return _BUILDERS[form]
    if (cast := _CAST.fullmatch(form)) and (type_ := type_of(cast[1])) is not None:
        return numbers.cast(type_) if not _is_text_of_length(cast[1]) else None
    if constant := _CONSTANT.fullmatch(form):
        return _number(constant[1], type_of(constant[2]))
    places = list(map(int, _PLACES.findall(form)))
    if places != list(range(len(places))):
        return None  # an argument stands at several places
    return next((build for form_, build in _LISTS.items() if form_.fullmatch(form)), None)


def _encloses(form: str) -> bool:
    """Whether the first parenthesis is closed by the last one."""
    depth = 0
    for place, sign in enumerate(form):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return place == len(form) - 1
    return False


def _is_text_of_length(name: str) -> bool:
    return name.upper().startswith(("VARCHAR", "CHAR"))


def _number(digits: str, type_: pa.DataType | None) -> Builder | None:
    """A constant of a type of numbers, in which it fits."""
    try:
        if pa.types.is_decimal(type_):
            value = pa.scalar(Decimal(digits), type_)
        elif pa.types.is_integer(type_) or pa.types.is_float64(type_):
            value = pa.scalar(int(digits), type_)
        else:
            return None
    except (pa.ArrowInvalid, InvalidOperation):
        return None
    return lambda arguments: Step(value.type, lambda: value)
