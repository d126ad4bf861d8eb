"""What is read of a table's log for an epoch."""

from __future__ import annotations

import math
from typing import Any

import pytest

import everview as ev
from everview.plan.conditions import Condition
from everview.plan.nodes import Source
from everview.programs.reading import deltas_of
from everview.programs.step import Step

OLD = {"id": 1, "n": 5, "x": 0.0, "s": "a", "d": None, "tags": ["t"], "note": "old"}


@pytest.fixture
def table(db: ev.Database) -> ev.Table:
    columns = {"id": "INT", "n": "INT", "x": "DOUBLE", "s": "STRING", "d": "DECIMAL(9,2)"}
    return db.create_table(
        "t", columns | {"tags": "ARRAY<STRING>", "note": "STRING"}, key="id", regions=1
    )


def read_rows(step: Step, source: Source) -> list[dict[str, Any]]:
    parts = (deltas for _, deltas in deltas_of(step, source, [0]))
    return [row for deltas in parts for delta in deltas for row in delta.to_pylist()]


def read(
    table: ev.Table, after: int, names: list[str], where: tuple[Condition, ...] = ()
) -> list[tuple[Any, ...]]:
    """The delta of the changes after a position: rows with their weights, sorted by weight."""
    last = table.log()[0].last
    store = table._store
    step = Step(store.address, (0,), 0, 1, {"t": {0: after}}, {"t": {0: last}})
    columns = tuple(map(table.schema.column, names))
    source = Source(columns, "t", tuple(names), where=where)
    rows = [tuple(row.values()) for row in read_rows(step, source)]
    return sorted(rows, key=lambda row: row[-1])


@pytest.mark.parametrize(
    ("change", "names", "told"),
    [
        ({"note": "new"}, ["id", "n", "x", "s", "d"], False),
        ({"note": "new"}, ["n"], False),
        ({}, ["note"], False),
        ({"note": "new"}, ["id", "note"], True),
        ({"n": 6}, ["n"], True),
        ({"n": None}, ["n"], True),
        ({"d": 1}, ["d"], True),
        ({"x": -0.0}, ["x"], True),
        ({"x": math.nan}, ["x"], True),
        ({"note": "new"}, ["tags"], True),
    ],
)
def test_an_update_of_other_columns_is_no_change(
    table: ev.Table, change: dict[str, Any], names: list[str], told: bool
) -> None:
    table.put([OLD, OLD | {"id": 2}])
    before = table.log()[0].last
    table.put(OLD | change)
    found = read(table, before, names)
    assert [row[-1] for row in found] == ([-1, 1] if told else [])
    if told and "tags" not in names and "x" not in change:
        new = OLD | change
        assert [row[:-1] for row in found] == [
            tuple(row[name] for name in names) for row in (OLD, new)
        ]


def test_rows_that_come_and_go_are_told_whatever_is_in_them(table: ev.Table) -> None:
    table.put(OLD | {"n": None})
    assert read(table, 0, ["n"]) == [(None, 1)]
    before = table.log()[0].last
    table.delete([1])
    table.put(OLD | {"n": None})
    table.put(OLD | {"n": None, "note": "again"})
    assert read(table, before, ["n"]) == [(None, -1), (None, 1)]


def test_each_image_of_a_row_is_held_against_the_conditions(table: ev.Table) -> None:
    where = (Condition("n", ">=", ("5",)), Condition("note", "<>", ("hidden",)))
    table.put([OLD, OLD | {"id": 2, "n": 4}, OLD | {"id": 3, "n": None}])
    assert read(table, 0, ["id", "s"], where) == [(1, "a", 1)]

    def after(**change: Any) -> list[tuple[Any, ...]]:
        before = table.log()[0].last
        table.put(OLD | change)
        return read(table, before, ["id", "s"], where)

    assert after(n=4) == [(1, "a", -1)]
    assert after(n=3) == []
    assert after(n=9) == [(1, "a", 1)]
    assert after(n=8) == []  # what is read of it is as it was
    assert after(n=8, s="b") == [(1, "a", -1), (1, "b", 1)]
    assert after(n=8, s="b", note="hidden") == [(1, "b", -1)]
    assert after(id=2, n=None) == []


def test_a_load_has_the_rows_that_pass(table: ev.Table) -> None:
    table.put([OLD | {"id": i, "n": i} for i in range(10)])
    step = Step(table._store.address, (0,), 0, 1, None, {"t": {0: table.log()[0].last}})
    column = table.schema.column("s")
    source = Source((column,), "t", ("s",), where=(Condition("n", ">", ("6",)),))
    found = read_rows(step, source)
    assert [tuple(row.values()) for row in found] == [("a", 1)] * 3
