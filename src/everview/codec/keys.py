"""Primary keys as bytes whose order is the order of the values.

Columns are encoded one after the other; each encoding is order-preserving and prefix-free, so the
composite is too. Equal keys have equal bytes: -0.0 is 0.0 and all NaNs are one, above all numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import (
    Bytes,
    Words,
    array_of,
    data_of,
    fixed_binary,
    offsets_of,
    storage_dtype,
    values_of,
    zeros,
)
from everview.schema import Column, is_variable

_END = b"\x00\x00"
_ZERO, _ESCAPED_ZERO = b"\x00", b"\x00\xff"


class KeyCodec:
    """Encodes the key columns of one table."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.types = [column.type for column in columns]
        self.variable = any(map(is_variable, self.types))

    def encode(self, columns: Sequence[pa.Array]) -> pa.BinaryArray:
        """One key for each row; `columns` may be the leading ones only, to bound a range."""
        if any(is_variable(array.type) for array in columns):
            parts = [_encode_column(array) for array in columns]
            return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))
        matrix = np.concatenate([_ordered_bytes(array) for array in columns], axis=1)
        return fixed_binary(matrix, matrix.shape[1])

    def decode(self, keys: list[bytes]) -> pa.Array:
        """The values of keys of one column."""
        (arrow,) = self.types
        if is_variable(arrow):
            values = [key[:-2].replace(_ESCAPED_ZERO, _ZERO) for key in keys]
            return pa.array(values, pa.binary()).cast(arrow)
        dtype = storage_dtype(arrow)
        return array_of(arrow, _values(b"".join(keys), dtype), None)


def regions_of(keys: pa.BinaryArray, regions: int) -> npt.NDArray[np.uint16]:
    """The region of each key: a multilinear hash of its 8-byte words, scaled to the regions."""
    offsets = offsets_of(keys).astype(np.int64)
    lengths = np.diff(offsets)
    if len(lengths) and lengths.min() == lengths.max():
        width = int(lengths[0])
        padded_keys = np.zeros((len(lengths), -(-width // 8) * 8), np.uint8)
        padded_keys[:, :width] = data_of(keys)[offsets[0] : offsets[-1]].reshape(-1, width)
        words: Words = padded_keys.view("<u8")
        hashes: Words = (words * _multipliers(words.shape[1])).sum(axis=1, dtype=np.uint64)
    else:
        padding = zeros(-lengths % 8)
        padded_array = pc.binary_join_element_wise(keys, padding, pa.scalar(b"", pa.binary()))
        starts = offsets_of(padded_array).astype(np.int64) >> 3
        words = data_of(padded_array)[: starts[-1] << 3].view("<u8")
        places = np.arange(len(words)) - np.repeat(starts[:-1], np.diff(starts))
        factors = _multipliers(int(np.diff(starts).max(initial=0)))
        hashes = np.add.reduceat(words * factors[places], starts[:-1])
    return ((hashes >> np.uint64(32)) * np.uint64(regions) >> np.uint64(32)).astype(np.uint16)


def region_of(key: bytes, regions: int) -> int:
    """`regions_of` for one key."""
    count = -(-len(key) // 8)
    words = struct.unpack(f"<{count}Q", key.ljust(count * 8, b"\0"))
    factors: list[int] = _multipliers(count).tolist()
    total: int = sum(word * factor for word, factor in zip(words, factors, strict=True))
    return (total % (1 << 64) >> 32) * regions >> 32


@lru_cache(16)
def _multipliers(count: int) -> npt.NDArray[np.uint64]:
    """Odd numbers that look random: multiples of 2^64 / golden ratio, mixed (SplitMix64)."""
    numbers = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31)) | np.uint64(1)


def _encode_column(array: pa.Array) -> pa.BinaryArray:
    if is_variable(array.type):
        return _terminate(array)
    matrix = _ordered_bytes(array)
    return fixed_binary(matrix, matrix.shape[1])


def _terminate(array: pa.Array) -> pa.BinaryArray:
    """Zero bytes escaped as 00 FF, then 00 00: a prefix sorts before what it begins."""
    values = array.cast(pa.binary())
    offsets = offsets_of(values)
    if not data_of(values)[offsets[0] : offsets[-1]].all():
        values = pc.replace_substring(values, pattern=_ZERO, replacement=_ESCAPED_ZERO)
    return pc.binary_join_element_wise(
        values, pa.scalar(_END, pa.binary()), pa.scalar(b"", pa.binary())
    )


def _ordered_bytes(array: pa.Array) -> Bytes:
    """Fixed-width values as big-endian unsigned integers in the same order, one row each."""
    if pa.types.is_decimal(array.type) and array.type.precision > 18:
        halves = values_of(array).view(np.uint64).reshape(-1, 2)
        big_endian = halves[:, ::-1].astype(">u8")
        big_endian[:, 0] ^= np.uint64(1 << 63)
        return _rows(big_endian, 16)
    values = values_of(array)
    width = values.dtype.itemsize
    unsigned = np.dtype(f"u{width}")
    if values.dtype.kind == "f":
        values = values + 0.0  # -0.0 becomes 0.0
        values[np.isnan(values)] = np.nan
        bits = values.view(unsigned)
        sign = unsigned.type(1 << (8 * width - 1))
        sortable: npt.NDArray[Any] = np.where(bits & sign, ~bits, bits | sign)
    elif values.dtype.kind == "i":
        sortable = values.view(unsigned) ^ unsigned.type(1 << (8 * width - 1))
    else:
        sortable = values
    return _rows(sortable.astype(unsigned.newbyteorder(">")), width)


def _values(key_bytes: bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The inverse of `_ordered_bytes`."""
    if dtype.itemsize == 16:
        halves = np.frombuffer(key_bytes, ">u8").reshape(-1, 2).astype("<u8")
        halves[:, 0] ^= np.uint64(1 << 63)
        return np.ascontiguousarray(halves[:, ::-1]).view(dtype).ravel()
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits = np.frombuffer(key_bytes, unsigned.newbyteorder(">")).astype(unsigned)
    sign = unsigned.type(1 << (8 * dtype.itemsize - 1))
    if dtype.kind == "f":
        bits = np.where(bits & sign, bits ^ sign, ~bits)
    elif dtype.kind == "i":
        bits = bits ^ sign
    return bits.view(dtype)


def _rows(values: npt.NDArray[Any], width: int) -> Bytes:
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1, width)
