"""A view that fails names the row it fails on, if an expression of it fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.plan.expressions import Ref
from everview.plan.nodes import Filter, Node, Project, Source
from everview.programs.diagnosis import failing_row
from everview.programs.step import Step
from everview.schema import Column
from tests.plan.trees import tree

ROWS = 1000
ID, TEXT = Column("id", pa.int32(), False), Column("text", pa.string())
TABLE = Source((Column("text_1", pa.string()),), "t", ("text",))
NUMBER = Project((Column("n", pa.int32()),), TABLE, (tree("CAST({text_1} AS INT)"),))
KEYS = {"t": (ID,)}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "t.ev", create=True) as db:
        db.create_table("t", {"id": "INT", "text": "STRING"}, "id", regions=2)
        db.table("t").put([{"id": i, "text": str(i)} for i in range(ROWS)])
        yield db


def asked(db: ev.Database, engine: Engine, plan: Node, from_start: bool = False) -> str | None:
    end = {"t": {region: log.last for region, log in db.store.log("t").items()}}
    start = {"t": dict.fromkeys(end["t"], 0)} if from_start else None
    step = Step(db.store.address, (0,), 0, 1, start, end)
    return failing_row(engine.session, plan, step, {}, KEYS)


@pytest.mark.parametrize("from_start", [False, True], ids=["load", "epoch"])
def test_one_row_among_many_is_found_with_its_key(
    db: ev.Database, engine: Engine, from_start: bool
) -> None:
    db.table("t").put({"id": 7 * ROWS, "text": "seven"})
    row = asked(db, engine, NUMBER, from_start)
    assert row == "the row text = seven, id = 7000 of t"


def test_long_values_are_cut_and_null_is_named(db: ev.Database, sail: Engine) -> None:
    db.table("t").put({"id": -1, "text": "x" * 100})
    assert asked(db, sail, NUMBER) == f"the row text = {'x' * 40}..., id = -1 of t"
    db.table("t").put({"id": -1, "text": None})
    plan = Project(NUMBER.columns, TABLE, (tree("CAST(coalesce({text_1}, 'none') AS INT)"),))
    assert asked(db, sail, plan) == "the row text = NULL, id = -1 of t"


def test_a_row_that_a_condition_takes_away_does_not_fail(db: ev.Database, sail: Engine) -> None:
    db.table("t").put({"id": -1, "text": "minus"})
    chosen = Filter(TABLE.columns, TABLE, tree("{text_1} <> 'minus'"))
    assert asked(db, sail, Project(NUMBER.columns, chosen, NUMBER.expressions)) is None


def test_where_no_expression_fails_no_row_is_named(db: ev.Database, sail: Engine) -> None:
    assert asked(db, sail, NUMBER) is None
    assert asked(db, sail, Project((TEXT,), TABLE, (Ref("text_1"),))) is None


def test_what_the_engine_lacks_is_no_fault_of_a_row(db: ev.Database, sail: Engine) -> None:
    plan = Project(NUMBER.columns, TABLE, (tree("no_such_function({text_1})"),))
    assert asked(db, sail, plan) is None
