"""Databases from before expressions were trees: their views go on with the state they have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.plan.expressions import Tree, Written, both
from everview.plan.nodes import Node
from tests.records import change_record, record_of, records

VIEWS = {
    "totals": "SELECT g, count(*) AS n, sum(x + 1) AS s FROM t WHERE upper(b) <> 'C' GROUP BY g",
    "pairs": "SELECT t.k, u.k AS j, t.x * 2 AS y FROM t JOIN u ON t.g = u.g + 0",
    "places": "SELECT k, rank() OVER (PARTITION BY g ORDER BY x) AS r, split(b, ',') AS l FROM t",
    "whole": "SELECT max(x) AS m FROM t",
}


@pytest.fixture
def db(engine: Engine, spark: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "old.ev", create=True) as database:
        database._engine = engine
        for table in ("t", "u"):
            database.sql(
                f"CREATE TABLE {table} (k BIGINT PRIMARY KEY, g BIGINT, x BIGINT, b STRING)"
            )
            database.table(table).put([row(key) for key in range(20)])
        for name, query in VIEWS.items():
            how = " WITH (refresh = 'full')" * (name == "whole")
            database.sql(f"CREATE MATERIALIZED VIEW {name}{how} AS {query}")
        assert database.maintain().failed == {}
        yield database


def row(key: int) -> dict[str, Any]:
    return {"k": key, "g": key % 3, "x": key * 7, "b": "abc,"[key % 4] * 2}


def text_of(tree: Tree) -> Written:
    """As plans had it: with Sail's words behind Spark's."""
    spark, sail = both(tree)
    if spark == sail:
        return Written(spark)
    return Written(f"/*\ue001on spark*/{spark}/*\ue001on sail: {sail}*/")


def as_of_old(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(as_of_old, value))
    return text_of(value) if isinstance(value, Tree) else value


def older(node: Node, states: dict[str, str], moved: dict[str, str]) -> Node:
    """A plan with texts for expressions; `moved` gets the states of its nodes."""
    found = node.with_inputs(lambda one: older(one, states, moved))
    if node.expression_field:
        found = replace(
            found, **{node.expression_field: as_of_old(getattr(found, node.expression_field))}
        )
    if node.identity in states:
        moved[found.identity] = states[node.identity]
    return found


def age(db: ev.Database) -> dict[str, dict[str, str]]:
    """Have all views as they were stored before; gives their states."""
    found = {}
    for view in records(db):
        moved = {"view": view.rows}
        plan = older(view.plan, dict(view.states), moved)
        assert len(moved) == len(view.states)
        assert '"tree"' not in plan.text
        change_record(db, view.name, plan_text=plan.text, states=moved)
        found[view.name] = moved
    return found


def states_of(db: ev.Database) -> dict[str, dict[str, str]]:
    return {view.name: dict(view.states) for view in records(db)}


def change(db: ev.Database, first: int) -> None:
    for table in ("t", "u"):
        db.table(table).put([row(key) | {"x": key} for key in range(first, first + 9)])
        db.table(table).delete([first - 2])


def test_views_of_old_go_on_as_they_were(db: ev.Database) -> None:
    states = age(db)
    for first in (5, 17):
        change(db, first)
        assert db.maintain().failed == {}
        assert {name: db.verify(name).equal for name in VIEWS} == dict.fromkeys(VIEWS, True)
    assert states_of(db) == states
    assert "project" in str(db.explain("pairs"))


def test_a_view_over_one_of_old_shares_its_state(db: ev.Database) -> None:
    states = age(db)
    db.sql("CREATE MATERIALIZED VIEW over AS SELECT g, s + n AS z FROM totals WHERE n > 2")
    change(db, 5)
    assert db.maintain().failed == {}
    assert db.verify("over").equal
    shared = states["totals"].items() & states_of(db)["over"].items()
    assert [node for node, _ in shared if node != "view"]


def test_a_view_of_old_that_is_replaced_has_trees(db: ev.Database) -> None:
    age(db)
    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW totals AS {VIEWS['totals']} HAVING n > 0")
    assert db.maintain().failed == {}
    assert '"tree"' in record_of(db, "totals").plan_text
    assert db.verify("totals").equal
