"""Rows as bytes: a header, a null bitmap, a fixed part, a variable part.

    0  u8  row format (1)        1  u8  zero       2  u16 schema version
    4  u32 checksum              8  u64 version: the sequence of the change that wrote the row
    16 null bitmap; values of the fixed-width columns; u32 ends of the others in the variable
       part; the variable part; zeros to a multiple of 8

A row holds all its columns, the key's too. Batches are encoded and decoded column by column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import (
    Bytes,
    Ints,
    Words,
    aligned,
    array_of,
    binary_array,
    check_size,
    data_of,
    fixed_binary,
    fold,
    gather,
    offsets_of,
    storage_dtype,
    valid_of,
    values_of,
    word_sums,
    zeros,
)
from everview.codec.nested import Values, key_bytes, values_codec
from everview.errors import Damaged
from everview.schema import Column, is_variable

ROW_FORMAT = 1
HEADER = 16
_EMPTY = pa.scalar(b"", pa.binary())
_KIND = np.uint64(0xFFFF_FFFF)
_HIGH = np.uint64(32)


class RowCodec:
    """Encodes and decodes rows of one schema version."""

    header: ClassVar[list[tuple[str, str]]] = [("head", "<u8"), ("version", "<u8")]
    multiple: ClassVar[int] = 8  # of bytes, for checksums

    def __init__(self, columns: Sequence[Column], version: int) -> None:
        self.columns = tuple(columns)
        self.version = version
        self._head = np.uint64(ROW_FORMAT | version << 16)
        self.variable = {
            i: codec_of(c.type) for i, c in enumerate(self.columns) if is_variable(c.type)
        }
        values = [
            (f"c{i}", storage_dtype(column.type))
            for i, column in enumerate(self.columns)
            if i not in self.variable
        ]
        self.dtype = np.dtype(
            [
                *self.header,
                ("nulls", "u1", ((len(self.columns) + 7) // 8,)),
                *values,
                ("ends", "<u4", (len(self.variable),)),
            ]
        )

    def encode(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        """Rows of the batch, still without versions and checksums (see `EncodedRows`)."""
        count = batch.num_rows
        fixed_parts = np.zeros(count, self.dtype)
        self._begin(fixed_parts)
        end = np.zeros(count, np.int64)
        strings: list[pa.BinaryArray] = []
        for i in range(len(self.columns)):
            array = batch.column(i)
            if array.null_count:
                nulls = (~valid_of(array)).view(np.uint8)
                fixed_parts["nulls"][:, i >> 3] |= nulls << np.uint8(i & 7)
            if i in self.variable:
                value_bytes = self.variable[i].encode(array)
                end += np.diff(offsets_of(value_bytes))
                fixed_parts["ends"][:, len(strings)] = end
                strings.append(value_bytes)
            else:
                fixed_parts[f"c{i}"] = values_of(array)
        padding = -(self.dtype.itemsize + end) % self.multiple
        check_size(int(self.dtype.itemsize * count + end.sum() + padding.sum()))
        parts = [fixed_binary(fixed_parts, self.dtype.itemsize), *strings, zeros(padding)]
        return pc.binary_join_element_wise(*parts, _EMPTY)

    def decode(
        self, row_bytes: Any, starts: Ints, columns: Sequence[int], checked: bool = False
    ) -> list[pa.Array]:
        """The chosen columns of the rows at `starts` in `row_bytes`, in ascending places.

        Unless `checked` by an enclosing checksum, the rows must fill `row_bytes` side by side, and
        each is held against its own. Raises `Damaged` for the first row that fails.
        """
        self._verify(row_bytes, starts, checked)
        return self.read(row_bytes, starts, columns)

    def read(self, row_bytes: Any, starts: Ints, columns: Sequence[int]) -> list[pa.Array]:
        """As `decode`, of rows that are known to be right and of this version."""
        if len(starts) == 0:
            return [pa.array([], self.columns[i].type) for i in columns]
        check_size(len(row_bytes))
        plain = [i for i in columns if i not in self.variable]
        fields = self._fields(row_bytes, starts, ["nulls", "ends", *(f"c{i}" for i in plain)])
        nulls = fields["nulls"]
        some_null = np.bitwise_or.reduce(nulls, axis=0)
        pieces = None
        if len(plain) < len(columns):
            pieces = self._pieces(row_bytes, starts, fields["ends"])
        arrays = []
        for i in columns:
            null = some_null[i >> 3] >> (i & 7) & 1
            valid = _validity(nulls[:, i >> 3], i & 7) if null else None
            if pieces is not None and i in self.variable:
                arrays.append(self._values(pieces, i, valid))
            else:
                arrays.append(array_of(self.columns[i].type, fields[f"c{i}"], valid))
        return arrays

    def _fields(self, row_bytes: Any, starts: Ints, names: list[str]) -> Any:
        """Fields of the rows by name: few are read each by itself, many with the whole row."""
        if len(names) > 7:
            return gather(row_bytes, starts, self.dtype)
        places = {name: self.dtype.fields[name] for name in names}  # type: ignore[index]
        return {name: gather(row_bytes, starts + at[1], at[0]) for name, at in places.items()}

    def _pieces(self, row_bytes: Any, starts: Ints, ends: npt.NDArray[np.uint32]) -> pa.BinaryArray:
        """The variable values of every row and, after each row's, the gap before the next row's.

        Rows ascend in `row_bytes`, so values and gaps are one binary array without copying.
        """
        borders = np.empty((len(starts), len(self.variable) + 1), np.int32)
        base = starts + self.dtype.itemsize
        borders[:, 0] = base
        np.add(base[:, None], ends, out=borders[:, 1:], casting="unsafe")
        return binary_array(row_bytes, np.append(borders.ravel(), borders[-1:, -1:]))

    def _values(self, pieces: pa.BinaryArray, i: int, valid: pa.Buffer | None) -> pa.Array:
        first, every = list(self.variable).index(i), len(self.variable) + 1
        places = np.arange(first, len(pieces), every, dtype=np.int32)
        return self.variable[i].decode(pieces.take(pa.array(places)), valid)

    def _begin(self, fixed_parts: npt.NDArray[Any]) -> None:
        fixed_parts["head"] = self._head

    def _verify(self, row_bytes: Any, starts: Ints, checked: bool) -> None:
        heads = heads_of(row_bytes, starts)
        foreign = kinds_of(heads) != self._head
        if foreign.any():
            head = int(heads[np.argmax(foreign)])
            raise Damaged(
                f"a row has format {head & 0xFF} and schema version {head >> 16 & 0xFFFF}; "
                f"expected {ROW_FORMAT} and {self.version}"
            )
        if not checked:
            check_sums(row_bytes, starts, heads)


class BareCodec(RowCodec):
    """Rows of state: from the null bitmap on, and no longer than they must be. Equal rows have
    equal bytes; checksums are the state's."""

    header: ClassVar[list[tuple[str, str]]] = []
    multiple: ClassVar[int] = 1

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__(columns, 1)

    def _begin(self, fixed_parts: npt.NDArray[Any]) -> None:
        pass

    def _verify(self, row_bytes: Any, starts: Ints, checked: bool) -> None:
        pass


