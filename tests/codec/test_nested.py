"""Arrays, structs and maps come back as they were; equal ones have equal bytes."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from everview.codec.groups import GroupCodec
from everview.codec.point import PointDecoder
from everview.codec.rows import BareCodec, EncodedRows, RowCodec, codec_of, join
from everview.errors import Damaged
from everview.schema import Column, arrow_type, sql_name
from tests.values import TYPES, nested_types, values

Table = tuple[list[str], list[tuple[Any, ...]]]
DEEP = "ARRAY<STRUCT<a: MAP<STRING, ARRAY<INT>>, b: ARRAY<ARRAY<STRING>>>>"
DEEP_ROWS = [
    ([{"a": [("x", [1, None]), ("\0", None)], "b": [[], None, ["", None, "\u00e9"]]}, None],),
    (None,),
    ([],),
    ([{"a": None, "b": None}, {"a": [], "b": []}],),
]


@st.composite
def tables(draw: st.DrawFn) -> Table:
    types = draw(st.lists(nested_types() | st.sampled_from(TYPES), min_size=1, max_size=3))
    cells = [st.none() | values(name) for name in types]
    return types, draw(st.lists(st.tuples(*cells), max_size=6))


def columns_of(types: list[str]) -> list[Column]:
    return [Column(f"c{i}", arrow_type(name)) for i, name in enumerate(types)]


def batch_of(table: Table) -> pa.RecordBatch:
    types, rows = table
    schema = pa.schema([pa.field(c.name, c.type) for c in columns_of(types)])
    arrays = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def in_key_order(value: Any) -> Any:
    """A value to compare: a map's entries are sorted, as the codec gives them back in order."""
    if isinstance(value, dict):
        return {name: in_key_order(part) for name, part in value.items()}
    if isinstance(value, list):
        parts = [in_key_order(part) for part in value]
        pairs = parts and all(isinstance(part, tuple) for part in parts)
        return sorted(parts, key=repr) if pairs else parts
    return tuple(map(in_key_order, value)) if isinstance(value, tuple) else value


def same(found: list[Any], wanted: list[Any]) -> bool:
    return str(in_key_order(found)) == str(in_key_order(wanted))


@given(nested_types())
@example("STRUCT<`odd name`: INT, `a``b`: MAP<STRING, DECIMAL(12,2)>>")
def test_a_type_is_what_its_name_says_and_the_other_way_round(name: str) -> None:
    arrow = arrow_type(name)
    assert str(arrow_type(sql_name(arrow))) == str(arrow)


@given(tables(), st.data())
@example(([DEEP], DEEP_ROWS), None)
def test_rows_come_back_as_they_were_also_slices_of_them(
    table: Table, data: st.DataObject | None
) -> None:
    batch = batch_of(table)
    batch = batch.slice(data.draw(st.integers(0, batch.num_rows)) if data else 0)
    codec = RowCodec(columns_of(table[0]), 3)
    encoded = EncodedRows(codec.encode(batch))
    encoded.stamp(1)
    arrays = codec.decode(encoded.row_bytes, encoded.offsets[:-1], range(batch.num_columns))
    for array, column in zip(arrays, batch.columns, strict=True):
        array.validate(full=True)
        assert array.type == column.type
        assert same(array.to_pylist(), column.to_pylist())
    points = PointDecoder(codec.columns, 3)
    alone = [points.decode(row, range(batch.num_columns)) for row in encoded.rows.to_pylist()]
    assert str(alone) == str(pa.table(arrays, batch.schema.names).to_pylist())


@given(tables())
@example(([DEEP], DEEP_ROWS))
def test_what_is_decoded_has_the_bytes_it_was_decoded_from(table: Table) -> None:
    batch, codec = batch_of(table), BareCodec(columns_of(table[0]))
    rows = codec.encode(batch)
    arrays = codec.decode(*join(rows.to_pylist()), range(batch.num_columns))
    assert codec.encode(pa.record_batch(arrays, batch.schema.names)).equals(rows)


