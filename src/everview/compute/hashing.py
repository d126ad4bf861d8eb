"""Spark's `xxhash64` over Arrow columns: the hash that places rows, on every engine and here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh64_intdigest

Hashes = npt.NDArray[np.uint64]
_SEED = 42
_DAY_ZERO = date(1970, 1, 1).toordinal()
_1, _2, _3, _4, _5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


def is_hashed(type_: pa.DataType) -> bool:
    """Whether values of a type are hashed here."""
    return bool(
        pa.types.is_integer(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_date32(type_)
        or pa.types.is_timestamp(type_)
        or pa.types.is_string(type_)
        or pa.types.is_binary(type_)
        or (pa.types.is_decimal128(type_) and type_.precision <= 18)
    )


def hashes(columns: Sequence[pa.Array], length: int) -> npt.NDArray[np.int64]:
    """The hash of each row over some columns; a NULL leaves the hash of the columns before it."""
    result: Hashes = np.full(length, _SEED, np.uint64)
    for column in columns:
        hashed = _of_column(column, result)
        is_null = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        result = hashed if is_null is None else np.where(is_null, result, hashed)
    return result.view(np.int64)


def hash_of(values: Sequence[tuple[pa.DataType, Any]]) -> int | None:
    """The hash of one row over some columns; None where a value isn't plainly of its type. All of
    Spark's hashes are those of a value's bytes, with the hash of the values before as the seed."""
    result = _SEED
    for type_, value in values:
        if value is None:
            continue
        data = _bytes_of(type_, value)
        if data is None:
            return None
        result = xxh64_intdigest(data, result)
    return result - (1 << 64) if result >> 63 else result


def _bytes_of(type_: pa.DataType, value: Any) -> bytes | None:
    if type(value) is int and pa.types.is_integer(type_):
        width = 8 if type_ == pa.int64() else 4
        fits = -(1 << 8 * width - 1) <= value < 1 << 8 * width - 1
        return value.to_bytes(width, "little", signed=True) if fits else None
    if type(value) is str and pa.types.is_string(type_):
        return value.encode()
    if type(value) is date and pa.types.is_date32(type_):
        return (value.toordinal() - _DAY_ZERO).to_bytes(4, "little", signed=True)
    return None


def _of_column(column: pa.Array, seeds: Hashes) -> Hashes:
    type_ = column.type
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        values = column.cast(pa.binary()).to_pylist()
        pairs = zip(values, seeds.tolist(), strict=True)
        return np.array([xxh64_intdigest(value or b"", seed) for value, seed in pairs], np.uint64)
    if pa.types.is_decimal(type_):
        return _of_longs(_unscaled(column), seeds)
    if pa.types.is_timestamp(type_) or pa.types.is_int64(type_):
        return _of_longs(_filled(column.view(pa.int64())), seeds)
    if pa.types.is_date32(type_):
        column = column.view(pa.int32())
    return _of_ints(_filled(column.cast(pa.int32())), seeds)


def _filled(column: pa.Array) -> Any:
    return pc.fill_null(column, 0).to_numpy(zero_copy_only=False)


def _unscaled(column: pa.Array) -> np.ndarray:
    """The digits of decimals of up to 18 digits as 64-bit integers."""
    words = np.frombuffer(column.buffers()[1], np.int64)
    start = column.offset * 2
    return words[start : start + 2 * len(column) : 2]


def _of_longs(values: np.ndarray, seeds: Hashes) -> Hashes:
    mixed = _rotated(values.astype(np.int64).view(np.uint64) * _2, 31) * _1
    state = (seeds + _5 + np.uint64(8)) ^ mixed
    return _finished(_rotated(state, 27) * _1 + _4)


def _of_ints(values: np.ndarray, seeds: Hashes) -> Hashes:
    words = values.astype(np.int32).view(np.uint32).astype(np.uint64)
    state = (seeds + _5 + np.uint64(4)) ^ (words * _1)
    return _finished(_rotated(state, 23) * _2 + _3)


def _rotated(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _finished(state: Hashes) -> Hashes:
    state = (state ^ (state >> np.uint64(33))) * _2
    state = (state ^ (state >> np.uint64(29))) * _3
    return state ^ (state >> np.uint64(32))
