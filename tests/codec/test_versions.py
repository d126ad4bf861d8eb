"""Rows of several versions of a table come back as one, with NULL in columns they never had."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from everview.codec import RowCodec, TableCodec
from everview.codec.rows import EncodedRows, body, join
from everview.errors import Damaged
from everview.schema import Column, arrow_type
from tests.values import TYPES, column, nested_types, values

# the types of all columns, how many of them each version has, and rows with their versions
History = tuple[list[str], list[int], list[tuple[int, tuple[Any, ...]]]]


@st.composite
def histories(draw: st.DrawFn) -> History:
    types = draw(st.lists(st.sampled_from(TYPES) | nested_types(), min_size=2, max_size=10))
    widths = draw(
        st.lists(st.integers(1, len(types)), min_size=1, max_size=4, unique=True).map(sorted)
    )
    types = types[: widths[-1]]
    cells = st.tuples(*(st.none() | values(name) for name in types))
    rows = draw(st.lists(st.tuples(st.integers(1, len(widths)), cells), max_size=9))
    return types, widths, rows


def columns_of(types: list[str]) -> list[Column]:
    return [Column(f"c{i}", arrow_type(name)) for i, name in enumerate(types)]


def never() -> TableCodec:
    raise AssertionError("the codec knows all versions")


def codec_of(types: list[str], widths: list[int]) -> TableCodec:
    """The codec of a table when it had as many versions as there are widths."""
    return TableCodec(columns_of(types)[: widths[-1]], widths, never)


def batch_of(types: list[str], rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    arrays = [column(name, [row[i] for row in rows]) for i, name in enumerate(types)]
    schema = pa.schema([pa.field(c.name, c.type) for c in columns_of(types)])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def written(history: History) -> list[bytes]:
    """Each row as its version writes it."""
    types, widths, rows = history
    found = []
    for number, (version, cells) in enumerate(rows, 1):
        width = widths[version - 1]
        codec = codec_of(types, widths[:version])
        encoded = EncodedRows(codec.encode(batch_of(types[:width], [cells[:width]])))
        encoded.stamp(number)
        found += encoded.rows.to_pylist()
    return found


def padded(history: History) -> pa.RecordBatch:
    """The rows as they would be had all been written in the newest version."""
    types, widths, rows = history
    nulls = (None,) * len(types)
    whole = [(*cells[: widths[v - 1]], *nulls[widths[v - 1] :]) for v, cells in rows]
    codec, batch = RowCodec(columns_of(types), 1), batch_of(types, whole)
    encoded = EncodedRows(codec.encode(batch))
    arrays = codec.decode(encoded.row_bytes, encoded.offsets[:-1], range(len(types)), checked=True)
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


OLD_ONLY: History = (["INT", "STRING", "INT"], [2, 3], [(1, (1, "a", 5)), (1, (None, "", 6))])
TURNS: History = (
    ["INT", "ARRAY<STRING>", "MAP<INT, STRING>", "STRUCT<a: INT>", "BOOLEAN"],
    [1, 3, 5],
    [(v, (v, ["x", None], [(1, "y")], {"a": v}, True)) for v in (3, 1, 2, 1, 3)],
)


@given(histories(), st.data())
@example(OLD_ONLY, None)
@example(TURNS, None)
def test_rows_of_all_versions_are_read_together_and_alone(
    history: History, data: st.DataObject | None
) -> None:
    types, widths, _ = history
    codec, rows, wanted = codec_of(types, widths), written(history), padded(history)
    chosen = list(range(len(types)))
    if data is not None:
        chosen = data.draw(st.lists(st.sampled_from(chosen), unique=True))
    for checked in (False, True):
        arrays = codec.decode(*join(rows), chosen, checked)
        for array, i in zip(arrays, chosen, strict=True):
            array.validate(full=True)
            assert array.type == wanted.column(i).type
            assert str(array.to_pylist()) == str(wanted.column(i).to_pylist())
    codec.check(*join(rows))
    alone = [codec.decode_row(row, chosen) for row in rows]
    assert str(alone) == str(
        [{f"c{i}": row[f"c{i}"] for i in chosen} for row in wanted.to_pylist()]
    )


@given(histories().filter(lambda history: len(history[2]) > 0), st.data())
def test_a_changed_byte_never_goes_unnoticed_also_among_versions(
    history: History, data: st.DataObject
) -> None:
    types, widths, _ = history
    codec, rows = codec_of(types, widths), written(history)
    whole, starts = join(rows)
    damaged = np.array(whole)
    row = data.draw(st.integers(0, len(rows) - 1))
    place = data.draw(st.integers(0, 15) | st.integers(0, len(rows[row]) - 1))
    damaged[starts[row] + place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Damaged):
        codec.decode(damaged, starts, range(len(types)))
    with pytest.raises(Damaged):
        codec.check(damaged, starts)
    with pytest.raises(Damaged):
        codec.decode_row(damaged[starts[row] :][: len(rows[row])].tobytes(), [0])


@given(histories())
def test_a_codec_that_is_behind_reads_newer_rows_with_the_columns_it_knows(
    history: History,
) -> None:
    types, widths, _ = history
    newest, rows, wanted = codec_of(types, widths), written(history), padded(history)
    known = widths[: (len(widths) + 1) // 2]
    behind = TableCodec(columns_of(types)[: known[-1]], known, lambda: newest)
    everything = range(known[-1])
    arrays = behind.decode(*join(rows), everything)
    for array, i in zip(arrays, everything, strict=True):
        assert str(array.to_pylist()) == str(wanted.column(i).to_pylist())
    alone = [behind.decode_row(row, everything) for row in rows]
    assert str(alone) == str(wanted.select(list(everything)).to_pylist())


def test_a_version_that_the_table_never_had_is_damage() -> None:
    types, widths = ["INT", "INT"], [1, 2]
    rows = written((types, widths, [(1, (1, 1)), (2, (2, 2))]))
    first = TableCodec(columns_of(types)[:1], [1], lambda: codec_of(types, [1]))
    with pytest.raises(Damaged, match="schema version 2; the newest is 1"):
        first.decode(*join(rows), [0])
    with pytest.raises(Damaged, match="schema version 2; the newest is 1"):
        first.decode_row(rows[1], [0])


@pytest.mark.parametrize("kind", [b"\x02\0\x01\0", b"\x01\x01\x01\0", b"\x01\0\0\0"])
def test_a_kind_of_rows_that_is_not_known_is_damage_also_with_a_right_checksum(kind: bytes) -> None:
    codec = codec_of(["INT"], [1])
    (row,) = codec.encode(batch_of(["INT"], [(1,)])).to_pylist()
    foreign = EncodedRows(pa.array([kind + row[4:]], pa.binary()))
    foreign.stamp(1)
    with pytest.raises(Damaged, match="a row has format"):
        codec.decode(foreign.row_bytes, foreign.offsets[:-1], [0])
    with pytest.raises(Damaged, match="a row has format"):
        codec.decode_row(foreign.rows[0].as_py(), [0])


@settings(max_examples=40)
@given(histories(), st.data())
def test_rows_are_equal_if_they_have_equal_values_whatever_their_versions(
    history: History, data: st.DataObject
) -> None:
    types, widths, rows = history
    codec = codec_of(types, widths)
    versions = [data.draw(st.integers(1, len(widths))) for _ in rows]
    others = [(v, cells) for v, (_, cells) in zip(versions, rows, strict=True)]
    newest = [body(row) for row in codec.encode(padded(history)).to_pylist()]
    other_newest = [body(r) for r in codec.encode(padded((types, widths, others))).to_pylist()]
    first = TableCodec(columns_of(types)[: widths[0]], widths[:1], lambda: codec)
    for one, wanted in zip(written(history), newest, strict=True):
        for other, of_other in zip(written((types, widths, others)), other_newest, strict=True):
            assert codec.are_equal(one, other) == (wanted == of_other)
            assert first.are_equal(one, other) == (wanted == of_other)
