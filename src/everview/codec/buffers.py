"""The few moves between Arrow buffers and numpy that the codecs share; none copies without need."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from everview.errors import DataError

MOST_BYTES = 2**31 - 1  # that one of Arrow's arrays of texts has room for
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_STORAGE: dict[pa.DataType, np.dtype[Any]] = {
    pa.bool_(): np.dtype("u1"),
    pa.uint8(): np.dtype("u1"),
    pa.int8(): np.dtype("i1"),
    pa.int16(): np.dtype("<i2"),
    pa.int32(): np.dtype("<i4"),
    pa.int64(): np.dtype("<i8"),
    pa.float32(): np.dtype("<f4"),
    pa.float64(): np.dtype("<f8"),
    pa.date32(): np.dtype("<i4"),
    pa.timestamp("us"): np.dtype("<i8"),
    pa.timestamp("us", tz="UTC"): np.dtype("<i8"),
    pa.duration("us"): np.dtype("<i8"),
}
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_HIGH = np.uint64(32)
_SHORT = 32  # bytes


def binary_array(value_bytes: Any, offsets: npt.NDArray[Any]) -> pa.BinaryArray:
    """A binary array over existing bytes."""
    check_size(int(offsets[-1]))
    offsets = np.ascontiguousarray(offsets, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(value_bytes)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def check_size(size: int) -> None:
    """Raises `DataError` if rows have more bytes than one batch can have."""
    if size > MOST_BYTES:
        raise DataError(
            f"{size:,} bytes of rows would be needed at once, and {MOST_BYTES:,} are the most; "
            "take fewer rows, or fewer or shorter columns"
        )


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The rows of a table, at least one, as one batch."""
    first, *rest = table.combine_chunks().to_batches()
    if rest:
        check_size(table.nbytes)
    return first


def fixed_binary(matrix: npt.NDArray[Any], width: int) -> pa.BinaryArray:
    """A binary array whose values are the rows of a packed matrix."""
    return binary_array(matrix, np.arange(len(matrix) + 1, dtype=np.int64) * width)


def zeros(lengths: Ints) -> pa.BinaryArray:
    """Values of zero bytes, of the given lengths, to pad others with."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return binary_array(np.zeros(int(offsets[-1]), np.uint8), offsets)


def offsets_of(array: pa.Array) -> npt.NDArray[np.int32]:
    """Offsets of a string or binary array, relative to its data buffer."""
    if len(array) == 0:
        return np.zeros(1, np.int32)
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    return offsets[array.offset : array.offset + len(array) + 1]


def data_of(array: pa.Array) -> Bytes:
    """The data buffer of a string or binary array."""
    buffer = array.buffers()[2]
    return np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def values_of(array: pa.Array) -> npt.NDArray[Any]:
    """Values of a fixed-width array as stored in a row; zero where NULL."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    dtype = storage_dtype(array.type)
    if len(array) == 0 or array.null_count == len(array):
        return np.zeros(len(array), dtype)
    if pa.types.is_decimal(array.type):
        pairs = np.frombuffer(array.buffers()[1], np.dtype("V16"))
        values = pairs[array.offset : array.offset + len(array)]
        if dtype.itemsize == 8:
            values = np.ascontiguousarray(values.view(np.int64)[::2])
    else:
        flat = np.frombuffer(array.buffers()[1], dtype)
        values = flat[array.offset : array.offset + len(array)]
    if array.null_count:
        values = values.copy()
        values[~valid_of(array)] = np.zeros(1, dtype)[0]
    return values


def valid_of(array: pa.Array) -> npt.NDArray[np.bool_]:
    """True where a value is not NULL."""
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    return array.is_valid().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def storage_dtype(arrow: pa.DataType) -> np.dtype[Any]:
    """How a fixed-width column lies in a row."""
    if pa.types.is_decimal(arrow):
        return np.dtype("<i8") if arrow.precision <= 18 else np.dtype("V16")
    return _STORAGE[arrow]


def array_of(arrow: pa.DataType, values: npt.NDArray[Any], valid: pa.Buffer | None) -> pa.Array:
    """The inverse of `values_of`."""
    if pa.types.is_boolean(arrow):
        value_buffer = aligned(np.packbits(values, bitorder="little"))
    elif pa.types.is_decimal(arrow) and values.dtype.itemsize == 8:
        value_buffer = pa.allocate_buffer(16 * len(values))
        halves = np.frombuffer(value_buffer, np.int64).reshape(-1, 2)
        halves[:, 0] = values
        np.right_shift(values, 63, out=halves[:, 1])
    else:
        value_buffer = aligned(values)
    return pa.Array.from_buffers(arrow, len(values), [valid, value_buffer])


def aligned(values: npt.NDArray[Any]) -> pa.Buffer:
    """A copy at an address that is aligned as Arrow recommends."""
    buffer = pa.allocate_buffer(values.nbytes)
    np.frombuffer(buffer, values.dtype)[:] = values
    return buffer


def gather(buffer: Any, starts: Ints, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Values of `dtype` read at arbitrary byte positions."""
    if len(starts) == 0:
        return np.zeros(0, dtype)
    room = len(buffer) - dtype.itemsize + 1
    window = np.ndarray((room,), f"V{dtype.itemsize}", buffer, strides=(1,))
    values = window[starts]
    return values.view(dtype.base).reshape(len(starts), *dtype.shape)


def word_sums(pieces: Any, starts: Ints) -> Words:
    """Sums modulo 2^64 of the 8-byte words of each piece; pieces lie side by side from starts."""
    words = np.frombuffer(pieces, np.uint64)
    return np.add.reduceat(words, starts >> 3) if len(starts) else np.zeros(0, np.uint64)


def fold(sums: Words) -> npt.NDArray[np.uint32]:
    """A 32-bit checksum of a word sum: every single changed word changes it."""
    return ((sums * GOLDEN) >> _HIGH).astype(np.uint32)


def word_sum(piece: Any) -> int:
    """The sum modulo 2^64 of the 8-byte words of one piece."""
    return int(np.add.reduce(np.frombuffer(piece, np.uint64)))


def fold_one(total: int) -> int:
    """`fold` for one sum."""
    return total * int(GOLDEN) % (1 << 64) >> 32


def ascending(texts: pa.BinaryArray) -> Ints:
    """The places of byte strings in their order; those that are all equally long, and not very,
    are sorted as numbers."""
    offsets = offsets_of(texts)
    width = int(offsets[1] - offsets[0]) if len(texts) else 0
    if not 0 < width <= _SHORT or np.any(np.diff(offsets) != width):
        return pc.array_sort_indices(texts).to_numpy().astype(np.int64)  # type: ignore[no-any-return]
    padded_texts = np.zeros((len(texts), -(-width // 8) * 8), np.uint8)
    padded_texts[:, -width:] = data_of(texts)[offsets[0] : offsets[-1]].reshape(-1, width)
    words = padded_texts.view(">u8").astype(np.uint64).T
    differing_words = [word for word in words if np.any(word != word[0])] or [words[0]]
    if len(differing_words) == 1:
        return np.argsort(differing_words[0])
    return np.lexsort(differing_words[::-1])
