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
_WIDE = 75  # digits of what isn't kept; Arrow's sum of two such has one more, the most there is
_HIGH = 2**62


def sum_type(arrow: pa.DataType) -> pa.DataType:
    """What a sum is kept in; also for integers decimals, since Arrow's sums of 64 bits wrap."""
    if pa.types.is_floating(arrow):
        return pa.binary()
    return pa.decimal128(_DIGITS, arrow.scale if pa.types.is_decimal(arrow) else 0)


def weighted_sums(values: pa.Array, weights: np.ndarray, ids: np.ndarray, count: int) -> pa.Array:
    """The sums of values times weights for groups 0 to count - 1, NULLs left out."""
    if pa.types.is_duration(values.type):
        values = values.cast(pa.int64())
    kept = sum_type(values.type)
    if kept == pa.binary():
        there = values.is_valid().to_numpy(zero_copy_only=False)
        numbers = values.fill_null(0.0).cast(pa.float64()).to_numpy()
        return Sums.of(numbers[there], weights[there], ids[there], count).encode()
    return add_up(_times(values, weights, kept), ids, count)


def add_up(values: pa.Array, ids: np.ndarray, count: int) -> pa.Array:
    """The sums of values by group, of sums that are kept already or of counts.

    Those of decimals have more digits than can be kept: only with what is kept they must fit.
    """
    if pa.types.is_integer(values.type):
        return pa.array(np.bincount(ids, values.to_numpy(), count).astype(np.int64))
    wide = pa.decimal256(_WIDE, values.type.scale)
    if _may_wrap(values):
        values = values.cast(wide)
    # one more row for each group: all of them come out, in the order of their numbers
    zeros = pa.repeat(zero(values.type), count)
    table = pa.table(
        {
            "id": np.concatenate([np.arange(count), ids]),
            "value": pa.concat_arrays([zeros, values]),
        }
    )
    summed = table.group_by("id", use_threads=False).aggregate([("value", "sum")])
    return summed["value_sum"].cast(wide).combine_chunks()


def added(kept: pa.Array, change: pa.Array) -> pa.Array:
    """What is kept, with a change added. Raises ArrowInvalid beyond 38 digits."""
    if kept.type == pa.binary():
        return (Sums.decode(kept) + Sums.decode(change)).encode()
    if pa.types.is_decimal(kept.type):
        return pc.add(kept.cast(pa.decimal256(_DIGITS, kept.type.scale)), change).cast(kept.type)
    return pc.add_checked(kept, change)


def total(kept: pa.Array, count: np.ndarray, arrow: pa.DataType) -> pa.Array:
    """SUM: NULL over no values. Raises ArrowInvalid if it doesn't fit the type."""
    if kept.type == pa.binary():
        return pa.array(Sums.decode(kept).doubles(), mask=count == 0)
    return pc.if_else(pa.array(count > 0), _of_type(kept, arrow), pa.scalar(None, arrow))


def average(kept: pa.Array, count: np.ndarray, arrow: pa.DataType) -> pa.Array:
    """AVG as Spark has it: decimals and intervals rounded half up to the result's scale, others as
    doubles."""
    some = np.maximum(count, 1)
    if pa.types.is_duration(arrow):
        return _of_type(average(kept, count, kept.type), arrow)
    if not pa.types.is_decimal(arrow):
        exact = kept.type != pa.binary()
        sums = kept.cast(pa.float64()).to_numpy() if exact else Sums.decode(kept).doubles()
        return pa.array(sums / some, mask=count == 0)
    unscaled, factor = _unscaled(kept), 10 ** (arrow.scale - kept.type.scale)
    largest = max(int(unscaled.max(initial=0)), -int(unscaled.min(initial=0)))
    if largest >= 2**61 // factor:
        unscaled, some = unscaled.astype(object), some.astype(object)
    size = (2 * abs(unscaled) * factor + some) // (2 * some)
    return _decimals(np.where(unscaled < 0, -size, size), count == 0, arrow)


def or_null(
    compute: Callable[..., pa.Array], kept: pa.Array, count: np.ndarray, arrow: pa.DataType
) -> pa.Array:
    """Totals or averages, NULL where one doesn't fit the type."""
    try:
        return compute(kept, count)
    except pa.ArrowInvalid:
        if len(kept) == 1:
            return pa.nulls(1, arrow)
        half = len(kept) // 2
        parts = [(kept[:half], count[:half]), (kept[half:], count[half:])]
        return pa.concat_arrays([or_null(compute, *part, arrow) for part in parts])


def _of_type(numbers: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Sums of decimals as what was summed; of intervals the microseconds were."""
    return (numbers.cast(pa.int64()) if pa.types.is_duration(arrow) else numbers).cast(arrow)


def _times(values: pa.Array, weights: np.ndarray, arrow: pa.DataType) -> pa.Array:
    """Values times weights, 0 where NULL; few rows have another weight than 1 or -1."""
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


def _unscaled(decimals: pa.Array) -> np.ndarray:
    """Decimals as whole numbers: of 64 bits if all fit, else of Python's."""
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
    made = pa.Array.from_buffers(widest, len(unscaled), [None, pa.py_buffer(bits)]).cast(arrow)
    return pc.if_else(pa.array(missing), pa.scalar(None, arrow), made)


def zero(arrow: pa.DataType) -> pa.Scalar:
    """The zero of a type that can be summed, as it is kept or as it comes."""
    if arrow == pa.binary():
        return pa.scalar(b"", arrow)
    number = Decimal(0).scaleb(-arrow.scale) if pa.types.is_decimal(arrow) else 0
    return pa.scalar(number, arrow)