@given(tables().filter(lambda table: len(table[1]) > 0), st.randoms(use_true_random=False))
def test_equal_rows_have_equal_bytes_however_they_lie_in_memory(
    table: Table, chance: random.Random
) -> None:
    batch, columns = batch_of(table), columns_of(table[0])
    order = [*range(batch.num_rows), *range(batch.num_rows)]
    chance.shuffle(order)
    whole = pa.Table.from_batches([batch])
    shuffled = pa.concat_tables([whole, whole]).take(order).combine_chunks()
    rows = BareCodec(columns).encode(batch).to_pylist()
    again = BareCodec(columns).encode(shuffled.to_batches()[0]).to_pylist()
    assert again == [rows[i] for i in order]
    groups = GroupCodec(columns).encode(whole).to_pylist()
    assert GroupCodec(columns).encode(shuffled).to_pylist() == [groups[i] for i in order]


@given(tables())
@example((["ARRAY<STRING>"], [(["a", ""],), (["a"],), ([None],), ([],), (None,), ([""],)]))
def test_groups_are_equal_exactly_when_their_values_are(table: Table) -> None:
    batch, columns = batch_of(table), columns_of(table[0])
    groups = GroupCodec(columns).encode(pa.Table.from_batches([batch])).to_pylist()
    shown = [re.sub(r"-0\.0(?!\d)", "0.0", str(in_key_order(r))) for r in batch.to_pylist()]
    assert [groups.index(key) for key in groups] == [shown.index(row) for row in shown]


def test_a_map_has_the_same_bytes_in_any_order_and_comes_back_in_that_of_its_keys() -> None:
    arrow = arrow_type("MAP<INT, STRING>")
    one = pa.array([[(300, "a"), (-1, "b"), (2, None)], None], arrow)
    other = pa.array([[(2, None), (300, "a"), (-1, "b")], None], arrow)
    encoded = codec_of(arrow).encode(one)
    assert encoded.equals(codec_of(arrow).encode(other))
    assert codec_of(arrow).decode(encoded, None)[0].as_py() == [(-1, "b"), (2, None), (300, "a")]


def test_what_lies_under_a_null_is_not_stored() -> None:
    offsets = pa.array([0, 2, 3], pa.int32())
    clean = pa.array([None, [7]], arrow_type("ARRAY<INT>"))
    dirty = pa.ListArray.from_arrays(
        offsets, pa.array([1, 2, 7], pa.int32()), clean.type, mask=pa.array([True, False])
    )
    assert codec_of(clean.type).encode(dirty).equals(codec_of(clean.type).encode(clean))
    valid = pa.array([False, True]).buffers()[1]
    struct = pa.array([None, {"a": 2}], arrow_type("STRUCT<a: INT>"))
    hidden = pa.Array.from_buffers(struct.type, 2, [valid], children=[pa.array([9, 2], pa.int32())])
    assert codec_of(struct.type).encode(hidden).equals(codec_of(struct.type).encode(struct))


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("ARRAY<DOUBLE>", [0.0, math.nan], [-0.0, -math.nan]),
        ("STRUCT<a: FLOAT>", {"a": -0.0}, {"a": 0.0}),
        ("MAP<DOUBLE, DOUBLE>", [(0.0, 1.0)], [(-0.0, 1.0)]),
        ("ARRAY<MAP<STRING, FLOAT>>", [[("a", -0.0)], None], [[("a", 0.0)], None]),
    ],
)
def test_groups_of_equal_floats_are_one_group(name: str, one: Any, other: Any) -> None:
    column = Column("c", arrow_type(name))
    rows = pa.table({"c": pa.array([one, other, None], column.type)})
    keys = GroupCodec([column]).encode(rows).to_pylist()
    assert keys[0] == keys[1] != keys[2]


@given(tables().filter(lambda table: len(table[1]) > 0), st.data())
def test_a_changed_byte_never_goes_unnoticed(table: Table, data: st.DataObject) -> None:
    batch, codec = batch_of(table), RowCodec(columns_of(table[0]), 1)
    encoded = EncodedRows(codec.encode(batch))
    encoded.stamp(1)
    damaged = np.array(encoded.row_bytes)
    place = data.draw(st.integers(0, len(damaged) - 1))
    damaged[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Damaged):
        codec.decode(damaged, encoded.offsets[:-1], range(batch.num_columns))
