"""Arithmetic and casts of numbers as Spark does them in ANSI mode.

Spark fails where a result doesn't fit; here that raises an error, and the engine then says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.compute.values import (
    Argument,
    Builder,
    EngineNeeded,
    Function,
    Step,
    Values,
    are_alike,
)

_DIGITS = 38  # of a decimal, at most
_MOST_DIGITS = 76  # of a wide decimal of Arrow's
_SIGNED_DIGITS = 34  # Spark rounds decimals with more, when it changes their sign
_LEAST_SCALE = 6  # that a result keeps, where it can't keep all digits
_EXACT = 2**53  # below it, every integer is a double
_POWERS = 22  # up to it, every power of ten is a double
_DIGITS_OF = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_WIDE = Context(prec=100, rounding=ROUND_HALF_UP)


def arithmetic(name: str) -> Builder:
    """The builder of `add`, `subtract` or `multiply`."""

    def build(arguments: Sequence[Argument]) -> Step | None:
        left, right = (argument.type for argument in arguments)
        if pa.types.is_decimal128(left) and pa.types.is_decimal128(right):
            return _of_decimals(name, left, right)
        if left != right or not _is_plain_number(left):
            return None
        checked = getattr(pc, f"{name}_checked" if pa.types.is_integer(left) else name)
        return Step(left, checked)

    return build


def _is_plain_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def _of_decimals(name: str, left: pa.DataType, right: pa.DataType) -> Step | None:
    if name == "multiply":
        digits, scale = left.precision + right.precision + 1, left.scale + right.scale
    else:
        scale = max(left.scale, right.scale)
        digits = max(left.precision - left.scale, right.precision - right.scale) + scale + 1
    function, result = getattr(pc, name), bounded(digits, scale)
    if digits <= _DIGITS:
        return Step(result, function)
    if digits > _MOST_DIGITS:
        return None

    def wide(one: Values, other: Values) -> Values:
        return fitted(function(_widened(one), _widened(other)), result)

    return Step(result, wide)


def bounded(digits: int, scale: int) -> pa.Decimal128Type:
    """The type of Spark's result that would need so many digits."""
    if digits <= _DIGITS:
        return pa.decimal128(digits, scale)
    return pa.decimal128(_DIGITS, max(_DIGITS - (digits - scale), min(scale, _LEAST_SCALE)))


def _widened(values: Values) -> Values:
    return values.cast(pa.decimal256(values.type.precision, values.type.scale))


def fitted(values: Values, type_: pa.DataType) -> Values:
    """Decimals of another type, rounded half up. Raises if one doesn't fit."""
    if values.type.scale > type_.scale:
        values = values.cast(pa.decimal256(_MOST_DIGITS, values.type.scale))
        values = pc.round(values, ndigits=type_.scale, round_mode="half_towards_infinity")
    return values.cast(type_)


def divide(arguments: Sequence[Argument]) -> Step | None:
    left, right = (argument.type for argument in arguments)
    if left == right == pa.float64():
        return Step(left, _divided_doubles)
    if not (pa.types.is_decimal128(left) and pa.types.is_decimal128(right)):
        return None
    scale = max(_LEAST_SCALE, left.scale + right.precision + 1)
    result = bounded(left.precision - left.scale + right.scale + scale, scale)
    return Step(result, lambda one, other: _divided_decimals(one, other, result))


def _divided_doubles(one: Values, other: Values) -> Values:
    _check_divisors(one, other)
    return pc.divide(one, other)


def _check_divisors(one: Values, other: Values) -> None:
    zero = pa.scalar(Decimal(0) if pa.types.is_decimal(other.type) else 0, other.type)
    zeros = pc.and_(pc.equal(other, zero), pc.is_valid(one))
    if _any(zeros):
        raise EngineNeeded("a division by zero")


def _any(flags: Values) -> bool:
    if isinstance(flags, pa.Scalar):
        return bool(flags.as_py())
    return bool(pc.any(flags).as_py())


def _divided_decimals(one: Values, other: Values, type_: pa.DataType) -> Values:
    """Arrow cuts digits off where Spark rounds. There are few such divisions: they mostly stand
    above an aggregate, so they are computed one by one."""
    _check_divisors(one, other)
    if isinstance(one, pa.Scalar) and isinstance(other, pa.Scalar):
        return pa.scalar(_quotient(one.as_py(), other.as_py(), type_.scale), type_)
    length = len(other) if isinstance(one, pa.Scalar) else len(one)
    lefts, rights = (
        [side.as_py()] * length if isinstance(side, pa.Scalar) else side.to_pylist()
        for side in (one, other)
    )
    pairs = zip(lefts, rights, strict=True)
    return pa.array([_quotient(left, right, type_.scale) for left, right in pairs], type_)


