"""WITH (refresh = 'full'): what can't be maintained is computed anew, if one asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.errors import InvalidSql, UnsupportedSql

FULL = "CREATE MATERIALIZED VIEW {} WITH (refresh = 'full') AS {}"
BELOW = (
    "WITH RECURSIVE below (id, top) AS (SELECT id, id FROM parts WHERE parent IS NULL "
    "UNION ALL SELECT parts.id, below.top FROM Parts JOIN below ON parts.parent = below.id) "
    "SELECT top, count(*) AS n FROM below GROUP BY top"
)
SKIPPED = "SELECT id, name, '{x}' AS braces FROM parts ORDER BY id DESC OFFSET 2"


@pytest.fixture
def shop(engine: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    yield from opened(engine, tmp_path)


@pytest.fixture
def shop_on_spark(spark: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    """Sail has no recursive WITH."""
    yield from opened(spark, tmp_path)


def opened(engine: Engine, path: Path) -> Iterator[ev.Database]:
    with ev.open(path / "shop.ev", create=True) as db:
        db.engines.use(engine)
        db.sql("CREATE TABLE parts (id BIGINT PRIMARY KEY, parent BIGINT, name STRING)")
        db.sql("CREATE TABLE others (id BIGINT PRIMARY KEY)")
        yield db


def part(db: ev.Database, number: int, parent: int | None = None, name: str | None = None) -> None:
    db.table("parts").put({"id": number, "parent": parent, "name": name})


def rows(db: ev.Database, view: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in db.view(view).scan())


def test_a_recursive_query_follows_changes_when_it_is_refreshed_in_full(
    shop_on_spark: ev.Database,
) -> None:
    shop = shop_on_spark
    with pytest.raises(UnsupportedSql, match="recursive WITH"):
        shop.sql(f"CREATE MATERIALIZED VIEW tops AS {BELOW}")
    part(shop, 1)
    part(shop, 2, 1)
    shop.sql(FULL.format("tops", BELOW))
    shop.maintain()
    assert rows(shop, "tops") == [(1, 2)]
    part(shop, 3, 2)
    part(shop, 9)
    shop.maintain()
    assert rows(shop, "tops") == [(1, 3), (9, 1)]
    shop.table("parts").delete([1])
    shop.maintain()
    assert rows(shop, "tops") == [(9, 1)]
    shop.table("parts").delete([2, 3, 9])
    shop.maintain()
    assert rows(shop, "tops") == []
    part(shop, 4)
    assert shop.maintain().rows == 1
    assert rows(shop, "tops") == [(4, 1)]


def test_views_over_it_follow_in_the_same_epoch(shop: ev.Database) -> None:
    shop.sql(FULL.format("skipped", SKIPPED))
    shop.sql("CREATE MATERIALIZED VIEW named AS SELECT count(name) AS n FROM skipped")
    for number in range(5):
        part(shop, number, name="x" if number % 2 else None)
    shop.maintain()
    assert shop.view("skipped").to_arrow().to_pylist() == [
        {"id": number, "name": "x" if number % 2 else None, "braces": "{x}"} for number in (2, 1, 0)
    ]
    assert rows(shop, "named") == [(1,)]
    part(shop, 5)
    part(shop, 6)
    shop.maintain()
    assert rows(shop, "named") == [(2,)]
    assert shop.view("named").epoch == shop.view("skipped").epoch
    assert all(shop.verify(view).equal for view in shop.views())


def test_changes_of_other_tables_compute_nothing_anew(shop: ev.Database) -> None:
    shop.sql(FULL.format("skipped", SKIPPED))
    shop.sql("CREATE MATERIALIZED VIEW many AS SELECT count(*) AS n FROM others")
    part(shop, 1)
    shop.maintain()
    shop.table("others").put({"id": 1})
    assert shop.maintain().rows == 1
    assert shop.explain("skipped", analyze=True, json=True)["analysis"]["epochs"] == []


def test_explain_says_that_all_is_computed_anew(shop: ev.Database) -> None:
    for number in range(100):
        part(shop, number)
    text = shop.explain(FULL.format("skipped", SKIPPED))
    assert "maintained: in full, computed anew from whole tables whenever one of them" in text
    assert "refresh: the whole query over parts" in text
    shop.sql(FULL.format("skipped", SKIPPED))
    over = shop.explain("CREATE MATERIALIZED VIEW few AS SELECT name FROM skipped WHERE id < 9")
    assert "maintained: in full" in over
    (listed,) = shop.sql("SHOW VIEWS").to_pylist()
    assert listed["refresh"] == "full"


def test_what_no_table_tells_is_refused_all_the_same(shop: ev.Database) -> None:
    shop.sql("CREATE MATERIALIZED VIEW plain AS SELECT id FROM parts")
    for query, reason in {
        "SELECT id, rand() AS r FROM parts": "other rows each time",
        "SELECT id, current_date() AS d FROM parts": "changes by itself",
        "SELECT 1 AS one": "reads no table",
        "SELECT id FROM plain": "can read tables only, not the view plain",
    }.items():
        with pytest.raises(UnsupportedSql, match=reason):
            shop.sql(FULL.format("other", query))
    with pytest.raises(InvalidSql, match="refresh = 'incremental' or 'full'"):
        shop.sql("CREATE MATERIALIZED VIEW other WITH (refresh = 'daily') AS SELECT id FROM parts")
    assert shop.views() == ["plain"]


def test_a_query_that_fails_stops_its_view_alone(shop: ev.Database) -> None:
    shop.sql(FULL.format("shares", "SELECT id, 10 / id AS share FROM parts OFFSET 0"))
    shop.sql("CREATE MATERIALIZED VIEW many AS SELECT count(*) AS n FROM parts")
    part(shop, 1)
    shop.maintain()
    part(shop, 0)
    assert list(shop.maintain().failed) == ["shares"]
    assert rows(shop, "shares") == [(1, 10.0)]
    assert rows(shop, "many") == [(2,)]
