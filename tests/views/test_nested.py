"""Arrays, structs and maps in queries and views, on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.errors import UnsupportedSql

VIEWS = {
    "passed": "SELECT id, tags, spot, prices FROM things WHERE id > 1",
    "joined": "SELECT n.id, n.notes, t.tags, t.prices FROM notes n LEFT JOIN things t "
    "ON n.thing = t.id",
    "by_tags": "SELECT tags, count(*) AS n FROM things GROUP BY tags",
    "kinds": "SELECT DISTINCT spot FROM things",
    "without_key": "SELECT tags, prices FROM things",
    "same_tags": "SELECT a.id, b.id AS other FROM things a JOIN things b ON a.tags = b.tags",
    "either": "SELECT tags FROM things UNION ALL SELECT array('z') AS tags FROM notes",
    "made": "SELECT id, array(id) AS ids, struct(id, tags) AS both_, map('z', id, 'a', 0) AS named "
    "FROM things",
    "parts": "SELECT id, spot.x AS x, size(tags) AS n FROM things",
    "first_two": "SELECT id, tags FROM things ORDER BY id LIMIT 2",
}
ROWS: list[dict[str, Any]] = [
    {"id": 1, "tags": ["a", None], "spot": {"x": 0.5, "days": ["2024-02-29"]}, "prices": {"a": 1}},
    {"id": 2, "tags": [], "spot": {}, "prices": {}},
    {"id": 3, "tags": ["a", None], "spot": {"days": []}, "prices": {"b": "2.50", "a": None}},
    {"id": 4},
]


@pytest.fixture
def shop(engine: Engine, spark: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "shop.ev", create=True) as db:
        db.engines.use(engine)
        db.sql(
            "CREATE TABLE things (id BIGINT, tags ARRAY<STRING>, spot STRUCT<x: DOUBLE, "
            "days: ARRAY<DATE>>, prices MAP<STRING, DECIMAL(12,2)>, PRIMARY KEY (id)) "
            "WITH (regions = 2)"
        )
        db.sql(
            "CREATE TABLE notes (id INT PRIMARY KEY, thing BIGINT, "
            "notes ARRAY<STRUCT<`odd name`: STRING, n: INT NOT NULL>>)"
        )
        db.table("things").put(ROWS)
        db.table("notes").put(
            [{"id": 1, "thing": 3, "notes": [{"odd name": "x", "n": 1}, None]}, {"id": 2}]
        )
        yield db


def things(db: ev.Database) -> list[dict[str, Any]]:
    return list(db.table("things").scan())


def test_queries_read_and_write_them(shop: ev.Database) -> None:
    assert shop.sql("SELECT * FROM things ORDER BY id").to_pylist() == things(shop)
    found = shop.sql("SELECT id FROM things WHERE tags = array('a', NULL) ORDER BY id")
    assert found.to_pylist() == [{"id": 1}, {"id": 3}]  # within arrays, NULL equals NULL
    where = "WHERE prices['b'] = 2.5 AND spot.x IS NULL AND tags IS NOT NULL"
    assert shop.sql(f"SELECT id FROM things {where}").to_pylist() == [{"id": 3}]
    shop.sql(
        "INSERT INTO things VALUES (5, array('p'), named_struct('x', 1D, 'days', "
        "array(DATE '2024-01-01')), map('k', 2.25))"
    )
    shop.sql("UPDATE things SET tags = array('q', 'r') WHERE id = 5")
    assert shop.sql("SELECT * FROM things WHERE id = 5").to_pylist() == [
        shop.table("things").get(5)
    ]
    assert shop.table("things").get(5)["tags"] == ["q", "r"]


def test_views_follow_their_tables(shop: ev.Database) -> None:
    for name, query in VIEWS.items():
        shop.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    shop.maintain()
    check(shop)
    shop.table("things").put(
        [{"id": 2, "tags": ["new"], "prices": {"z": 1, "a": 2}}, {"id": 9, "tags": ["new"]}]
    )
    shop.table("things").delete([1])
    shop.table("notes").put([{"id": 2, "thing": 9, "notes": []}])
    shop.maintain()
    check(shop)
    shop.table("things").delete([2, 3, 4, 9])
    shop.maintain()
    check(shop)
    assert list(shop.view("passed").scan()) == []


def check(db: ev.Database) -> None:
    for name in VIEWS:
        assert db.view(name).status == "live", db.view(name).error
        verdict = db.verify(name)
        assert verdict.equal, (verdict.missing, verdict.extra)
    wanted = [row for row in things(db) if row["id"] > 1]
    assert sorted(db.view("passed").scan(), key=lambda row: row["id"]) == wanted
    for row in wanted:
        assert db.view("passed").get(row["id"]) == row


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "SELECT id, tags FROM things ORDER BY tags LIMIT 2",
            "ORDER BY tags, of type ARRAY<STRING>",
        ),
        ("SELECT id, tags FROM things ORDER BY tags", "ORDER BY tags"),
        ("SELECT max(tags) AS t FROM things", "max of tags"),
        ("SELECT count(DISTINCT spot) AS n FROM things", "count of spot"),
        (
            "SELECT prices, count(*) AS n FROM things GROUP BY prices",
            "GROUP BY of a value of type MAP<STRING, DECIMAL",
        ),
    ],
)
def test_what_needs_an_order_is_refused(
    spark: Engine, shop: ev.Database, query: str, message: str
) -> None:
    with pytest.raises(UnsupportedSql, match=message):
        shop.sql(f"CREATE MATERIALIZED VIEW v AS {query}")


def test_the_source_gives_them_also_in_changes(engine: Engine, shop: ev.Database) -> None:
    reader = engine.session.read.format("everview").option("db", shop.path)
    read = reader.load("things").toArrow()
    assert read.schema == shop.table("things").schema.arrow
    assert sorted(read.to_pylist(), key=lambda row: row["id"]) == things(shop)
    changes = reader.option("changes", "true").load("things").toArrow().to_pylist()
    assert sorted((c["after"] for c in changes), key=lambda row: row["id"]) == things(shop)
