"""Rows as bytes: a header, a null bitmap, a fixed part, a variable part.

    0  u8  row format (1)        1  u8  zero       2  u16 schema version
    4  u32 checksum              8  u64 version: the sequence of the change that wrote the row
    16 null bitmap, then the fixed part, then the variable part, then zeros to a multiple of 8

A row holds all its columns, the key's too. Batches are encoded and decoded column by column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import (
    Ints,
    Words,
    aligned,
    array_of,
    binary_array,
    data_of,
    fixed_binary,
    fold,
    gather,
    offsets_of,
    storage_dtype,
    valid_of,
    values_of,
    word_sums,
)
from everview.errors import Damaged
from everview.schema import Column, is_variable

ROW_FORMAT = 1
HEADER = 16
_EMPTY = pa.scalar(b"", pa.binary())
_CHECKSUM_MASK = np.uint64(0xFFFF_FFFF)


class RowCodec:
    """Encodes and decodes rows of one schema version."""

    def __init__(self, columns: Sequence[Column], version: int) -> None:
        self.columns = tuple(columns)
        self.version = version
        self._head = np.uint64(ROW_FORMAT | version << 16)
        fields: list[tuple[str, Any]] = [
            ("head", "<u8"),
            ("version", "<u8"),
            ("nulls", "u1", ((len(self.columns) + 7) // 8,)),  # type: ignore[list-item]
        ]
        fields += [(f"c{i}", storage_dtype(c.type)) for i, c in enumerate(self.columns)]
        self.dtype = np.dtype(fields)
        self._variable = [i for i, c in enumerate(self.columns) if is_variable(c.type)]
        self._place = {column: place for place, column in enumerate(self._variable)}

    def encode(self, batch: pa.RecordBatch) -> Encoded:
        """Rows of the batch, not yet stamped with their versions."""
        count = batch.num_rows
        fixed = np.zeros(count, self.dtype)
        fixed["head"] = self._head
        ends = np.zeros(count, np.int64)
        variable = []
        for i, column in enumerate(self.columns):
            array = batch.column(i)
            if array.null_count:
                fixed["nulls"][:, i >> 3] |= (~valid_of(array)).view(np.uint8) << np.uint8(i & 7)
            if is_variable(column.type):
                array = _present_bytes(array)
                ends += np.diff(offsets_of(array))
                if count and ends.max() > 0xFFFF_FFF0:
                    raise OverflowError("a row's strings exceed 4 GiB")
                variable.append(array)
                fixed[f"c{i}"] = ends
            else:
                fixed[f"c{i}"] = values_of(array)
        padding = -(self.dtype.itemsize + ends) % 8
        parts = [fixed_binary(fixed, self.dtype.itemsize), *variable, _zeros(padding)]
        return Encoded(pc.binary_join_element_wise(*parts, _EMPTY))

    def decode(
        self, data: Any, starts: Ints, columns: Sequence[int], checked: bool = False
    ) -> list[pa.Array]:
        """The chosen columns of the rows at `starts` in `data`, in ascending places.

        Unless `checked` by an enclosing checksum, the rows must fill `data` side by side, and
        each is held against its own. Raises `Damaged` for the first row that fails.
        """
        if not checked:
            self._check(data, starts)
        fixed = gather(data, starts, self.dtype)
        if checked and np.any(fixed["head"] & _CHECKSUM_MASK != self._head):
            raise Damaged(self._foreign(fixed["head"]))
        return [self._column(data, starts, fixed, i) for i in columns]

    def _column(self, data: Any, starts: Ints, fixed: npt.NDArray[Any], i: int) -> pa.Array:
        column = self.columns[i]
        valid = None
        if column.nullable:
            null = fixed["nulls"][:, i >> 3] >> np.uint8(i & 7) & np.uint8(1)
            if null.any():
                valid = aligned(np.packbits(null ^ np.uint8(1), bitorder="little"))
        if not is_variable(column.type):
            return array_of(column.type, fixed[f"c{i}"], valid)
        place = self._place[i]
        base = starts + self.dtype.itemsize
        first = base + fixed[f"c{self._variable[place - 1]}"] if place else base
        strings = _pick(data, first, base + fixed[f"c{i}"])
        _, offsets, values = strings.buffers()
        return pa.Array.from_buffers(column.type, len(starts), [valid, offsets, values])

    def _check(self, data: Any, starts: Ints) -> None:
        if len(starts) == 0:
            return
        heads = gather(data, starts, np.dtype("<u8"))
        if np.any(heads & _CHECKSUM_MASK != self._head):
            raise Damaged(self._foreign(heads))
        sums = word_sums(data, starts) - heads + self._head
        wrong = fold(sums) != (heads >> np.uint64(32)).astype(np.uint32)
        if wrong.any():
            raise Damaged(f"{int(wrong.sum())} of {len(starts)} rows fail their checksum")

    def _foreign(self, heads: Words) -> str:
        head = int(heads[np.argmax(heads & _CHECKSUM_MASK != self._head)])
        return (
            f"a row has format {head & 0xFF} and schema version {head >> 16 & 0xFFFF}; "
            f"expected {ROW_FORMAT} and {self.version}"
        )


class Encoded:
    """Encoded rows that wait for their versions."""

    def __init__(self, rows: pa.BinaryArray) -> None:
        self.rows = rows
        self.offsets = offsets_of(rows).astype(np.int64)
        self.data = data_of(rows)[: self.offsets[-1]]
        self._sums = word_sums(self.data, self.offsets[:-1])

    @property
    def lengths(self) -> npt.NDArray[np.uint32]:
        return np.diff(self.offsets).astype(np.uint32)

    def bytes(self, start: int, stop: int) -> memoryview:
        """Rows start to stop, side by side."""
        return self.data[self.offsets[start] : self.offsets[stop]].data

    def stamp(self, first: int) -> None:
        """Give the rows versions first, first + 1, ... and their checksums."""
        versions = np.arange(first, first + len(self.rows), dtype=np.uint64)
        words = self.data.view(np.uint64)
        heads = self.offsets[:-1] >> 3
        words[heads + 1] = versions
        words[heads] |= fold(self._sums + versions).astype(np.uint64) << np.uint64(32)


def version_of(row: bytes | None) -> int:
    """The version of an encoded row; 0 for none."""
    return 0 if row is None else int.from_bytes(row[8:16], "little")


def body(row: bytes) -> bytes:
    """What is compared to tell whether two rows have equal values."""
    return row[:4] + row[HEADER:]


def _present_bytes(array: pa.Array) -> pa.BinaryArray:
    binary = array.cast(pa.binary())
    return binary.fill_null(b"") if binary.null_count else binary


def _zeros(lengths: Ints) -> pa.BinaryArray:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return binary_array(np.zeros(int(offsets[-1]), np.uint8), offsets)


def _pick(data: Any, first: Ints, end: Ints) -> pa.BinaryArray:
    """The pieces data[first:end], copied together by Arrow.

    The pieces ascend, so pieces and the gaps between them are one binary array; keep every other.
    """
    count = len(first)
    if count == 0:
        return pa.array([], pa.binary())
    borders = np.empty(2 * count + 1, np.int32)
    borders[0:-1:2] = first
    borders[1::2] = end
    borders[-1] = end[-1]
    return binary_array(data, borders).take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
