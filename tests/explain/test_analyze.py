"""EXPLAIN ANALYZE counts what epochs did: rows, reads and writes of each operator, by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import everview as ev
from everview.catalog import CHANGES
from everview.engines.engine import Engine
from everview.errors import UnsupportedSql
from everview.maintain import epochs
from everview.programs.applying import StatePart
from everview.programs.step import Step
from everview.programs.turns import turn
from tests.records import record_of

SPEND = """SELECT city, count(*) AS n, sum(amount) AS total
           FROM orders JOIN customers ON customer = customers.id GROUP BY city"""
COSTS = ("rows_in", "rows_out", "reads", "writes")


@pytest.fixture
def shop(engine: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    """Four customers in two cities, and two orders of each."""
    with ev.open(tmp_path / "shop.ev", create=True) as db:
        db.engines.use(engine)
        db.create_table("customers", {"id": "INT", "city": "STRING"}, key="id")
        db.create_table("orders", {"id": "INT", "customer": "INT", "amount": "INT"}, key="id")
        db.table("customers").put([{"id": i, "city": "ab"[i % 2]} for i in range(4)])
        db.table("orders").put([{"id": i, "customer": i % 4, "amount": i} for i in range(8)])
        db.sql(f"CREATE MATERIALIZED VIEW spend AS {SPEND}")
        db.maintain()
        yield db


def change(db: ev.Database) -> None:
    """One order of a customer in city a becomes dearer."""
    row = db.table("orders").get(0)
    assert row is not None
    db.table("orders").put([{**row, "amount": row["amount"] + 1}])


def work(db: ev.Database, view: str = "spend") -> dict[str, Any]:
    """By kind of node, what epochs took."""
    found: dict[str, Any] = {}

    def walk(node: dict[str, Any]) -> None:
        found[node["kind"] if node["kind"] != "source" else node["label"].split()[1]] = node["work"]
        for one in node["inputs"]:
            walk(one)

    walk(db.explain(view, json=True, analyze=True)["plan"])
    return found


def costs(document: dict[str, Any]) -> tuple[int, ...]:
    return tuple(document[name] for name in COSTS)


def test_rows_reads_and_writes_are_those_of_the_changes(shop: ev.Database) -> None:
    assert shop.explain("spend", json=True, analyze=True)["analysis"]["epochs"] == []
    found = work(shop)
    # all rows of both sides go in and are written, 8 pairs come out; where there is no state yet,
    # no keys are looked up in it
    assert costs(found["join"]["load"]) == (12, 8, 0, 12)
    assert costs(found["join"]) == (0, 0, 0, 0)
    change(shop)
    shop.maintain()
    change(shop)
    shop.table("customers").put([{"id": 9, "city": "a"}])
    shop.maintain()
    found = work(shop)
    # each epoch: the order goes and comes (2 rows) and finds one customer (1 read); two items of
    # its bag change. The second: the customer without orders comes, looks for them in vain (1 read)
    # and is written
    assert costs(found["join"]) == (2 + 3, 2 + 2, 1 + 2, 2 + 3)
    # one group is read and written, its old row goes and its new one comes
    assert costs(found["aggregate"]) == (2 + 2, 2 + 2, 2, 2)
    # one view row is read and written; that no row went before is looked up in vain
    assert costs(found["view"]) == (2 + 2, 1 + 1, 2 * 2, 1 + 1)
    assert found["orders"] == {"changes": 2}
    assert found["customers"] == {"changes": 1}
    assert found["project"] is None
    shards = len(record_of(shop, "spend").shards)
    assert found["join"]["skew"] in (4 / 5 * shards, shards), "four rows are of one customer"
    assert found["view"]["skew"] == shards, "all rows are of one city"
    shares = [found[kind]["share"] for kind in ("join", "aggregate", "view")]
    assert sum(shares) == pytest.approx(1)
    assert min(shares) > 0
    analysis = shop.explain("spend", json=True, analyze=True)["analysis"]
    assert analysis["epochs"] == [2, 3]
    assert analysis["changes"] == 3
    assert (analysis["total"]["reads"], analysis["total"]["writes"]) == (9, 9)
    assert analysis["per_1000_changes"]["reads"] == 3_000
    text = shop.explain("spend", analyze=True)
    assert "analyzed: 2 epochs, 2 to 3, with 3 changes of its tables" in text
    for statement in ("EXPLAIN ANALYZE spend", "explain analyze view `spend`;"):
        assert str(shop.sql(statement)) == text


def test_any_process_shows_the_same_and_what_is_not_committed_is_not_shown(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(shop)
    shop.maintain()
    before = work(shop)
    change(shop)
    with monkeypatch.context() as patched:

        def crash(*_: Any) -> None:
            raise RuntimeError("before the commit")

        patched.setattr(epochs, "with_changes", crash)
        with pytest.raises(RuntimeError, match="before the commit"):
            shop.maintain()
    view = record_of(shop, "spend")
    shards = [shop.store.states.shard(view.rows, number).work() for number in view.shards]
    assert max(one.epoch for shard in shards for one in shard.epochs) == 3, "it was applied"
    assert work(shop) == before
    shop.maintain()
    with ev.open(shop.path, readonly=True) as reader:
        found = work(reader)
        assert found == work(shop)
    assert costs(found["join"]) == (2 * 2, 2 * 2, 2 * 1, 2 * 2), "applied twice, it counts once"
    assert found["orders"] == {"changes": 2}


def test_only_epochs_of_which_all_is_known_are_shown(shop: ev.Database) -> None:
    shop.sql("CREATE MATERIALIZED VIEW dear AS SELECT id FROM orders WHERE amount > 100")
    shop.maintain()
    shop.table("customers").put([{"id": 9, "city": "a"}])
    shop.maintain()
    for i in range(12):
        change(shop)
        shop.maintain()
        shop.table("customers").put([{"id": 9, "city": "ba"[i % 2]}])
        shop.maintain()
    shop.sql(f"CREATE MATERIALIZED VIEW rich AS SELECT city FROM ({SPEND}) WHERE total > 3")
    shop.maintain()
    analysis = shop.explain("spend", json=True, analyze=True)["analysis"]
    assert analysis["epochs"] == list(range(7, 27)), "its join keeps twenty"
    assert analysis["changes"] == 20
    # a customer without orders goes and comes, and orders are looked for in vain
    assert costs(work(shop)["join"]) == (20 * 2, 10 * 2, 10 + 10, 20 * 2)
    analysis = shop.explain("dear", json=True, analyze=True)["analysis"]
    assert analysis["epochs"] == list(range(3, 27, 2)), "no row came as far as its state"
    assert costs(work(shop, "dear")["view"]) == (0, 0, 0, 0)
    assert work(shop, "dear")["view"]["skew"] is None
    analysis = shop.explain("rich", json=True, analyze=True)["analysis"]
    assert analysis["epochs"] == [], "those of the operators that it shares are from before"
    assert "no epoch, as its tables did not change" in shop.explain("rich", analyze=True)
    change(shop)
    shop.maintain()
    assert costs(work(shop, "rich")["join"]) == (2, 2, 1, 2)
    assert "· shared with spend" in shop.explain("rich", analyze=True)
    for view in ("spend", "rich"):
        shop.sql(f"DROP VIEW {view}")
    assert [*shop.store.catalog.all(CHANGES)] == [CHANGES["orders"]], "one is still read"


def test_what_has_no_epochs_says_so(shop: ev.Database) -> None:
    shop.sql("CREATE MATERIALIZED VIEW later AS SELECT * FROM orders")
    assert "analyzed: nothing, as it was not loaded yet" in shop.explain("later", analyze=True)
    create = "CREATE MATERIALIZED VIEW other AS SELECT * FROM orders"
    with pytest.raises(UnsupportedSql, match="explain it without ANALYZE"):
        shop.explain(create, analyze=True)
    with pytest.raises(UnsupportedSql, match="explain it without ANALYZE"):
        shop.sql(f"EXPLAIN ANALYZE {create}")
    with pytest.raises(UnsupportedSql, match="EXPLAIN takes the name of a view"):
        shop.sql("EXPLAIN ANALYZE SELECT * FROM orders")


def test_waiting_for_a_turn_is_not_an_operator_s_time(db: ev.Database) -> None:
    db.store.states.create("state", [0])
    shard = db.store.states.shard("state", 0)
    step = Step(db.store.address, (0,), 1, 2, {}, {})
    part = StatePart(step, "state", step.parts.first)
    result = pa.table({"n": [1, 2, 3]})
    applying = threading.Thread(target=part.once, args=(7, lambda state: (result, 3)))
    with turn:
        applying.start()
        time.sleep(0.5)
    applying.join()
    (work,) = shard.work().epochs
    assert (work.rows_in, work.rows_out) == (7, 3)
    assert 0 < work.nanoseconds < 500_000_000
