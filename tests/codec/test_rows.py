"""Every row comes back as it was put, bit for bit, in batches and alone."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from everview.codec import RowCodec
from everview.codec.point import PointDecoder
from everview.codec.rows import BareCodec, EncodedRows, version_of
from everview.errors import Damaged
from everview.schema import Column, arrow_type
from tests.values import TYPES, column, values

Table = tuple[list[str], list[tuple[Any, ...]]]
BIG = "\u00e4" * 500_000


@st.composite
def tables(draw: st.DrawFn) -> Table:
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=10))
    cells = [st.none() | values(name) for name in types]
    return types, draw(st.lists(st.tuples(*cells), max_size=9))


def codec_and_batch(table: Table) -> tuple[RowCodec, pa.RecordBatch]:
    types, rows = table
    columns = [Column(f"c{i}", arrow_type(name)) for i, name in enumerate(types)]
    arrays = [column(name, [row[i] for row in rows]) for i, name in enumerate(types)]
    schema = pa.schema([pa.field(c.name, c.type) for c in columns])
    return RowCodec(columns, 3), pa.RecordBatch.from_arrays(arrays, schema=schema)


def bits(value: Any) -> Any:
    return struct.pack("<d", value) if isinstance(value, float) else value


@given(tables(), st.integers(1, 2**40))
@example((["STRING"] * 3, [("", None, BIG), (None, BIG, ""), ("x", "", None)]), 1)
@example((["DOUBLE", "FLOAT"], [(math.nan, -0.0), (-0.0, math.inf)]), 7)
@example((["BINARY"], []), 1)
def test_rows_come_back_as_they_were(table: Table, first: int) -> None:
    codec, batch = codec_and_batch(table)
    encoded = EncodedRows(codec.encode(batch))
    encoded.stamp(first)
    arrays = codec.decode(encoded.row_bytes, encoded.offsets[:-1], range(len(codec.columns)))
    for array, original in zip(arrays, batch.columns, strict=True):
        array.validate(full=True)
        assert list(map(bits, array.to_pylist())) == list(map(bits, original.to_pylist()))
    rows = encoded.rows.to_pylist()
    assert [version_of(row) for row in rows] == list(range(first, first + len(rows)))
    assert all(len(row) % 8 == 0 for row in rows)


@given(tables(), st.data())
def test_any_choice_of_columns_and_any_slice_is_the_same_as_the_whole(
    table: Table, data: st.DataObject
) -> None:
    codec, batch = codec_and_batch(table)
    start = data.draw(st.integers(0, batch.num_rows))
    chosen = data.draw(st.lists(st.sampled_from(range(batch.num_columns)), unique=True))
    encoded = EncodedRows(codec.encode(batch.slice(start)))
    encoded.stamp(1)
    arrays = codec.decode(encoded.row_bytes, encoded.offsets[:-1], chosen)
    for array, i in zip(arrays, chosen, strict=True):
        assert str(array.to_pylist()) == str(batch.column(i).slice(start).to_pylist())


@given(tables())
def test_a_row_alone_decodes_as_in_a_batch(table: Table) -> None:
    codec, batch = codec_and_batch(table)
    encoded = EncodedRows(codec.encode(batch))
    encoded.stamp(5)
    points = PointDecoder(codec.columns, codec.version)
    everything = range(len(codec.columns))
    alone = [points.decode(row, everything) for row in encoded.rows.to_pylist()]
    assert str(alone) == str(batch.to_pylist())
    bare, points = BareCodec(codec.columns), PointDecoder(codec.columns)
    alone = [points.decode(row, everything) for row in bare.encode(batch).to_pylist()]
    assert str(alone) == str(batch.to_pylist())


@given(tables().filter(lambda table: len(table[1]) > 0), st.data())
def test_a_changed_byte_never_goes_unnoticed(table: Table, data: st.DataObject) -> None:
    codec, batch = codec_and_batch(table)
    encoded = EncodedRows(codec.encode(batch))
    encoded.stamp(1)
    damaged = np.array(encoded.row_bytes[: encoded.offsets[-1]])
    place = data.draw(st.integers(0, len(damaged) - 1))
    damaged[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Damaged):
        codec.decode(damaged, encoded.offsets[:-1], range(batch.num_columns))
    row = int(np.searchsorted(encoded.offsets, place, side="right")) - 1
    alone = damaged[encoded.offsets[row] : encoded.offsets[row + 1]].tobytes()
    with pytest.raises(Damaged):
        PointDecoder(codec.columns, 3).decode(alone, [0])


def test_equal_rows_have_equal_bytes_whatever_lies_under_their_nulls() -> None:
    codec = RowCodec([Column("n", pa.int64()), Column("s", pa.string())], 1)
    plain = pa.record_batch({"n": [None, 2], "s": [None, "b"]})
    plain = plain.set_column(0, "n", plain.column(0).cast(pa.int64()))
    valid = pa.array([False, True]).buffers()[1]
    dirty_numbers = pa.Array.from_buffers(pa.int64(), 2, [valid, pa.py_buffer(np.array([99, 2]))])
    dirty_text = pa.Array.from_buffers(
        pa.string(), 2, [valid, pa.py_buffer(np.array([0, 3, 4], np.int32)), pa.py_buffer(b"xxxb")]
    )
    dirty = pa.record_batch([dirty_numbers, dirty_text], names=["n", "s"])
    assert codec.encode(plain).equals(codec.encode(dirty))
