"""Views that add up rows are loaded together, with one look at each table."""

from __future__ import annotations

import random
from typing import Any

import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.maintain import loader, waiting
from everview.programs import pacing, reading, streamed
from tests.records import record_of

pytestmark = pytest.mark.direct

STREAMED = {
    "spend": "SELECT customer, count(*) AS n, sum(amount) AS s FROM orders GROUP BY customer",
    "large": "SELECT customer, sum(amount * 2) AS s, avg(amount) AS p FROM orders "
    "WHERE amount > 50 GROUP BY customer",
    "overall": "SELECT count(*) AS n, sum(amount) AS s, avg(amount) AS p FROM orders",
    "none": "SELECT count(*) AS n, sum(amount) AS s FROM orders WHERE amount > 5000",
    "often": "SELECT n, count(*) AS c FROM "
    "(SELECT customer, count(*) AS n FROM orders GROUP BY customer) GROUP BY n",
    "regular": "SELECT customer, sum(amount) AS s FROM orders "
    "GROUP BY customer HAVING count(*) > 3",
    "places": "SELECT place, count(*) AS n FROM customers GROUP BY place",
}
OTHERS = {
    "named": "SELECT o.id, c.place FROM orders o JOIN customers c ON o.customer = c.id",
    "copy": "SELECT id, amount FROM orders",
    "differing": "SELECT customer, count(DISTINCT amount) AS n FROM orders GROUP BY customer",
    "doubles": "SELECT customer, sum(price) AS s FROM orders GROUP BY customer",
    "sines": "SELECT customer, sum(sin(price)) AS s FROM orders GROUP BY customer",
}


@pytest.fixture
def shop(db: ev.Database, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> ev.Database:
    monkeypatch.setattr(waiting, "SMALL_ROWS", -1)
    db._engine = engine
    db.sql("CREATE TABLE customers (id BIGINT PRIMARY KEY, place STRING)")
    db.sql(
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, amount DECIMAL(12,2), "
        "price DOUBLE) WITH (regions = 3)"
    )
    return db


def fill(db: ev.Database) -> None:
    chance = random.Random(1)
    db.table("customers").put([{"id": i, "place": chance.choice("äb") * 3} for i in range(9)])
    db.table("orders").put(
        [
            {
                "id": i,
                "customer": chance.choice([None, *range(9)]),
                "amount": chance.choice([None, chance.randrange(-100, 100)]),
                "price": chance.choice([None, -0.0, 1e300, chance.random()]),
            }
            for i in range(500)
        ]
    )


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The views that were loaded here."""
    names: list[str] = []
    load = streamed.load

    def noted(views: Any, *rest: Any) -> Any:
        rows, others = load(views, *rest)
        names.extend({view.name for view in views} - {view.name for view in others})
        return rows, others

    monkeypatch.setattr(streamed, "load", noted)
    return names


def create(db: ev.Database, views: dict[str, str]) -> None:
    for name, query in views.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")


def differences(db: ev.Database) -> list[str]:
    return [name for name in db.views if not db.verify(name).equal]


@pytest.mark.parametrize("rows", ["no rows", "rows"])
def test_they_are_as_an_engine_loads_them_and_go_on(
    shop: ev.Database, rows: str, loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed, "_CHUNK_ROWS", 100)
    if rows == "rows":
        fill(shop)
    create(shop, STREAMED | OTHERS)
    report = shop.maintain()
    assert not report.failed
    assert sorted(loaded) == sorted(STREAMED)
    assert differences(shop) == []
    fill(shop)
    shop.table("orders").delete(list(range(0, 500, 3)))
    assert not shop.maintain().failed
    assert differences(shop) == []


@pytest.mark.parametrize("engine", ["sail"], indirect=True)
def test_each_table_is_read_once(shop: ev.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(shop)
    create(shop, STREAMED)
    read: list[str] = []
    parts_of = reading.parts_of

    def noted(step: Any, table: str, *rest: Any) -> Any:
        read.append(table)
        return parts_of(step, table, *rest)

    monkeypatch.setattr(streamed, "parts_of", noted)
    shop.maintain()
    assert sorted(read) == ["customers", "orders"]


@pytest.mark.parametrize("engine", ["sail"], indirect=True)
def test_what_fails_here_is_left_to_the_engine(
    shop: ev.Database, loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(shop)
    shop.table("orders").put({"id": 999, "customer": 0, "amount": 1})
    create(shop, {"shares": "SELECT sum(100 div customer) AS s FROM orders", **STREAMED})
    failed = shop.maintain().failed
    assert list(failed) == ["shares"]
    assert "customer = 0" in failed["shares"] or "id = " in failed["shares"]
    assert "shares" not in loaded
    assert [name for name in STREAMED if not shop.verify(name).equal] == []
    monkeypatch.setattr(streamed, "MOST_ROWS", 600)
    loaded.clear()
    create(shop, {"more": "SELECT id, sum(amount) AS s FROM orders GROUP BY id", "most": FINE})
    assert sorted(shop.maintain().loaded) == ["more", "most"]
    assert loaded == [], "both together have too many groups"
    assert [name for name in ("more", "most") if not shop.verify(name).equal] == []


FINE = "SELECT id, count(*) AS n FROM orders GROUP BY id"


@pytest.mark.parametrize("engine", ["sail"], indirect=True)
def test_a_load_that_is_ended_goes_on_later(
    shop: ev.Database, loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(shop)
    create(shop, STREAMED)
    monkeypatch.setattr(pacing, "NOTED_ROWS", 50)
    keep_pace, ends = pacing.keep_pace, [2]

    def ended(step: Any) -> None:
        ends[0] -= 1
        if ends[0] == 0:
            raise loader.LoadEnded("now")
        keep_pace(step)

    monkeypatch.setattr(pacing, "keep_pace", ended)
    assert sorted(shop.maintain().loaded) == sorted(STREAMED)
    assert ends[0] < 0
    assert record_of(shop, "spend").is_live
    assert differences(shop) == []
