"""Small steps are done without the engine, on the same state and with the same rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.programs import direct
from everview.programs.program import Program
from everview.programs.programs import Programs
from tests.records import records

pytestmark = pytest.mark.direct

VIEWS = {
    "spend": "SELECT customer, count(*) AS n, sum(amount) AS s FROM orders GROUP BY customer",
    "named": "SELECT o.id, c.name, o.amount * 2 AS twice FROM orders o LEFT JOIN customers c "
    "ON o.customer = c.id WHERE o.amount > 0",
    "overall": "SELECT count(*) AS n, max(amount) AS most FROM orders WHERE amount > 5000",
    "best": "SELECT id, amount FROM orders ORDER BY amount DESC, id LIMIT 3",
    "both": "SELECT customer FROM orders UNION ALL SELECT id FROM customers",
    "without": "SELECT id, name FROM customers c WHERE NOT EXISTS "
    "(SELECT 1 FROM orders o WHERE o.customer = c.id)",
    "above": "SELECT id, amount FROM orders WHERE amount > (SELECT avg(amount) FROM orders)",
}
ON_THE_ENGINE = {
    "places": "SELECT id, rank() OVER (PARTITION BY customer ORDER BY amount) AS r FROM orders",
    "sines": "SELECT id, sin(amount) AS x FROM orders",
}


@pytest.fixture
def shop(db: ev.Database, engine: Engine) -> ev.Database:
    db._engine = engine
    db.sql("CREATE TABLE customers (id BIGINT PRIMARY KEY, name STRING)")
    db.sql(
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, amount DECIMAL(12,2)) "
        "WITH (regions = 3)"
    )
    return db


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The views of each program that an engine runs."""
    ran: list[list[str]] = []
    load, run, sink = Programs.load, Programs._run, Program.sink

    def noted_run(self: Programs, views: list[Any], *rest: Any) -> int:
        ran.append([view.name for view in views])
        return run(self, views, *rest)

    def noted_load(self: Programs, view: Any, *rest: Any) -> int:
        def noted_sink(program: Program, sunk: Any) -> Any:
            ran.append([sunk.name])
            return sink(program, sunk)

        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(Program, "sink", noted_sink)
            return load(self, view, *rest)

    monkeypatch.setattr(Programs, "_run", noted_run)
    monkeypatch.setattr(Programs, "load", noted_load)
    return ran


def change(db: ev.Database, chance: random.Random) -> None:
    orders, customers = db.table("orders"), db.table("customers")
    customers.put([{"id": chance.randrange(9), "name": chance.choice(["ä", "b", None])}])
    orders.put(
        [
            {
                "id": chance.randrange(60),
                "customer": chance.choice([None, *range(9)]),
                "amount": chance.choice([None, chance.randrange(-100, 100)]),
            }
            for _ in range(chance.randrange(1, 20))
        ]
    )
    orders.delete([chance.randrange(60) for _ in range(5)])
    customers.delete([chance.randrange(9)])


def verified(db: ev.Database) -> list[str]:
    return [name for name in db.views if not db.verify(name).equal]


def create(db: ev.Database, views: dict[str, str]) -> None:
    for name, query in views.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")


def test_small_loads_and_epochs_need_no_job(shop: ev.Database, jobs: list[list[str]]) -> None:
    chance = random.Random(3)
    create(shop, VIEWS)
    assert not shop.maintain().failed  # over nothing
    assert verified(shop) == []
    for _ in range(4):
        change(shop, chance)
        assert not shop.maintain().failed
    assert verified(shop) == []
    create(shop, {f"{name}_later": query for name, query in VIEWS.items()})
    assert not shop.maintain().failed  # equal operators are shared
    assert verified(shop) == []
    assert jobs == []


@pytest.mark.parametrize("seed", range(3))
def test_an_engine_goes_on_where_this_ended_and_the_other_way_round(
    shop: ev.Database, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(direct, "is_small", lambda step: chance.random() < 0.5)
    create(shop, VIEWS | ON_THE_ENGINE)
    for _ in range(5):
        change(shop, chance)
        assert not shop.maintain().failed
    assert verified(shop) == []


def test_what_only_an_engine_computes_goes_there_alone(
    shop: ev.Database, jobs: list[list[str]]
) -> None:
    create(shop, VIEWS | ON_THE_ENGINE)
    shop.maintain()
    jobs.clear()
    change(shop, random.Random(1))
    assert not shop.maintain().failed
    assert {name for views in jobs for name in views} == set(ON_THE_ENGINE)
    assert verified(shop) == []


def test_values_that_arrow_may_take_otherwise_go_to_the_engine(
    shop: ev.Database, jobs: list[list[str]]
) -> None:
    create(shop, {"big": "SELECT id, upper(name) AS n FROM customers", "spend": VIEWS["spend"]})
    shop.table("customers").put([{"id": 1, "name": "ada"}])
    shop.table("orders").put([{"id": 1, "customer": 1, "amount": 1}])
    shop.maintain()
    assert jobs == []
    shop.table("customers").put([{"id": 2, "name": "straße"}])
    shop.table("orders").put([{"id": 2, "customer": 1, "amount": 1}])
    assert not shop.maintain().failed
    assert shop.view("big").get(2) == {"id": 2, "n": "STRASSE"}
    assert {name for views in jobs for name in views} == {"big"}
    assert verified(shop) == []


def test_a_row_on_which_a_view_fails_stops_it_with_the_engines_words(shop: ev.Database) -> None:
    create(shop, {"shares": "SELECT id, 100 / customer AS x FROM orders", "spend": VIEWS["spend"]})
    shop.table("orders").put([{"id": 1, "customer": 1, "amount": 1}])
    assert not shop.maintain().failed
    shop.table("orders").put([{"id": 7, "customer": 0, "amount": 1}])
    failed = shop.maintain().failed
    assert list(failed) == ["shares"]
    assert "DIVIDE_BY_ZERO" in failed["shares"] or "zero" in failed["shares"]
    assert "id = 7" in failed["shares"]
    assert shop.view("spend").get(0) == {"customer": 0, "n": 1, "s": 1}


def test_large_steps_go_to_the_engine(
    shop: ev.Database, jobs: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "DIRECT_CHANGES", 10)
    create(shop, {"spend": VIEWS["spend"]})
    shop.table("orders").put([{"id": i, "customer": i, "amount": i} for i in range(10)])
    shop.maintain()
    assert jobs == []
    shop.table("orders").put([{"id": i, "customer": 1, "amount": i} for i in range(20, 31)])
    shop.maintain()
    assert {name for views in jobs for name in views} == {"spend"}
    assert verified(shop) == []


def test_an_operator_that_two_views_share_runs_once(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(
        shop,
        {
            "spend": VIEWS["spend"],
            "often": "SELECT n, count(*) AS c FROM spend GROUP BY n",
            "much": "SELECT customer, s FROM spend WHERE s > 10",
        },
    )
    change(shop, random.Random(2))
    shop.maintain()
    applied: list[str] = []
    apply: Callable[..., Any] = direct.apply_operator

    def noted(part: Any, *rest: Any) -> Any:
        applied.append(f"{part.state} {part.part.shard}")
        return apply(part, *rest)

    monkeypatch.setattr(direct, "apply_operator", noted)
    change(shop, random.Random(4))
    shop.maintain()
    assert len(applied) == len(set(applied)) > 0
    states = {state for view in records(shop) for state in view.operators.values()}
    assert {name.split()[0] for name in applied} <= states
    assert verified(shop) == []
