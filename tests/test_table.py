"""What the Table handle adds to the store: rows and bounds as users have them, checked first."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from everview.database import Database
from everview.errors import (
    DataError,
    EverviewError,
    InvalidSchema,
    LogError,
    TableNotFound,
    UnknownColumn,
    ViewNotFound,
    WrongKey,
    WrongType,
)
from everview.schema import MAX_VERSIONS, Column, TableSchema, arrow_type
from everview.stores.base import BATCH_ROWS
from everview.table import Table


@pytest.fixture
def numbers(db: Database) -> Table:
    table = db.create_table("numbers", {"id": "INT", "name": "STRING"}, "id", regions=2)
    table.put([{"id": i, "name": f"n{i}"} for i in range(-2, 3)])
    return table


def ids(table: Table, **asked: Any) -> list[int]:
    return [row["id"] for row in table.scan(**asked)]


def test_scan_takes_bounds_conditions_and_limits(numbers):
    assert ids(numbers, start=-1, stop=2) == [-1, 0, 1]
    assert ids(numbers, start=(1,)) == ids(numbers, start={"ID": 1}) == [1, 2]
    assert ids(numbers, limit=2) == [-2, -1]
    assert ids(numbers, limit=0) == []
    assert ids(numbers, where=pc.field("name") != "n0", limit=3) == [-2, -1, 1]


@pytest.mark.parametrize(
    ("start", "error"), [(1.5, WrongType), ("x", WrongType), ((1, 2), WrongKey), ((), WrongKey)]
)
def test_a_bound_that_is_no_key_is_refused(numbers, start, error):
    with pytest.raises(error, match="table numbers"):
        ids(numbers, start=start)


@pytest.mark.parametrize(
    "where", [pc.field("nope") > 1, pc.field("id") == "x", pc.field("id") + 1, "id > 1"]
)
def test_a_condition_that_cannot_be_evaluated_says_what_to_write(numbers, where):
    with pytest.raises(DataError, match=r"table numbers: where can.t be .* over id, name"):
        numbers.to_arrow(where=where)


def test_a_limit_makes_small_batches_only_where_every_row_counts(numbers, monkeypatch):
    sizes = []
    batches = Table.batches

    def counted(self: Table, *given: Any) -> Any:
        sizes.append(given[-1])
        return batches(self, *given)

    monkeypatch.setattr(Table, "batches", counted)
    ids(numbers, limit=2)
    ids(numbers, limit=2, where=pc.field("id") > 0)
    ids(numbers)
    assert sizes == [2, BATCH_ROWS, BATCH_ROWS]


@pytest.mark.parametrize(
    "columns",
    [
        {"tags": "ARRAY<STRING>", "rank": "INT"},
        pa.schema([("tags", pa.large_list(pa.large_string())), ("rank", pa.int32())]),
        [Column("tags", arrow_type("ARRAY<STRING>")), Column("rank", pa.int32())],
    ],
)
def test_columns_are_added_in_the_forms_that_tables_are_created_from(numbers, columns):
    numbers.add_columns(columns)
    assert numbers.schema.names == ("id", "name", "tags", "rank")
    numbers.put({"id": 1, "name": "one", "tags": ["x"]})
    assert numbers.get(0) == {"id": 0, "name": "n0", "tags": None, "rank": None}
    assert numbers.get(1) == {"id": 1, "name": "one", "tags": ["x"], "rank": None}
    assert numbers.get_many([2, 1], ["tags"]).to_pylist() == [{"tags": None}, {"tags": ["x"]}]
    assert ids(numbers, where=pc.field("tags").is_valid()) == [1]
    assert numbers.to_arrow().schema == numbers.schema.arrow


def test_columns_that_do_not_fit_are_refused(numbers):
    for columns in ({"NAME": "INT"}, {}, pa.schema([pa.field("rank", pa.int32(), False)])):
        with pytest.raises(InvalidSchema, match="table numbers"):
            numbers.add_columns(columns)
    with pytest.raises(InvalidSchema, match="type FOO"):
        numbers.add_columns({"x": "FOO"})
    assert numbers.schema.names == ("id", "name")


def test_columns_are_added_as_often_as_rows_can_tell():
    schema = TableSchema.of("t", {"id": "INT"}, "id", widths=(1,) * (MAX_VERSIONS - 1))
    schema = schema.with_columns([Column("last", pa.int32())])
    assert schema.version == MAX_VERSIONS
    with pytest.raises(InvalidSchema, match="create a new table"):
        schema.with_columns([Column("more", pa.int32())])


def test_a_column_that_is_added_between_two_regions_is_in_neither(numbers):
    """All batches of one read are of one schema."""
    changes = numbers.changes(batch_rows=1)
    found = [next(changes)]
    numbers.add_columns({"rank": "INT"})
    numbers.put([{"id": i, "rank": i} for i in range(10)])
    found += changes
    assert pa.Table.from_batches(found).num_rows > 5
    assert found[-1].column("after").type.names == ["id", "name"]


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        (pd.DataFrame({"id": [1]}), "id"),
        ({"id": "INT"}, 5),
        ({"id": "INT"}, [1]),
        ({1: "INT"}, "x"),
    ],
)
def test_a_table_is_not_created_from_something_else(db, columns, key):
    with pytest.raises(
        InvalidSchema, match=r"does not define a column; give names with|name.* not "
    ):
        db.create_table("other", columns, key)


def test_names_are_text(db):
    for find in (db.table, db.view, db.sql):
        with pytest.raises(EverviewError, match="must be text, not NoneType"):
            find(None)


def test_what_names_nothing_is_refused(db, numbers):
    for columns in (1, [1], [None], b"id", "nope"):
        with pytest.raises(UnknownColumn, match="table numbers has no column"):
            numbers.to_arrow(columns=columns)
    for act in (db.drop_table, db.pin, db.explain):
        with pytest.raises(TableNotFound, match="must be text, not int"):
            act(1)
    with pytest.raises(ViewNotFound, match="there is no view ; there are no views yet"):
        db.view("")


@pytest.mark.parametrize("rows", [0, -1, 1.5, "x"])
def test_numbers_of_rows_that_are_none_are_refused(numbers, rows):
    with pytest.raises(DataError, match="batch_rows must be a number of rows, at least 1, not"):
        list(numbers.batches(batch_rows=rows))
    with pytest.raises(DataError, match="batch_rows must be a number of rows, at least 1, not"):
        list(numbers.changes(batch_rows=rows))
    if rows:
        with pytest.raises(DataError, match="limit must be a number of rows, at least 0, not"):
            ids(numbers, limit=rows)


@pytest.mark.parametrize("name", ["", "x" * 256, "\ud800", None, 1, "everview"])
def test_a_consumer_has_a_name_of_its_own(numbers, name):
    acts = (numbers.register, numbers.unregister, lambda name: numbers.acknowledge(name, {0: 1}))
    for act in acts:
        with pytest.raises(LogError, match=r"can't name a consumer|consumer of all views"):
            act(name)
