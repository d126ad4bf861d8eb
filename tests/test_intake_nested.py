"""Arrays, structs and maps in all their forms become exactly the table's Arrow, or an error that
says which part doesn't fit."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import everview as ev
from everview.cli.output import print_rows
from everview.errors import DataError, InvalidSchema, WrongType
from everview.intake import documents_to_arrow, rows_to_arrow, text_to_arrow
from everview.intake.documents import format_document, format_value, parse_document
from everview.load.files import load
from everview.schema import TableSchema, array_type, is_nested
from tests.values import nested_types, values

TYPES = {
    "id": "BIGINT",
    "tags": "ARRAY<STRING>",
    "spot": "STRUCT<x: DOUBLE, Y: DECIMAL(12,2)>",
    "prices": "MAP<STRING, DECIMAL(12,2)>",
    "days": "MAP<DATE, ARRAY<INT>>",
    "lines": "ARRAY<STRUCT<item: STRING, at: TIMESTAMP, raw: BINARY>>",
}
THINGS = TableSchema.of("things", TYPES, "id")
DAY, MOMENT = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC)
WHOLE: dict[str, Any] = {
    "id": 1,
    "tags": ["a", None, ""],
    "spot": {"x": 0.5, "Y": Decimal("2.50")},
    "prices": [("a", Decimal("1.00")), ("b", None)],
    "days": [(DAY, [1, None]), (dt.date(2025, 1, 1), None)],
    "lines": [{"item": "pen", "at": MOMENT, "raw": b"\0\xff"}, None],
}
EMPTY: dict[str, Any] = {"id": 2, "tags": [], "spot": {"x": None, "Y": None}, "prices": [],
                         "days": [], "lines": []}  # fmt: skip
NULLS: dict[str, Any] = dict.fromkeys(TYPES) | {"id": 3}
ROWS = [WHOLE, EMPTY, NULLS]


def stored(rows: Any) -> list[dict[str, Any]]:
    table = rows_to_arrow(THINGS, rows)
    table.validate(full=True)
    assert table.schema == THINGS.arrow
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def test_python_values_in_their_usual_forms() -> None:
    assert stored(ROWS) == ROWS
    loose = {
        "id": 1,
        "tags": ("a", None, ""),
        "spot": {"y": "2.50", "X": 0.5},
        "prices": {"a": 1, "b": None},
        "days": {DAY: np.array([1, None], object), "2025-01-01": None},
        "lines": [{"item": "pen", "at": "2024-02-29T12:30:00Z", "raw": b"\0\xff"}, None],
    }
    assert stored([loose]) == [WHOLE]
    assert stored([{"id": 4, "spot": {"x": 1}}])[0]["spot"] == {"x": 1.0, "Y": None}


@st.composite
def columns(draw: st.DrawFn) -> tuple[TableSchema, list[dict[str, Any]]]:
    schema = TableSchema.of("t", {"id": "INT", "c": draw(nested_types())}, "id")
    found = draw(st.lists(st.none() | values(schema.to_json()["columns"][1]["type"]), max_size=5))
    return schema, [{"id": i, "c": value} for i, value in enumerate(found)]


@given(columns())
def test_python_arrow_and_json_all_give_the_same(
    column: tuple[TableSchema, list[dict[str, Any]]],
) -> None:
    schema, rows = column
    table = rows_to_arrow(schema, rows)
    table.validate(full=True)
    shown = str(table.to_pylist())
    assert shown == str(pa.Table.from_pylist(rows, schema.arrow).to_pylist())
    twice = pa.concat_tables([table, table]).slice(table.num_rows)
    assert str(rows_to_arrow(schema, twice).to_pylist()) == shown
    lines = [format_document(row, table.schema) for row in table.to_pylist()]
    parsed = documents_to_arrow(schema, [parse_document(line) for line in lines])
    assert str(parsed.to_pylist()) == shown
    arrow = schema.column("c").type
    cells = table["c"].to_pylist()
    texts = {
        "id": [str(row["id"]) for row in rows],
        "c": [None if cell is None else format_value(cell, arrow) for cell in cells],
    }
    as_text = pa.table({name: pa.array(found, pa.string()) for name, found in texts.items()})
    assert str(text_to_arrow(schema, as_text, "row {}".format).to_pylist()) == shown


@pytest.mark.parametrize(
    "source",
    [
        pa.large_list(pa.int8()),
        pa.list_(pa.int64(), 2),
        pa.list_view(pa.decimal128(5, 2)),
        pa.large_list_view(pa.float64()),
        pa.list_(pa.dictionary(pa.int8(), pa.int16())),
    ],
    ids=str,
)
def test_every_kind_of_arrow_list_also_in_slices_and_chunks(source: pa.DataType) -> None:
    schema = TableSchema.of("t", {"id": "INT", "c": "ARRAY<INT>"}, "id")
    cells = [[1, 2], None, [3, None], [4, 5]]
    if not pa.types.is_dictionary(source.value_type):
        array = pa.array(cells, source)
    else:
        array = pa.ListArray.from_arrays(
            pa.array([0, 2, 2, 4, 6], pa.int32()),
            pa.array([1, 2, 3, None, 4, 5], pa.int16()).dictionary_encode(),
            mask=pa.array([False, True, False, False]),
        )
    for start in range(4):
        ids = pa.array(range(4), pa.int32())
        rows = pa.table({"id": ids, "c": array}).slice(start)
        assert rows_to_arrow(schema, rows)["c"].to_pylist() == cells[start:]
        chunked = pa.concat_tables([pa.table({"id": ids, "c": array}), rows])
        assert rows_to_arrow(schema, chunked)["c"].to_pylist() == cells + cells[start:]
    made = TableSchema.of("t", pa.schema([("id", pa.int32()), ("c", source)]), "id")
    assert pa.types.is_list(made.column("c").type)


def test_arrow_structs_are_matched_by_name_and_lists_of_pairs_are_maps() -> None:
    spots = pa.array([{"y": 1, "X": 2}, None], pa.struct([("y", pa.int8()), ("X", pa.int8())]))
    pairs = pa.array([[{"key": "a", "value": 1}], None])
    found = stored(pa.table({"id": [1, 2], "spot": spots, "prices": pairs}))
    assert [row["spot"] for row in found] == [{"x": 2.0, "Y": Decimal("1.00")}, None]
    assert [row["prices"] for row in found] == [[("a", Decimal("1.00"))], None]


def test_pandas_and_polars_frames() -> None:
    arrow = rows_to_arrow(THINGS, ROWS)
    assert stored(arrow.to_pandas()) == ROWS
    missing = pd.DataFrame({"id": [1, 2, 3], "tags": [["a"], math.nan, pd.NA]})
    assert [row["tags"] for row in stored(missing)] == [["a"], None, None]
    frame = pl.DataFrame({"id": [1, 2], "tags": [["a"], None], "spot": [{"x": 1.0, "Y": 2}, None]})
    assert [row["tags"] for row in stored(frame)] == [["a"], None]
    assert stored(frame)[0]["spot"] == {"x": 1.0, "Y": Decimal("2.00")}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"tags": "abc"}, r"row 2, column tags: 'abc' is not an ARRAY<STRING>; pass a list"),
        ({"tags": {"a": 1}}, r"row 2, column tags: .* is not an ARRAY<STRING>"),
        ({"tags": ["a", 1]}, r"row 2, column tags\[1\]: 1 is not a STRING; pass a str"),
        ({"spot": [1]}, r"row 2, column spot: \[1\] is not a STRUCT<.*no other fields than x, Y"),
        ({"spot": {"z": 1}}, r"row 2, column spot: .*no other fields than x, Y"),
        ({"spot": {"x": 1, "X": 2}}, r"row 2, column spot: .*no other fields than x, Y"),
        ({"spot": {"Y": "1.234"}}, r"row 2, column spot\.Y: '1.234' is not a DECIMAL\(12,2\); .*2"),
        ({"prices": ["a"]}, r"row 2, column prices: .*pass a dict, or a list of pairs"),
        ({"prices": {None: 1}}, r"row 2, column prices: .*keys that are not NULL and differ"),
        ({"prices": [("a", 1), ("a", 2)]}, r"row 2, column prices: .*keys that are not NULL and"),
        ({"prices": {"a": "x"}}, r"row 2, column prices\[0\]\.value: 'x' is not a DECIMAL"),
        ({"days": {DAY: [1, "x"]}}, r"row 2, column days\[0\]\.value\[1\]: 'x' is not an INT"),
        ({"lines": [None, {"at": "x"}]}, r"row 2, column lines\[1\]\.at: 'x' is not a TIMESTAMP"),
    ],
)
def test_what_does_not_fit_is_told_with_its_row_and_place(
    row: dict[str, Any], message: str
) -> None:
    with pytest.raises(WrongType, match=message):
        rows_to_arrow(THINGS, [{"id": 1}, {"id": 2, **row}])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([None, "x"]), r"row 2, column tags: 'x' is not an ARRAY"),
        (pa.array([[None], [1.5]]), r"row 2, column tags\[0\]: 1.5 is not a STRING"),
        (pa.array([{"a": 1}, None]), r"row 1, column tags: .* is not an ARRAY"),
    ],
)
def test_arrow_that_does_not_fit_is_told_too(column: pa.Array, message: str) -> None:
    with pytest.raises(WrongType, match=message):
        rows_to_arrow(THINGS, pa.table({"id": [1, 2], "tags": column}))


def test_a_nested_column_is_no_key_and_a_struct_has_fields() -> None:
    with pytest.raises(InvalidSchema, match="column a of type ARRAY<INT> can't be part of a prim"):
        TableSchema.of("t", {"a": "ARRAY<INT>"}, "a")
    with pytest.raises(InvalidSchema, match="column s: Arrow type struct<> has no stored type"):
        TableSchema.of("t", pa.schema([("id", pa.int32()), ("s", pa.struct([]))]), "id")


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_what_is_written_to_a_file_is_loaded_from_it(
    db: ev.Database, tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = db.create_table("things", TYPES, "id")
    table.put(ROWS)
    path = tmp_path / f"things.{suffix}"
    if suffix == "parquet":
        parquet.write_table(table.to_arrow(), path)
    else:
        shown = {"jsonl": "json"}.get(suffix, suffix)
        print_rows(table.schema.arrow, table.batches(), shown, None)
        path.write_text(capsys.readouterr().out)
    copy = db.create_table("copy", TYPES, "id")
    assert load(copy, path) == 3
    assert list(copy.scan()) == ROWS == list(table.scan())


def test_a_bad_line_of_a_file_is_told(db: ev.Database, tmp_path: Path) -> None:
    table = db.create_table("things", TYPES, "id")
    lines = tmp_path / "things.jsonl"
    lines.write_text('{"id": 1, "tags": ["a"]}\n{"id": 2, "tags": ["a", 2]}\n')
    with pytest.raises(DataError, match=r"line 2, column tags\[1\]: 2 is not a STRING"):
        load(table, lines)
    cells = tmp_path / "things.csv"
    cells.write_text('id,tags\n1,"[""a""]"\n2,a\n')
    with pytest.raises(DataError, match=r"row 2 .*column tags: 'a' is not an ARRAY<STRING>"):
        load(table, cells)


@given(nested_types())
@example("MAP<STRING, STRING>")
def test_a_type_from_arrow_is_the_type_of_its_name(name: str) -> None:
    schema = TableSchema.of("t", {"id": "INT", "c": name}, "id")
    assert TableSchema.of("t", schema.arrow, "id") == schema
    assert TableSchema.from_json(schema.to_json()) == schema
    assert is_nested(array_type(schema.column("c").type))