def _quotient(left: Decimal | None, right: Decimal | None, scale: int) -> Decimal | None:
    if left is None or right is None:
        return None
    quotient = _WIDE.quantize(_WIDE.divide(left, right), Decimal(1).scaleb(-39))
    return _WIDE.quantize(quotient, Decimal(1).scaleb(-scale))


def whole_divide(arguments: Sequence[Argument]) -> Step | None:
    is_long = arguments[0].type == arguments[1].type == pa.int64()
    return Step(pa.int64(), pc.divide_checked) if is_long else None


def remainder(arguments: Sequence[Argument]) -> Step | None:
    if not are_alike(arguments) or not pa.types.is_integer(arguments[0].type):
        return None

    def rest(one: Values, other: Values) -> Values:
        return pc.subtract(one, pc.multiply(pc.divide_checked(one, other), other))

    return Step(arguments[0].type, rest)


def signed(name: str) -> Builder:
    """The builder of `negate` or `abs`."""

    def build(arguments: Sequence[Argument]) -> Step | None:
        type_ = arguments[0].type
        if pa.types.is_integer(type_):
            return Step(type_, getattr(pc, f"{name}_checked"))
        is_exact = pa.types.is_decimal128(type_) and type_.precision <= _SIGNED_DIGITS
        is_number = is_exact or pa.types.is_floating(type_)
        return Step(type_, getattr(pc, name)) if is_number else None

    return build


def rounded(arguments: Sequence[Argument]) -> Step | None:
    """The builder of round for decimals, with a constant number of digits."""
    type_, digits = arguments[0].type, arguments[1].number
    if not pa.types.is_decimal128(type_) or digits is None or digits < 0:
        return None
    scale = min(type_.scale, digits)
    result = bounded(type_.precision - type_.scale + 1 + scale, scale)
    return Step(result, lambda values, _: fitted(values, result))


def cast(type_: pa.DataType) -> Builder:
    def build(arguments: Sequence[Argument]) -> Step | None:
        function = _cast(arguments[0].type, type_)
        return None if function is None else Step(type_, function)

    return build


def _cast(old: pa.DataType, new: pa.DataType) -> Function | None:
    if old == new:
        return lambda values: values
    if pa.types.is_integer(old) or pa.types.is_boolean(old):
        return _cast_integer(old, new)
    if pa.types.is_decimal128(old):
        if pa.types.is_decimal128(new):
            return lambda values: fitted(values, new)
        return _as_doubles if pa.types.is_float64(new) else None
    widens = pa.types.is_float32(old) and pa.types.is_float64(new)
    return (lambda values: values.cast(new)) if widens else None


def _cast_integer(old: pa.DataType, new: pa.DataType) -> Function | None:
    if pa.types.is_boolean(old):
        return (lambda values: values.cast(new)) if pa.types.is_integer(new) else None
    if pa.types.is_integer(new) or pa.types.is_string(new):
        return lambda values: values.cast(new)
    if pa.types.is_float64(new):
        return lambda values: pc.cast(values, new, safe=False)
    if not pa.types.is_decimal128(new) or _DIGITS_OF[old] + new.scale > _DIGITS:
        return None
    roomy = pa.decimal128(_DIGITS_OF[old] + new.scale, new.scale)
    return lambda values: values.cast(roomy).cast(new)


def _as_doubles(values: Values) -> Values:
    """The nearest doubles: surely so where digits and power of ten are doubles themselves."""
    array = pa.array([values.as_py()], values.type) if isinstance(values, pa.Scalar) else values
    scale = array.type.scale
    words = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)
    words = words[array.offset : array.offset + len(array)]
    is_valid = array.is_valid().to_numpy(zero_copy_only=False)
    digits = np.where(is_valid, words[:, 0], 0)
    high = np.where(is_valid, words[:, 1], 0)
    if scale > _POWERS or np.any(high != digits >> 63) or np.any(np.abs(digits) >= _EXACT):
        raise EngineNeeded("a decimal with more digits than a double has")
    doubles = pa.array(digits / 10.0**scale, mask=~is_valid)
    return doubles[0] if isinstance(values, pa.Scalar) else doubles
