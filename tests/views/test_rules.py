"""Views whose plans the rules have changed equal Spark's answers after every epoch."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everview as ev
from everview.engines.engine import Engine

# each with its operators
KEYED = {
    "rows": (
        "SELECT id, customer, count(*) AS n, count(amount) AS c, sum(amount) AS s, avg(amount) "
        "AS a, sum(f) AS sf, avg(quantity) AS aq, min(f) AS mf, count(DISTINCT quantity) AS q "
        "FROM orders GROUP BY id, customer",
        [],
    ),
    "distinct_rows": ("SELECT DISTINCT id, quantity FROM orders", []),
    "named": (
        "SELECT o.id, c.name, sum(o.amount) AS s FROM orders o LEFT JOIN customers c "
        "ON o.customer = c.id GROUP BY o.id, c.name",
        ["join"],
    ),
    "unnamed": (
        "SELECT o.quantity, sum(o.amount) AS s FROM orders o LEFT JOIN customers c "
        "ON o.customer = c.id WHERE o.f > 0 GROUP BY o.quantity",
        ["aggregate"],
    ),
    "all_of_both": (
        "SELECT o.id, c.id AS customer, count(*) AS n, max(c.name) AS name FROM orders o "
        "FULL JOIN customers c ON o.customer = c.id GROUP BY o.id, c.id",
        ["join"],
    ),
    "several_ids": (
        "SELECT customer, count(DISTINCT id) AS ids, sum(DISTINCT id) AS s FROM orders "
        "GROUP BY customer",
        ["aggregate"],
    ),
}

GROWING = {
    "most": (
        "SELECT name, min(x) AS lo, max(x) AS hi, max(f) AS f, min(name) AS n, count(x) AS c "
        "FROM events GROUP BY name",
        3,
    ),
    "newest": ("SELECT id, name, f FROM events ORDER BY f DESC, id LIMIT 3", 3),
    "of_both": (
        "SELECT e.name, max(e.x + k.x) AS hi FROM events e JOIN events k ON e.id = k.x "
        "GROUP BY e.name",
        3,
    ),
    "overall": ("SELECT max(x) AS hi, first(name) AS n FROM events WHERE x < 900", 1),
}

# each with what its source says, and whether the engine has something left to filter
FILTERED = {
    "dear": (
        "SELECT id, amount FROM orders WHERE amount > 1000 AND quantity IN (1, 3, 5)",
        "(id, amount) where amount > 1000.00 AND quantity IN (1, 3, 5)",
        False,
    ),
    "negative": (
        "SELECT count(*) AS n FROM orders WHERE amount < -12.34 AND quantity <> 3",
        "where amount < -12.34 AND quantity <> 3",
        False,
    ),
    "known": (
        "SELECT customer, sum(f) AS s FROM orders WHERE f > 0 AND quantity >= customer "
        "GROUP BY customer",
        "where quantity >= customer AND f IS NOT NULL",
        True,
    ),
    "missing": ("SELECT id FROM orders WHERE amount IS NULL", "where amount IS NULL", False),
}


@pytest.fixture
def db(
    engine: Engine, spark: Engine, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[ev.Database]:
    if engine.name == "spark" and not request.config.getoption("--long"):
        pytest.skip("Spark takes a minute: make test-all")
    with ev.open(tmp_path / "shop.ev", create=True) as database:
        database.engines.use(engine)
        database.sql(
            "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer INT, amount DECIMAL(12,2), "
            "quantity INT, f DOUBLE) WITH (regions = 2)"
        )
        database.sql("CREATE TABLE customers (id INT PRIMARY KEY, name STRING) WITH (regions = 1)")
        yield database


def operators(db: ev.Database, view: str) -> list[str]:
    """The kinds of a view's operators."""
    nodes = [db.explain(view, json=True)["plan"]["inputs"][0]]
    found = []
    while nodes:
        node = nodes.pop()
        found += [node["kind"]] * (node["runs"] == "operator")
        nodes += node["inputs"]
    return found


def order(chance: random.Random, key: int) -> dict[str, Any]:
    return {
        "id": key,
        "customer": chance.choice([None, 1, 2, 3]),
        "amount": chance.choice(
            [None, f"{chance.randrange(-999, 9999)}.{chance.randrange(99):02}"]
        ),
        "quantity": chance.choice([None, chance.randrange(10)]),
        "f": chance.choice([None, -0.0, 0.0, math.nan, chance.uniform(-9, 9)]),
    }


def change(db: ev.Database, chance: random.Random) -> None:
    db.table("orders").put([order(chance, chance.randrange(30)) for _ in range(15)])
    db.table("orders").delete([chance.randrange(30) for _ in range(5)])
    db.table("customers").put([{"id": chance.randrange(1, 6), "name": chance.choice("ab")}])
    db.table("customers").delete([chance.randrange(1, 6)])


def test_views_without_the_state_that_a_key_makes_unnecessary(db: ev.Database) -> None:
    chance = random.Random(7)
    change(db, chance)
    for name, (query, kept) in KEYED.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        assert operators(db, name) == kept
    for _ in range(2):
        assert not db.maintain().failed
        assert [name for name in KEYED if not db.verify(name).equal] == []
        change(db, chance)


def test_views_whose_conditions_are_asked_where_the_log_is_read(db: ev.Database) -> None:
    chance = random.Random(9)
    change(db, chance)
    for name, (query, told, filters) in FILTERED.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        labels = [node.label() for node in db.view(name).plan.walk()]
        assert told in labels[0]
        assert any(label.startswith("filter") for label in labels) == filters
    for _ in range(3):
        assert not db.maintain().failed
        assert [name for name in FILTERED if not db.verify(name).equal] == []
        change(db, chance)


def event(chance: random.Random, key: int) -> dict[str, Any]:
    return {
        "id": key,
        "name": chance.choice(["a", "b", None]),
        "x": chance.choice([None, chance.randrange(1000)]),
        "f": chance.choice([None, -0.0, 0.0, math.nan, chance.uniform(-9, 9)]),
    }


def state_rows(db: ev.Database, view: str, kind: str) -> int:
    """Of the one operator of this kind."""
    node = db.explain(view, json=True)["plan"]
    while node["kind"] != kind:
        (node,) = node["inputs"]
    return int(node["state"]["rows"])


def test_views_over_append_only_tables_keep_only_what_they_show(db: ev.Database) -> None:
    db.sql(
        "CREATE TABLE events (id BIGINT PRIMARY KEY, name STRING, x INT, f DOUBLE) "
        "WITH (regions = 2, append_only = true)"
    )
    chance = random.Random(8)
    for name, (query, _) in GROWING.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    for start in (0, 40, 80):
        made = [event(chance, key) for key in range(start, start + 40)]
        db.table("events").put(made)
        db.table("events").put(made[:3])
        assert not db.maintain().failed
        assert [name for name in GROWING if not db.verify(name).equal] == []
    for name, (_, most) in GROWING.items():
        assert state_rows(db, name, "top-k" if name == "newest" else "aggregate") <= most


def test_a_sum_of_one_negative_zero_is_zero(db: ev.Database) -> None:
    db.table("orders").put([{"id": 1, "f": -0.0}])
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT id, sum(f) AS s FROM orders GROUP BY id")
    db.maintain()
    assert str(db.view("v").get(1)["s"]) == "0.0"
