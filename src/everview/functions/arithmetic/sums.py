"""Sums and averages by group, exact: integers and decimals in 38 digits, doubles in all bits."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import values_of
from everview.functions.arithmetic.exact import Sums

_DIGITS = 38
_WIDE = 75  # digits of sums that aren't stored; Arrow's sum of two such has 76, its maximum
_HIGH = 2**62


def sum_type(arrow: pa.DataType) -> pa.DataType:
    """The stored type of a sum; decimals for integers too, since Arrow's sums of 64 bits wrap."""
    if pa.types.is_floating(arrow):
        return pa.binary()
    return pa.decimal128(_DIGITS, arrow.scale if pa.types.is_decimal(arrow) else 0)


def weighted_sums(values: pa.Array, weights: np.ndarray, ids: np.ndarray, count: int) -> pa.Array:
    """The sums of values times weights for groups 0 to count - 1, without NULLs."""
    if pa.types.is_duration(values.type):
        values = values.cast(pa.int64())
    stored_type = sum_type(values.type)
    if stored_type == pa.binary():
        is_valid = values.is_valid().to_numpy(zero_copy_only=False)
        numbers = values.fill_null(0.0).cast(pa.float64()).to_numpy()
        return Sums.of(numbers[is_valid], weights[is_valid], ids[is_valid], count).encode()
    return add_up(_times(values, weights, stored_type), ids, count)


def add_up(values: pa.Array, ids: np.ndarray, count: int) -> pa.Array:
    """The sums of counts, or of sums, by group.

    Sums of decimals have more digits than the stored type: they have to fit only after they are
    added to the stored sum.
    """
    if pa.types.is_integer(values.type):
        return pa.array(np.bincount(ids, values.to_numpy(), count).astype(np.int64))
    wide = pa.decimal256(_WIDE, values.type.scale)
    if _may_wrap(values):
        values = values.cast(wide)
    # one more row for each group, so that the result has all groups in the order of their numbers
    zeros = pa.repeat(zero(values.type), count)
    table = pa.table(
        {
            "id": np.concatenate([np.arange(count), ids]),
            "value": pa.concat_arrays([zeros, values]),
        }
    )
    summed = table.group_by("id", use_threads=False).aggregate([("value", "sum")])
    return summed["value_sum"].cast(wide).combine_chunks()


def added(stored: pa.Array, change: pa.Array) -> pa.Array:
    """The stored sums plus a change. Raises ArrowInvalid beyond 38 digits."""
    if stored.type == pa.binary():
        return (Sums.decode(stored) + Sums.decode(change)).encode()
    if pa.types.is_decimal(stored.type):
        return pc.add(stored.cast(pa.decimal256(_DIGITS, stored.type.scale)), change).cast(
            stored.type
        )
    return pc.add_checked(stored, change)


def total(stored: pa.Array, count: np.ndarray, arrow: pa.DataType) -> pa.Array:
    """SUM: NULL over no values. Raises ArrowInvalid if it doesn't fit the type."""
    if stored.type == pa.binary():
        return pa.array(Sums.decode(stored).doubles(), mask=count == 0)
    return pc.if_else(pa.array(count > 0), _of_type(stored, arrow), pa.scalar(None, arrow))


def average(stored: pa.Array, count: np.ndarray, arrow: pa.DataType) -> pa.Array:
    """AVG as Spark has it: decimals and intervals rounded half up to the result's scale, others as
    doubles."""
    divisor = np.maximum(count, 1)
    if pa.types.is_duration(arrow):
        return _of_type(average(stored, count, stored.type), arrow)
    if not pa.types.is_decimal(arrow):
        exact = stored.type != pa.binary()
        sums = stored.cast(pa.float64()).to_numpy() if exact else Sums.decode(stored).doubles()
        return pa.array(sums / divisor, mask=count == 0)
    unscaled, factor = whole_numbers(stored), 10 ** (arrow.scale - stored.type.scale)
    largest = max(int(unscaled.max(initial=0)), -int(unscaled.min(initial=0)))
    if largest >= 2**61 // factor:
        unscaled, divisor = unscaled.astype(object), divisor.astype(object)
    size = (2 * abs(unscaled) * factor + divisor) // (2 * divisor)
    return _decimals(np.where(unscaled < 0, -size, size), count == 0, arrow)


