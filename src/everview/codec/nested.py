"""Values of different lengths as bytes, whole columns at a time: texts, arrays, structs, maps.

    array   u32 how many items; a byte for each, 1 if it is NULL; then for items of fixed width
            their values, for others the u32 ends of their bytes and these bytes
    struct  the row of its fields: null bitmap, values of fixed width, u32 ends of the others and
            their bytes
    map     the array of its entries, which are structs of key and value, in the order of the keys

Equal values have equal bytes. NULL is an empty array or map, or a struct of NULLs: that it is none
is said elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import (
    Bytes,
    Ints,
    aligned,
    array_of,
    binary_array,
    data_of,
    fixed_binary,
    gather,
    offsets_of,
    storage_dtype,
    valid_of,
    values_of,
)
from everview.codec.keys import KeyCodec
from everview.schema import Column, is_nested, is_variable

_EMPTY = pa.scalar(b"", pa.binary())
_COUNT = np.dtype("<u4")


class Values(Protocol):
    """Encodes and decodes values of one type, each as a byte string."""

    def encode(self, array: pa.Array) -> pa.BinaryArray:
        """The bytes of every value, none of them NULL."""

    def decode(self, value_bytes: pa.BinaryArray, valid: pa.Buffer | None) -> pa.Array:
        """The values, NULL where `valid` says so; raises nothing for bytes that `encode` gave."""


class Rows(Protocol):
    """Encodes and decodes the fields of a struct, as rows."""

    def encode(self, batch: pa.RecordBatch) -> pa.BinaryArray: ...

    def decode(self, row_bytes: Any, starts: Ints, columns: Sequence[int]) -> list[pa.Array]: ...


# Makes the codec of a struct's fields.
RowsOf = Callable[[Sequence[Column]], Rows]


def values_codec(arrow: pa.DataType, rows_of: RowsOf) -> Values:
    """The codec of a type whose values have different lengths."""
    if pa.types.is_list(arrow):
        return _Arrays(arrow, rows_of)
    if pa.types.is_struct(arrow):
        return _Structs(arrow, rows_of)
    if pa.types.is_map(arrow):
        return _Maps(arrow, rows_of)
    return _Texts(arrow)


class _Texts:
    def __init__(self, arrow: pa.DataType) -> None:
        self._arrow = arrow

    def encode(self, array: pa.Array) -> pa.BinaryArray:
        binary = array.cast(pa.binary())
        return binary.fill_null(b"") if binary.null_count else binary

    def decode(self, value_bytes: pa.BinaryArray, valid: pa.Buffer | None) -> pa.Array:
        offsets = pa.py_buffer(np.ascontiguousarray(offsets_of(value_bytes)))
        buffers = [valid, offsets, value_bytes.buffers()[2]]
        return pa.Array.from_buffers(self._arrow, len(value_bytes), buffers)


class _Structs:
    def __init__(self, arrow: pa.DataType, rows_of: RowsOf) -> None:
        self._arrow = arrow
        self._rows = rows_of([Column(str(i), field.type) for i, field in enumerate(arrow)])

    def encode(self, array: pa.StructArray) -> pa.BinaryArray:
        fields = array.flatten()
        return self._rows.encode(pa.record_batch(fields, [str(i) for i in range(len(fields))]))

    def decode(self, value_bytes: pa.BinaryArray, valid: pa.Buffer | None) -> pa.Array:
        starts = offsets_of(value_bytes)[:-1].astype(np.int64)
        fields = self._rows.decode(data_of(value_bytes), starts, range(self._arrow.num_fields))
        return pa.Array.from_buffers(self._arrow, len(value_bytes), [valid], children=fields)


class _Arrays:
    def __init__(self, arrow: pa.DataType, rows_of: RowsOf) -> None:
        self._arrow = arrow
        self._items = _Items(arrow.value_type, rows_of)

    def encode(self, array: pa.Array) -> pa.BinaryArray:
        return self._items.encode(*items_of(array))

    def decode(self, value_bytes: pa.BinaryArray, valid: pa.Buffer | None) -> pa.Array:
        offsets, items = self._items.decode(value_bytes)
        return pa.Array.from_buffers(
            self._arrow, len(value_bytes), [valid, pa.py_buffer(offsets)], children=[items]
        )


class _Maps:
    def __init__(self, arrow: pa.DataType, rows_of: RowsOf) -> None:
        self._arrow = arrow
        entry = pa.struct([("key", arrow.key_type), ("value", arrow.item_type)])
        self._entries = _Structs(entry, rows_of)
        self._items = _Items(entry, rows_of)
        self._rows_of = rows_of

    def encode(self, array: pa.MapArray) -> pa.BinaryArray:
        """Entries are in the order of their keys, and with equal keys in that of their bytes."""
        offsets, entries = items_of(array)
        entry_bytes = self._entries.encode(entries)
        sort_columns = {
            "map": np.repeat(np.arange(len(array)), np.diff(offsets)),
            "key": key_bytes(entries.field(0), self._rows_of),
            "entry": entry_bytes,
        }
        order = pc.sort_indices(
            pa.table(sort_columns), [(name, "ascending") for name in sort_columns]
        )
        return _lists(offsets, valid_of(entries), entry_bytes.take(order))

    def decode(self, value_bytes: pa.BinaryArray, valid: pa.Buffer | None) -> pa.Array:
        offsets, entries = self._items.decode(value_bytes)
        entry_type = self._arrow.field(0).type
        entries = pa.Array.from_buffers(
            entry_type, len(entries), [None], children=entries.flatten()
        )
        return pa.Array.from_buffers(
            self._arrow, len(value_bytes), [valid, pa.py_buffer(offsets)], children=[entries]
        )


class _Items:
    """The items of lists, one after the other."""

    def __init__(self, arrow: pa.DataType, rows_of: RowsOf) -> None:
        self._arrow = arrow
        self._variable = values_codec(arrow, rows_of) if is_variable(arrow) else None

    def encode(self, offsets: Ints, items: pa.Array) -> pa.BinaryArray:
        """One byte string for each list; `offsets` say where it begins among the items."""
        if self._variable is not None:
            return _lists(offsets, valid_of(items), self._variable.encode(items))
        values = np.ascontiguousarray(values_of(items))
        bytes_ = binary_array(values, offsets * values.dtype.itemsize)
        return _join(offsets, valid_of(items), bytes_)

    def decode(self, list_bytes: pa.BinaryArray) -> tuple[Any, pa.Array]:
        """Where each list begins among all items, and the items."""
        if len(list_bytes) == 0:
            return np.zeros(1, np.int32), pa.array([], self._arrow)
        buffer, borders = data_of(list_bytes), offsets_of(list_bytes).astype(np.int64)
        counts = gather(buffer, borders[:-1], _COUNT).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        nulls_at = borders[:-1] + _COUNT.itemsize
        values_at = nulls_at + counts
        nulls = _between(buffer, nulls_at, values_at)[0].view(np.bool_)
        valid = aligned(np.packbits(~nulls, bitorder="little")) if nulls.any() else None
        if self._variable is None:
            values, _ = _between(buffer, values_at, borders[1:])
            return offsets, array_of(self._arrow, values.view(storage_dtype(self._arrow)), valid)
        bytes_at = values_at + counts * _COUNT.itemsize
        ends = _between(buffer, values_at, bytes_at)[0].view(_COUNT)
        values, starts = _between(buffer, bytes_at, borders[1:])
        places = np.concatenate([[0], ends + np.repeat(starts, counts)])
        return offsets, self._variable.decode(binary_array(values, places), valid)


def _lists(offsets: Ints, valid: npt.NDArray[np.bool_], items: pa.BinaryArray) -> pa.BinaryArray:
    """Lists of items that have different lengths."""
    places = offsets_of(items).astype(np.int64)
    ends = (places[1:] - np.repeat(places[offsets[:-1]], np.diff(offsets))).astype(_COUNT)
    return _join(
        offsets,
        valid,
        binary_array(ends, offsets * _COUNT.itemsize),
        binary_array(data_of(items), places[offsets]),
    )


def _join(offsets: Ints, valid: npt.NDArray[np.bool_], *parts: pa.BinaryArray) -> pa.BinaryArray:
    counts = fixed_binary(np.diff(offsets).astype(_COUNT), _COUNT.itemsize)
    nulls = binary_array((~valid).view(np.uint8), offsets)
    return pc.binary_join_element_wise(counts, nulls, *parts, _EMPTY)


def items_of(array: pa.Array) -> tuple[Ints, pa.Array]:
    """Where each list or map begins among all items, and the items; none of them under a NULL."""
    if pa.types.is_map(array.type):
        array = array.cast(pa.list_(array.type.field(0)))
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), array.flatten()


def key_bytes(keys: pa.Array, rows_of: RowsOf) -> pa.BinaryArray:
    """Keys of maps as bytes, equal exactly when the keys are; in their order, unless nested."""
    if is_nested(keys.type):
        return values_codec(keys.type, rows_of).encode(normal(keys))
    return KeyCodec([Column("key", keys.type)]).encode([keys])


def normal(array: pa.Array) -> pa.Array:
    """The values with equal floats written alike: -0.0 is 0.0 and there is one NaN, as in Spark."""
    arrow = array.type
    if pa.types.is_floating(arrow):
        zero, nan = (pa.scalar(value, arrow) for value in (0.0, np.nan))
        return pc.if_else(pc.is_nan(array), nan, pc.add(array, zero))
    if not is_nested(arrow):
        return array
    valid = aligned(np.packbits(valid_of(array), bitorder="little")) if array.null_count else None
    if pa.types.is_struct(arrow):
        fields = [normal(field) for field in array.flatten()]
        return pa.Array.from_buffers(arrow, len(array), [valid], children=fields)
    offsets, items = items_of(array)
    buffers = [valid, pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(arrow, len(array), buffers, children=[normal(items)])


def _between(buffer: Bytes, starts: Ints, ends: Ints) -> tuple[Bytes, Ints]:
    """The bytes from each start to its end, side by side, and where each begins there."""
    borders = np.empty(2 * len(starts) + 1, np.int64)
    borders[:-1:2], borders[1::2], borders[-1] = starts, ends, ends[-1]
    pieces = binary_array(buffer, borders)
    wanted_pieces = pieces.take(pa.array(np.arange(0, len(pieces), 2, dtype=np.int32)))
    offsets = offsets_of(wanted_pieces).astype(np.int64)
    return data_of(wanted_pieces)[: offsets[-1]], offsets[:-1]
