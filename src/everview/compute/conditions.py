"""Comparisons, logic and choices as SQL has them, with NULL for unknown."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from everview.compute.values import Argument, Builder, Function, Step, Values, are_alike

_BOOLEAN = pa.bool_()


def _is_compared(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(type_)
        or pa.types.is_decimal128(type_)
        or pa.types.is_string(type_)
        or pa.types.is_date32(type_)
        or pa.types.is_timestamp(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_floating(type_)
    )


def compared(name: str) -> Builder:
    """The builder of `equal`, `less` and the like."""

    def build(arguments: Sequence[Argument]) -> Step | None:
        if not are_alike(arguments) or not _is_compared(arguments[0].type):
            return None
        if pa.types.is_floating(arguments[0].type):
            return Step(_BOOLEAN, _OF_FLOATS[name])
        return Step(_BOOLEAN, getattr(pc, name))

    return build


def _equal_floats(one: Values, other: Values) -> Values:
    """NaN equals NaN."""
    return pc.or_(pc.equal(one, other), pc.and_(pc.is_nan(one), pc.is_nan(other)))


def _less_floats(one: Values, other: Values) -> Values:
    """NaN is greater than any other number."""
    at_end = pc.and_(pc.invert(pc.is_nan(one)), pc.is_nan(other))
    return pc.or_(pc.less(one, other), at_end)


_OF_FLOATS: dict[str, Function] = {
    "equal": _equal_floats,
    "less": _less_floats,
    "greater": lambda one, other: _less_floats(other, one),
    "less_equal": lambda one, other: pc.invert(_less_floats(other, one)),
    "greater_equal": lambda one, other: pc.invert(_less_floats(one, other)),
}


def equal_or_both_null(arguments: Sequence[Argument]) -> Step | None:
    plain = compared("equal")(arguments)
    if plain is None:
        return None

    def same(one: Values, other: Values) -> Values:
        both_null = pc.and_(pc.is_null(one), pc.is_null(other))
        return pc.or_(pc.fill_null(plain.function(one, other), False), both_null)

    return Step(_BOOLEAN, same)


def logic(function: Function) -> Builder:
    """The builder of AND or OR over any number of conditions."""

    def build(arguments: Sequence[Argument]) -> Step | None:
        if any(argument.type != _BOOLEAN for argument in arguments):
            return None
        return Step(_BOOLEAN, lambda *values: reduce(function, values))

    return build


def negation(arguments: Sequence[Argument]) -> Step | None:
    return Step(_BOOLEAN, pc.invert) if arguments[0].type == _BOOLEAN else None


def is_null(arguments: Sequence[Argument]) -> Step | None:
    return Step(_BOOLEAN, pc.is_null)


def is_not_null(arguments: Sequence[Argument]) -> Step | None:
    return Step(_BOOLEAN, pc.is_valid)


def one_of(arguments: Sequence[Argument]) -> Step | None:
    """The builder of IN with any number of values."""
    first, *rest = arguments
    equals = [compared("equal")([first, one]) for one in rest]
    if any(step is None for step in equals):
        return None
    are_values = all(one.is_constant and one.constant is not None for one in rest)
    if not are_values or pa.types.is_floating(first.type) or first.is_constant:
        functions = [step.function for step in equals if step is not None]

        def any_equal(value: Values, *others: Values) -> Values:
            tests = zip(functions, others, strict=True)
            return reduce(pc.or_kleene, [equal(value, other) for equal, other in tests])

        return Step(_BOOLEAN, any_equal)
    values = pa.array([one.constant for one in rest], first.type)

    def is_in(value: Values, *_: Values) -> Values:
        found = pc.is_in(value, value_set=values)
        return pc.if_else(pc.is_valid(value), found, pa.scalar(None, _BOOLEAN))

    return Step(_BOOLEAN, is_in)


def chosen(arguments: Sequence[Argument]) -> Step | None:
    """The builder of CASE and if: conditions and values in turns, and perhaps one value more."""
    has_else = len(arguments) % 2 == 1
    pairs = arguments[:-1] if has_else else arguments
    tests, values = pairs[::2], [*pairs[1::2], *(arguments[-1:] if has_else else ())]
    if any(test.type != _BOOLEAN for test in tests) or not are_alike(values):
        return None

    def choose(*parts: Values) -> Values:
        result = parts[-1] if has_else else pa.scalar(None, values[0].type)
        last = len(tests) * 2
        for place in range(last - 2, -1, -2):
            result = pc.if_else(pc.fill_null(parts[place], False), parts[place + 1], result)
        return result

    return Step(values[0].type, choose)


def first_present(arguments: Sequence[Argument]) -> Step | None:
    return Step(arguments[0].type, pc.coalesce) if are_alike(arguments) else None


def true_if_unknown(arguments: Sequence[Argument]) -> Step | None:
    if arguments[0].type != _BOOLEAN:
        return None
    return Step(_BOOLEAN, lambda values: pc.fill_null(values, True))