class EncodedRows:
    """Encoded rows that wait for their versions; they may be stamped again."""

    def __init__(self, rows: pa.BinaryArray) -> None:
        self.rows = rows
        self.offsets = offsets_of(rows).astype(np.int64)
        self.row_bytes = data_of(rows)[: self.offsets[-1]]
        self._sums = word_sums(self.row_bytes, self.offsets[:-1])

    @property
    def lengths(self) -> npt.NDArray[np.uint32]:
        return np.diff(self.offsets).astype(np.uint32)

    def bytes(self, start: int, stop: int) -> memoryview:
        """Rows start to stop, side by side."""
        return self.row_bytes[self.offsets[start] : self.offsets[stop]].data

    def choose(self, places: Ints) -> EncodedRows:
        """Some of the rows, in the order of the places."""
        return EncodedRows(without_stamps(self.rows.take(pa.array(places))))

    def checksums(self, places: Ints, versions: Words) -> npt.NDArray[np.uint32]:
        """The checksums that rows would have with these versions."""
        return fold(self._sums[places] + versions)

    def stamp(self, first: int) -> None:
        """Give the rows versions first, first + 1, ... and their checksums."""
        versions = np.arange(first, first + len(self.rows), dtype=np.uint64)
        words = self.row_bytes.view(np.uint64)
        heads = self.offsets[:-1] >> 3
        words[heads + 1] = versions
        checksums = fold(self._sums + versions).astype(np.uint64)
        words[heads] = words[heads] & _KIND | checksums << _HIGH