def or_null(
    compute: Callable[..., pa.Array], stored: pa.Array, count: np.ndarray, arrow: pa.DataType
) -> pa.Array:
    """Totals or averages; NULL if one doesn't fit the type."""
    try:
        return compute(stored, count)
    except pa.ArrowInvalid:
        if len(stored) == 1:
            return pa.nulls(1, arrow)
        half = len(stored) // 2
        parts = [(stored[:half], count[:half]), (stored[half:], count[half:])]
        return pa.concat_arrays([or_null(compute, *part, arrow) for part in parts])


def _of_type(numbers: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Sums in the type of the result; the sum of intervals is in microseconds."""
    return (numbers.cast(pa.int64()) if pa.types.is_duration(arrow) else numbers).cast(arrow)


def _times(values: pa.Array, weights: np.ndarray, arrow: pa.DataType) -> pa.Array:
    """Values times weights, 0 for NULL; few rows have a weight other than 1 or -1."""
    if values.null_count:
        values = values.fill_null(zero(values.type))
    values = values.cast(arrow)
    product = pc.if_else(pa.array(weights > 0), values, pc.negate(values))
    if np.all(np.abs(weights) == 1):
        return product
    sizes = pa.array(np.abs(weights)).cast(pa.decimal256(19, 0))
    return pc.multiply(product.cast(pa.decimal256(_DIGITS, arrow.scale)), sizes)


def _may_wrap(values: pa.Array) -> bool:
    """Whether Arrow's sum of these decimals, which it doesn't check, might need over 128 bits."""
    if pa.types.is_decimal256(values.type):
        return True
    high = values_of(values).view(np.int64)[1::2]
    return bool(np.abs(high).max(initial=0) + 1 > _HIGH // max(len(values), 1))


def whole_numbers(sums: pa.Array) -> np.ndarray:
    """Counts, or decimals without their point: whole numbers of 64 bits if all fit, else
    Python's."""
    numbers: np.ndarray = sums.to_numpy() if pa.types.is_integer(sums.type) else _unscaled(sums)
    return numbers


def from_whole_numbers(numbers: np.ndarray, arrow: pa.DataType) -> pa.Array:
    """What whole numbers stand for in a type of counts or of decimals; decimals may need more
    digits than the type has, and get them."""
    if pa.types.is_integer(arrow):
        return pa.array(numbers, arrow)
    digits = pa.decimal256(_WIDE, arrow.scale) if numbers.dtype == object else arrow
    return _decimals(numbers, np.zeros(len(numbers), np.bool_), digits)


def _unscaled(decimals: pa.Array) -> np.ndarray:
    pairs = values_of(decimals).view(np.int64).reshape(-1, 2)
    low, high = pairs[:, 0], pairs[:, 1]
    if np.all(high == low >> 63):
        return low
    wide: np.ndarray = high.astype(object) * 2**64 + low.view(np.uint64).astype(object)
    return wide


def _decimals(unscaled: np.ndarray, missing: np.ndarray, arrow: pa.DataType) -> pa.Array:
    """Whole numbers as decimals of the type's scale. Raises ArrowInvalid if one doesn't fit."""
    if unscaled.dtype == object:
        bits = b"".join(int(n).to_bytes(32, "little", signed=True) for n in unscaled)
        widest = pa.decimal256(_WIDE, arrow.scale)
    else:
        bits = np.stack([unscaled, unscaled >> 63], axis=1).tobytes()
        widest = pa.decimal128(_DIGITS, arrow.scale)
    decimals = pa.Array.from_buffers(widest, len(unscaled), [None, pa.py_buffer(bits)]).cast(arrow)
    return pc.if_else(pa.array(missing), pa.scalar(None, arrow), decimals)


def zero(arrow: pa.DataType) -> pa.Scalar:
    """The zero of a type that can be summed, or of a stored sum."""
    if arrow == pa.binary():
        return pa.scalar(b"", arrow)
    number = Decimal(0).scaleb(-arrow.scale) if pa.types.is_decimal(arrow) else 0
    return pa.scalar(number, arrow)
