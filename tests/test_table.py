"""What the Table handle adds to the store: bounds and conditions are checked before any read."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
import pytest

from everview.database import Database
from everview.errors import DataError, WrongKey, WrongType
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
