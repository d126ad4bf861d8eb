"""Primary keys as bytes whose order is the order of the values.

Columns are encoded one after the other; each encoding is order-preserving and prefix-free, so the
composite is too. Equal keys have equal bytes: -0.0 is 0.0 and all NaNs are one, above all numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import (
    Bytes,
    data_of,
    fixed_binary,
    offsets_of,
    values_of,
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


def regions_of(keys: list[bytes], regions: int) -> npt.NDArray[np.uint16]:
    """The region of each key: CRC-32 of its bytes, scaled to the number of regions."""
    hashes = np.fromiter(map(zlib.crc32, keys), np.uint64, len(keys))
    return ((hashes * np.uint64(regions)) >> np.uint64(32)).astype(np.uint16)


def region_of(key: bytes, regions: int) -> int:
    """`regions_of` for one key."""
    return zlib.crc32(key) * regions >> 32


def _encode_column(array: pa.Array) -> pa.BinaryArray:
    if is_variable(array.type):
        return _terminated(array)
    matrix = _ordered_bytes(array)
    return fixed_binary(matrix, matrix.shape[1])


def _terminated(array: pa.Array) -> pa.BinaryArray:
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
        swapped = halves[:, ::-1].astype(">u8")
        swapped[:, 0] ^= np.uint64(1 << 63)
        return _rows(swapped, 16)
    values = values_of(array)
    width = values.dtype.itemsize
    unsigned = np.dtype(f"u{width}")
    if values.dtype.kind == "f":
        values = values + 0.0  # -0.0 becomes 0.0
        values[np.isnan(values)] = np.nan
        bits = values.view(unsigned)
        sign = unsigned.type(1 << (8 * width - 1))
        ordered: npt.NDArray[Any] = np.where(bits & sign, ~bits, bits | sign)
    elif values.dtype.kind == "i":
        ordered = values.view(unsigned) ^ unsigned.type(1 << (8 * width - 1))
    else:
        ordered = values
    return _rows(ordered.astype(unsigned.newbyteorder(">")), width)


def _rows(values: npt.NDArray[Any], width: int) -> Bytes:
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1, width)
