"""A pin: one epoch over views and tables, whatever happens meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.errors import ReadOnly, TableNotFound, ViewNotFound
from everview.maintain import epochs
from tests.records import change_record


@pytest.fixture
def shop(sail: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    """Ten orders that the views have, and a table that none reads."""
    with ev.open(tmp_path / "shop.ev", create=True) as db:
        db.engines.use(sail)
        db.create_table("orders", {"id": "INT", "who": "STRING", "n": "INT"}, key="id")
        db.create_table("notes", {"id": "INT", "text": "STRING"}, key="id")
        db.sql("CREATE MATERIALIZED VIEW spend AS SELECT who, sum(n) AS n FROM orders GROUP BY who")
        db.sql("CREATE MATERIALIZED VIEW whole AS SELECT count(*) AS orders FROM orders")
        db.table("orders").put([{"id": i, "who": "ab"[i % 2], "n": 1} for i in range(10)])
        db.table("notes").put([{"id": 1, "text": "one"}])
        db.maintain()
        yield db


def change(db: ev.Database) -> None:
    """An order of each kind of change, each time with other numbers."""
    orders = db.table("orders")
    n = (orders.get(20) or {"n": 6})["n"] + 1
    orders.put([{"id": 0, "who": "c", "n": n - 2}, {"id": 20, "who": "a", "n": n}])
    orders.delete([1, 21])
    db.table("notes").put([{"id": 1, "text": "two"}, {"id": 2, "text": "new"}])


def test_reads_of_a_pin_stay_at_its_epoch(shop: ev.Database) -> None:
    with shop.pin() as at:
        for _ in range(4):
            change(shop)
            assert shop.maintain().epochs == 1
            assert list(at.view("spend").scan()) == [{"who": "a", "n": 5}, {"who": "b", "n": 5}]
            assert at.view("spend").get("a") == {"who": "a", "n": 5}
            assert at.view("spend").get("c") is None
            assert [row["orders"] for row in at.view("whole").scan()] == [10]
            orders = at.table("orders")
            assert orders.get(0) == {"id": 0, "who": "a", "n": 1}
            assert orders.get(1) == {"id": 1, "who": "b", "n": 1}
            assert orders.get(20) is None
            assert orders.get_many([0, 1, 20, 2])["n"].to_pylist() == [1, 1, 1]
            assert [row["id"] for row in orders.scan()] == list(range(10))
            assert [row["id"] for row in orders.scan(start=8)] == [8, 9]
            assert len(orders) == 10
            assert at.table("notes").get(1) == {"id": 1, "text": "one"}
            assert len(at.table("notes")) == 1
        first = at.epoch
    with shop.pin() as at:
        assert at.epoch == first + 4
        assert [row["orders"] for row in at.view("whole").scan()] == [10]
        assert at.table("orders").get(20) == {"id": 20, "who": "a", "n": 10}
        assert at.table("notes").get(1) == {"id": 1, "text": "two"}


def test_a_pin_has_of_tables_what_its_epoch_has(shop: ev.Database) -> None:
    change(shop)
    with shop.pin("orders", "whole") as at:
        assert len(at.table("orders")) == 10
        assert at.table("orders").get(20) is None
        assert at.freshness.total_seconds() > 0
        assert at.positions["orders"]
    shop.maintain()
    with shop.pin("orders") as at:
        assert at.table("orders").get(20) is not None
        assert at.freshness.total_seconds() == 0
        time.sleep(0.01)
        change(shop)
        assert at.freshness.total_seconds() > 0


def test_a_pin_reads_only_what_it_names_and_never_writes(shop: ev.Database) -> None:
    with shop.pin("Spend", "Orders") as at:
        assert len(at.view("SPEND")) == 2
        with pytest.raises(ViewNotFound):
            at.view("whole")
        with pytest.raises(TableNotFound, match="not in this pin"):
            at.table("notes").get(1)
        with pytest.raises(ReadOnly, match="only reads"):
            at.table("orders").put([{"id": 1}])
    with pytest.raises(TableNotFound, match="there is no table nothing"):
        shop.pin("nothing")


def test_a_handle_that_only_reads_may_pin(shop: ev.Database) -> None:
    with ev.open(shop.path, readonly=True) as reader, reader.pin() as at:
        assert len(at.table("orders")) == 10
        assert len(at.view("spend")) == 2


def test_logs_are_trimmed_when_views_have_them(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs, "TRIM_EVERY", 1)
    orders = shop.table("orders")
    change(shop)
    shop.maintain()
    assert sum(len(batch) for batch in orders.changes()) == 13, "they are not old enough"
    monkeypatch.setattr(epochs, "TRIMMED_SECONDS", 0.0)
    orders.register("reader")
    change(shop)
    shop.maintain()
    assert sum(len(batch) for batch in orders.changes()) == 15, "a consumer needs them"
    orders.unregister("reader")
    with shop.pin() as at:
        change(shop)
        shop.maintain()
        assert len(at.table("orders")) == 10
    assert sum(len(batch) for batch in orders.changes()) == 0
    assert sum(len(batch) for batch in shop.table("notes").changes()) > 0
    assert shop.verify("spend").equal


def test_a_view_whose_load_failed_keeps_no_one_from_reading(shop: ev.Database) -> None:
    """Its state may be gone already, while its document still says where it was."""
    shop.sql("CREATE MATERIALIZED VIEW noted AS SELECT * FROM notes")
    change_record(shop, "noted", states={"view": "gone"})
    with shop.pin() as at:
        assert at.view("spend").get("a") == {"who": "a", "n": 5}
        assert list(at.view("noted").scan()) == []
    assert shop.view("noted").explain()["status"] == "new"
    shop.maintain()
    assert list(shop.view("noted").scan()) == [{"id": 1, "text": "one"}]