def without_stamps(rows: pa.BinaryArray) -> pa.BinaryArray:
    """The rows without versions and checksums: equal bytes are equal values of one kind."""
    offsets = offsets_of(rows).astype(np.int64)
    row_bytes = data_of(rows)[offsets[0] : offsets[-1]].copy()
    words, heads = row_bytes.view(np.uint64), (offsets[:-1] - offsets[0]) >> 3
    words[heads] &= _KIND
    words[heads + 1] = 0
    return binary_array(row_bytes, offsets - offsets[0])


def join(rows: list[bytes]) -> tuple[Bytes, Ints]:
    """Rows side by side, and where each starts."""
    row_array = pa.array(rows, pa.binary())
    if isinstance(row_array, pa.ChunkedArray):
        check_size(row_array.nbytes)
    offsets = offsets_of(row_array).astype(np.int64)
    return data_of(row_array)[: offsets[-1]], offsets[:-1]


def codec_of(arrow: pa.DataType) -> Values:
    """The codec of a type whose values have different lengths, as rows store them."""
    return values_codec(arrow, BareCodec)


def map_keys(keys: pa.Array) -> pa.BinaryArray:
    """Keys of maps as bytes, equal exactly when the keys are."""
    return key_bytes(keys, BareCodec)


def heads_of(row_bytes: Any, starts: Ints) -> Words:
    """The first 8 bytes of each row: its kind and its checksum."""
    return _words_at(row_bytes, starts, 0)


def versions_in(row_bytes: Any, starts: Ints) -> Words:
    """The version of each row."""
    return _words_at(row_bytes, starts, 1)


def _words_at(row_bytes: Any, starts: Ints, offset: int) -> Words:
    if len(starts) == 0:
        return np.zeros(0, np.uint64)
    return np.frombuffer(row_bytes, np.uint64).take((starts >> 3) + offset)


def kinds_of(heads: Words) -> Words:
    """The format and schema version in each head."""
    return heads & _KIND


def check_sums(row_bytes: Any, starts: Ints, heads: Words) -> None:
    """Compare rows that fill `row_bytes` side by side with their checksums; raises `Damaged`.

    A checksum covers the row's kind, so this works for rows of any version.
    """
    checksums = heads >> _HIGH
    sums = word_sums(row_bytes, starts) - (checksums << _HIGH)
    differs = fold(sums) != checksums.astype(np.uint32)
    if differs.any():
        raise Damaged(f"{int(differs.sum())} of {len(starts)} rows fail their checksum")


def version_of(row: bytes | None) -> int:
    """The version of an encoded row; 0 for none."""
    return 0 if row is None else int.from_bytes(row[8:16], "little")


def body(row: bytes) -> bytes:
    """The bytes of a row that are equal in rows with equal values."""
    return row[:4] + row[HEADER:]


def _validity(nulls: npt.NDArray[np.uint8], bit: int) -> pa.Buffer:
    """An Arrow validity bitmap from one bit of every row's null bitmap."""
    return aligned(np.packbits(~nulls >> np.uint8(bit) & np.uint8(1), bitorder="little"))
