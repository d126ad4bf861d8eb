"""Views whose joins were ordered and replicated by cost follow random changes; what EXPLAIN says of
them, and the commands around it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import everview as ev
from everview import calibration
from everview.calibration import calibrate
from everview.engines.engine import Engine
from everview.estimate import costs as estimating
from everview.plan.nodes import Join, Node
from everview.plan.rules import order_joins, replicate_small_side
from everview.programs import step

LINES, ORDERS, CUSTOMERS, CITIES = 900, 200, 40, 6
TABLES = {
    "lines": {"id": "INT", "order_id": "INT", "amount": "INT"},
    "orders": {"id": "INT", "customer": "INT", "day": "INT"},
    "customers": {"id": "INT", "city": "INT", "kind": "INT"},
    "cities": {"id": "INT", "name": "STRING"},
}
FROM = """lines l JOIN orders o ON l.order_id = o.id JOIN customers c ON o.customer = c.id
          JOIN cities t ON c.city = t.id"""
VIEWS = {
    "ordered": f"SELECT l.id, t.name, l.amount, o.day FROM {FROM} WHERE c.kind = 1",
    "summed": f"SELECT t.name, o.day, sum(l.amount) AS s, count(*) AS n FROM {FROM} GROUP BY 1, 2",
    "outer_": """SELECT l.id, o.day, t.name FROM lines l JOIN orders o ON l.order_id = o.id
                 LEFT JOIN cities t ON o.day = t.id""",
    "absent": """SELECT l.id, o.customer FROM lines l JOIN orders o ON l.order_id = o.id
                 WHERE NOT EXISTS (SELECT 1 FROM cities t WHERE t.id = o.day + l.amount)""",
    "present": """SELECT l.id, o.customer FROM lines l JOIN orders o ON l.order_id = o.id
                  WHERE o.day + l.amount IN (SELECT id FROM cities)""",
    "either": """SELECT l.id, o.customer FROM lines l JOIN orders o ON l.order_id = o.id
                 WHERE l.amount = 3 OR o.day + l.amount IN (SELECT id FROM cities)""",
}


def rows(rng: np.random.Generator, table: str, ids: np.ndarray) -> pa.Table:
    size = len(ids)
    below = {
        "order_id": ORDERS,
        "amount": 9,
        "customer": CUSTOMERS,
        "day": 9,
        "city": CITIES + 1,
        "kind": 3,
    }
    columns = {
        name: pa.array(
            [f"city {i % 4}" for i in ids]
            if name == "name"
            else ids
            if name == "id"
            else rng.integers(0, below[name], size),
            pa.string() if name == "name" else pa.int32(),
        )
        for name in TABLES[table]
    }
    return pa.table(columns)


def change(db: ev.Database, rng: np.random.Generator, shares: dict[str, int]) -> None:
    """Put some rows of each table anew, and delete others."""
    for table, count in shares.items():
        ids = rng.choice(
            {"lines": LINES, "orders": ORDERS, "customers": CUSTOMERS, "cities": CITIES}[table],
            count,
            replace=False,
        )
        db.table(table).put(rows(rng, table, ids[count // 3 :]))
        db.table(table).delete(ids[: count // 3].tolist())


@pytest.fixture
def shop(
    engine: Engine, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ev.Database]:
    """Tables with rows, in which any better order is taken and any table is small."""
    if engine.name == "spark" and not request.config.getoption("--long"):
        pytest.skip("the same on Spark takes longer: make test-all")
    monkeypatch.setattr(estimating, "_FEW_ROWS", 0)
    monkeypatch.setattr(sys.modules[order_joins.__module__], "BETTER", 1.0)
    monkeypatch.setattr(sys.modules[replicate_small_side.__module__], "LARGER", 1)
    monkeypatch.setattr(step, "FEW_CHANGES", 30)  # more are spread over several partitions
    rng = np.random.default_rng(7)
    with ev.open(tmp_path / "shop.ev", create=True, engine=engine.name) as db:  # type: ignore[arg-type]
        db.engines.use(engine)
        for name, columns in TABLES.items():
            db.create_table(name, columns, key="id")
        for name, count in (
            ("lines", LINES),
            ("orders", ORDERS),
            ("customers", CUSTOMERS),
            ("cities", CITIES),
        ):
            db.table(name).put(rows(rng, name, np.arange(count)))
        yield db


def check(db: ev.Database, when: str) -> None:
    for name, query in VIEWS.items():
        found, wanted = db.view(name).to_arrow(), db.sql(query).to_arrow()
        assert counted(found) == counted(wanted), f"{name}, {when}"


def counted(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(map(tuple, map(dict.values, table.to_pylist())))


def joins(node: Node) -> list[Join]:
    return [one for one in node.walk() if isinstance(one, Join)]


def test_ordered_and_replicated_joins_equal_recomputation(shop: ev.Database) -> None:
    for name, query in VIEWS.items():
        shop.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    plans = {name: shop.view(name).plan for name in VIEWS}
    replicated = {join.how for plan in plans.values() for join in joins(plan) if join.replicated}
    assert replicated >= {"left", "semi", "anti", "existence"}
    assert joins(plans["ordered"])[-1].left.tables() == {"lines"}, "they are most: one join"
    assert shop.maintain().failed == {}
    check(shop, "loaded")
    rng = np.random.default_rng(8)
    for number, shares in enumerate(
        (
            {"lines": 60, "orders": 9},
            {"cities": 4},
            {"lines": 30, "orders": 30, "customers": 9, "cities": 3},
        )
    ):
        change(shop, rng, shares)
        assert shop.maintain().failed == {}
        check(shop, f"epoch {number}")


def test_explain_of_a_create_tells_what_it_would_cost(shop: ev.Database) -> None:
    create = f"CREATE MATERIALIZED VIEW summed AS {VIEWS['summed']}"
    text = shop.explain(create)
    assert "\nexpected: ~1" in text
    assert f"on {shop.engine.name.capitalize()} a load of" in text
    assert "1,000 changes of lines, 79% of all" in text
    assert "mixed by their rows, as no epochs are known" in text
    assert "recomputing would be cheaper from" in text or "would not be cheaper" in text
    assert "times by default constants; everview calibrate DB" in text
    shop.sql(create)
    shop.maintain()
    again = shop.explain(create.replace("summed AS", "again AS"), json=True)
    state = again["estimate"]["new_state"]["rows"]
    assert state == pytest.approx(len(shop.view("summed")), rel=0.2), "all but its rows is shared"
    for seed in range(2):
        change(shop, np.random.default_rng(seed), {"orders": 100})
        shop.maintain()
    tables = shop.explain(create.replace("summed AS", "again AS"), json=True)["estimate"]
    assert tables["rates"]["epochs"] == 2
    assert tables["per_1000_changes"]["orders"]["share"] == 1


def test_calibration_is_kept_and_told(shop: ev.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "ROWS", 400)
    monkeypatch.setattr(calibration, "EPOCHS", ((10, 1), (100, 1)))
    told: list[str] = []
    name = shop.engine.name
    found = calibrate(shop, name, told.append)
    assert found.epoch + found.operator > 0
    assert min(found.row, found.read, found.write, found.send) >= 0
    assert told[-1] == "  changing its tables"
    assert estimating.constants_of(shop.store, name) == found
    other = {"spark": "sail", "sail": "spark"}[name]
    assert estimating.constants_of(shop.store, other).measured is None
    text = shop.explain(f"CREATE MATERIALIZED VIEW v AS {VIEWS['outer_']}")
    assert f"times by constants measured on {found.measured}" in text
