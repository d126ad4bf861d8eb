"""Views over a table to which columns are added: they go on as they were, new ones may use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import everview as ev
from everview.engines.engine import Engine
from tests.records import record_of

VIEWS = {
    "spend": "SELECT who, sum(n) AS n FROM orders GROUP BY who",
    "whole": "SELECT * FROM orders",
    "paired": "SELECT o.id, p.city FROM orders o JOIN people p USING (who)",
    "named": "SELECT id, city FROM orders NATURAL JOIN people",
}


@pytest.fixture
def shop(sail: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "shop.ev", create=True) as db:
        db.engines.use(sail)
        db.create_table("orders", {"id": "INT", "who": "STRING", "n": "INT"}, key="id")
        people = db.create_table("people", {"who": "STRING", "city": "STRING"}, key="who")
        people.put([{"who": "a", "city": "x"}, {"who": "b", "city": "y"}])
        for name, query in VIEWS.items():
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        db.table("orders").put([{"id": i, "who": "ab"[i % 2], "n": 1} for i in range(10)])
        db.maintain()
        yield db


def states(db: ev.Database) -> dict[str, object]:
    return {name: record_of(db, name) for name in VIEWS}


def test_views_go_on_over_rows_of_all_versions(shop: ev.Database) -> None:
    before, orders = states(shop), shop.table("orders")
    with shop.pin() as at:
        shop.sql("ALTER TABLE orders ADD COLUMNS (note STRING, city STRING)")
        shop.sql("ALTER TABLE people ADD COLUMN n INT")
        assert shop.maintain().epochs == 0
        orders.put([{"id": i, "who": "a", "n": 5, "note": "new"} for i in (1, 11)])
        orders.delete([2, 3])
        orders.put({"id": 4, "who": "a", "n": 1})
        report = shop.maintain()
        assert (report.epochs, report.loaded, report.failed) == (1, [], {})
        assert at.table("orders").get(1) == {"id": 1, "who": "b", "n": 1}
        assert [row["n"] for row in at.view("spend").scan()] == [5, 5]
        assert orders.get(1) == {"id": 1, "who": "a", "n": 5, "note": "new", "city": None}
    assert states(shop) == before
    assert shop.view("spend").get("a") == {"who": "a", "n": 4 * 1 + 2 * 5}
    assert shop.view("spend").get("b") == {"who": "b", "n": 3}
    assert shop.view("whole").schema.names == ["id", "who", "n"]
    assert sorted(row["id"] for row in shop.view("whole").scan()) == [0, 1, 4, 5, 6, 7, 8, 9, 11]
    for name in VIEWS:
        verdict = shop.verify(name)
        assert verdict.equal, verdict


def test_new_views_use_new_columns_beside_the_old_ones(shop: ev.Database) -> None:
    shop.sql("ALTER TABLE orders ADD COLUMN note STRING")
    shop.table("orders").put([{"id": i, "who": "a", "n": 5, "note": "new"} for i in (1, 11)])
    fresh = {
        "notes": "SELECT note, count(*) AS n FROM orders GROUP BY note",
        "wide": "SELECT * FROM orders",
        "both": "SELECT w.*, o.note FROM whole w JOIN orders o ON w.id = o.id",
    }
    for name, query in fresh.items():
        shop.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    shop.maintain()
    assert {row["note"]: row["n"] for row in shop.view("notes").scan()} == {None: 9, "new": 2}
    assert shop.view("wide").schema.names == ["id", "who", "n", "note"]
    assert shop.view("both").schema.names == ["id", "who", "n", "note"]
    shop.table("orders").put([{"id": 0, "who": "b", "n": 1, "note": "new"}])
    shop.table("orders").delete([11, 4])
    shop.maintain()
    assert {row["note"]: row["n"] for row in shop.view("notes").scan()} == {None: 7, "new": 2}
    assert shop.rebuild("whole").loaded
    for name in (*VIEWS, *fresh):
        verdict = shop.verify(name)
        assert verdict.equal, verdict
    assert shop.view("whole").schema.names == ["id", "who", "n"]
    found = shop.sql("SELECT id FROM orders WHERE note IS NULL AND n = 1 ORDER BY id")
    assert found.to_arrow().column("id").to_pylist() == [2, 3, 5, 6, 7, 8, 9]
    shop.sql("UPDATE orders SET note = who WHERE note IS NULL")
    assert shop.table("orders").get(9) == {"id": 9, "who": "b", "n": 1, "note": "b"}
