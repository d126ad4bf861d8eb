"""CREATE OR REPLACE and renames while everything runs: readers see the old view or the new one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import everview as ev
from everview.catalog import REPLACEMENTS, VIEWS
from everview.engines.engine import Engine
from everview.errors import InUse, InvalidSql, TableExists, UnsupportedSql, ViewNotFound
from tests.records import all_states

SPEND = "SELECT customer, sum(amount) AS total, count(*) AS n FROM orders GROUP BY customer"
BEST = "SELECT customer, total FROM spend WHERE total > 50"


@pytest.fixture
def shop(sail: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "shop.ev", create=True) as db:
        db.engines.use(sail)
        db.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer STRING, amount BIGINT)")
        db.sql("CREATE TABLE names (customer STRING PRIMARY KEY, name STRING)")
        db.table("orders").put([{"id": i, "customer": f"c{i % 4}", "amount": i} for i in range(20)])
        db.table("names").put([{"customer": f"c{i}", "name": f"N{i}"} for i in range(3)])
        db.sql(f"CREATE MATERIALIZED VIEW spend AS {SPEND}")
        db.sql(f"CREATE MATERIALIZED VIEW best AS {BEST}")
        db.maintain()
        yield db


def rows(db: ev.Database | ev.Pin, view: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in db.view(view).scan())


def order(db: ev.Database, number: int, amount: int) -> None:
    db.table("orders").put({"id": number, "customer": "c1", "amount": amount})


def test_the_old_view_is_read_and_maintained_until_the_new_one_is_loaded(shop: ev.Database) -> None:
    states = set(shop.store.states.names())
    replaced = shop.sql(
        "CREATE OR REPLACE MATERIALIZED VIEW Spend AS SELECT customer, name, total, n FROM "
        f"({SPEND}) LEFT JOIN names USING (customer)"
    )
    assert "view spend will be replaced, and with it best, over names, orders" in replaced.message
    assert rows(shop, "spend")[0] == ("c0", 40, 5)
    order(shop, 100, 1000)
    report = shop.maintain()
    assert report.failed == {}
    assert sorted(report.loaded) == ["best", "spend"]
    assert rows(shop, "spend")[1:] == [
        ("c1", "N1", 1045, 6),
        ("c2", "N2", 50, 5),
        ("c3", None, 55, 5),
    ]
    assert rows(shop, "best") == [("c1", 1045), ("c3", 55)]
    shop.table("names").put({"customer": "c3", "name": "late"})
    order(shop, 101, 1)
    shop.maintain()
    assert rows(shop, "spend")[1:] == [
        ("c1", "N1", 1046, 7),
        ("c2", "N2", 50, 5),
        ("c3", "late", 55, 5),
    ]
    assert rows(shop, "best") == [("c1", 1046), ("c3", 55)]
    assert shop.verify("spend").equal
    assert shop.verify("best").equal
    assert [view["status"] for view in shop.sql("SHOW VIEWS")] == ["live", "live"]
    kept = all_states(shop)
    assert set(shop.store.states.names()) == kept
    assert kept & states, "the sums are those of before"
    assert not shop.store.catalog.all(REPLACEMENTS)


def test_readers_see_either_and_never_neither_while_changes_go_on(shop: ev.Database) -> None:
    forms = [SPEND, f"SELECT *, total + n AS both FROM ({SPEND})"]
    ended, seen, wrong = threading.Event(), set[int](), list[object]()

    def read() -> None:
        while not ended.is_set():
            with shop.pin("spend", "best") as at:
                spend, best = at.view("spend").to_arrow(), at.view("best").to_arrow()
            seen.add(len(spend.schema))
            wanted = {(r["customer"], r["total"]) for r in spend.to_pylist() if r["total"] > 50}
            found = {(r["customer"], r["total"]) for r in best.to_pylist()}
            got = shop.view("spend").get("c1")
            if wanted != found or got is None or len(got) not in (3, 4):
                wrong.append((wanted, found, got))

    reader = threading.Thread(target=read)
    with shop.maintainer(every=0.0):
        reader.start()
        for number in range(8):
            shop.sql(f"CREATE OR REPLACE MATERIALIZED VIEW spend AS {forms[number % 2 - 1]}")
            while shop.store.catalog.all(REPLACEMENTS):
                order(shop, 200 + number, number)
    ended.set()
    reader.join()
    assert wrong == []
    assert seen == {3, 4}
    assert shop.verify("spend").equal
    assert shop.verify("best").equal


def test_one_that_others_could_not_read_any_more_is_refused(shop: ev.Database) -> None:
    with pytest.raises(
        InvalidSql, match=r"view best reads spend and would fail: .*total.*DROP VIEW"
    ):
        shop.sql(
            "CREATE OR REPLACE VIEW spend AS SELECT customer, count(*) AS n FROM orders GROUP BY 1"
        )
    assert not shop.store.catalog.all(REPLACEMENTS)
    shop.sql("DROP VIEW best")
    shop.sql(
        "CREATE OR REPLACE VIEW spend AS SELECT customer, count(*) AS n FROM orders GROUP BY 1"
    )
    shop.maintain()
    assert rows(shop, "spend")[0] == ("c0", 5)


def test_a_definition_that_fails_leaves_the_view_as_it_was(shop: ev.Database) -> None:
    shop.sql("CREATE OR REPLACE VIEW spend AS SELECT customer, 7 DIV amount AS total FROM orders")
    report = shop.maintain()
    assert "nothing was replaced" in report.failed["spend"]
    assert "amount = 0" in report.failed["spend"]
    assert shop.view("spend").error == report.failed["spend"]
    assert shop.view("spend").status == "live"
    order(shop, 100, 1000)
    assert shop.maintain().failed == {}
    assert rows(shop, "best") == [("c1", 1045), ("c3", 55)]
    assert "not replaced: " in str(shop.explain("spend"))
    assert set(shop.store.states.names()) == all_states(shop)

    shop.table("orders").delete([0])
    shop.sql("CREATE OR REPLACE VIEW spend AS SELECT customer, 7 DIV amount AS total FROM orders")
    assert shop.maintain().failed == {}
    assert shop.view("spend").error is None
    assert ("c1", 7) in rows(shop, "spend")


def test_what_is_not_loaded_is_replaced_at_once(shop: ev.Database) -> None:
    shop.sql("CREATE VIEW wrong AS SELECT id, 7 DIV amount AS n FROM orders")
    shop.sql("CREATE OR REPLACE VIEW wrong AS SELECT id, 8 DIV amount AS n FROM orders")
    assert "wrong" in shop.maintain().failed
    shop.sql("CREATE OR REPLACE VIEW wrong AS SELECT id, amount AS n FROM orders WHERE id < 2")
    assert shop.view("wrong").status == "new"
    assert shop.maintain().loaded == ["wrong"]
    assert rows(shop, "wrong") == [(0, 0), (1, 1)]
    shop.sql("CREATE OR REPLACE VIEW another AS SELECT id FROM orders WHERE id = 3")
    shop.maintain()
    assert rows(shop, "another") == [(3,)]


def test_a_stopped_view_is_read_until_its_new_definition_is_there(shop: ev.Database) -> None:
    shop.sql("CREATE VIEW parts AS SELECT id, 60 DIV (amount - 99) AS n FROM orders WHERE id < 2")
    shop.maintain()
    shop.table("orders").put({"id": 1, "customer": "c1", "amount": 99})
    assert "parts" in shop.maintain().failed
    shop.sql("CREATE OR REPLACE VIEW parts AS SELECT id, amount AS n FROM orders WHERE id < 2")
    assert rows(shop, "parts") == [(0, 0), (1, 0)]
    shop.maintain()
    assert rows(shop, "parts") == [(0, 0), (1, 99)]


def test_tables_that_no_view_reads_any_more_keep_no_log_for_it(shop: ev.Database) -> None:
    shop.sql("CREATE VIEW named AS SELECT * FROM names")
    shop.maintain()
    with pytest.raises(InUse, match="read by view named"):
        shop.drop_table("names")
    shop.sql("CREATE OR REPLACE VIEW named AS SELECT customer FROM orders")
    shop.maintain()
    assert shop.table("names").status()[0].consumers == {}
    shop.drop_table("names")
    order(shop, 100, 1)
    shop.maintain()
    assert len(rows(shop, "named")) == 21


def test_a_view_whose_replacement_waits(shop: ev.Database) -> None:
    shop.sql("CREATE OR REPLACE VIEW spend AS SELECT customer, name AS total FROM names")
    with pytest.raises(InUse, match=r"view spend is being replaced; .*then try again"):
        shop.sql("CREATE VIEW top AS SELECT * FROM spend")
    with pytest.raises(InUse, match="names is read by view"):
        shop.drop_table("names")
    shop.sql(f"CREATE OR REPLACE VIEW spend AS {SPEND}")
    shop.drop_table("names")
    shop.sql("ALTER VIEW spend RENAME TO spent")
    shop.maintain()
    assert rows(shop, "spent")[0] == ("c0", 40, 5)
    shop.sql(f"CREATE OR REPLACE VIEW spent AS {SPEND}")
    shop.sql("DROP VIEW spent CASCADE")
    assert shop.store.catalog.all(REPLACEMENTS) == {}
    assert shop.store.states.names() == []


def test_a_renamed_view_goes_on_and_so_do_those_that_read_it(shop: ev.Database) -> None:
    shop.sql("CREATE VIEW few AS SELECT count(*) AS n FROM best")
    shop.maintain()
    states = shop.store.states.names()
    shop.sql("ALTER MATERIALIZED VIEW spend RENAME TO spent")
    shop.sql("ALTER VIEW Best RENAME TO better")
    with pytest.raises(ViewNotFound):
        shop.view("spend")
    order(shop, 100, 1000)
    assert shop.maintain().loaded == []
    assert shop.store.states.names() == states
    assert rows(shop, "spent")[1] == ("c1", 1045, 6)
    assert rows(shop, "better") == [("c1", 1045), ("c3", 55)]
    assert all(shop.verify(view).equal for view in shop.views())
    shop.sql("ALTER VIEW few RENAME TO spend")
    assert all(shop.verify(view).equal for view in shop.views())
    shop.sql("ALTER VIEW spend RENAME TO few")

    shop.sql("CREATE VIEW spend AS SELECT 1 AS total, 'x' AS customer")
    shop.sql(f"CREATE OR REPLACE VIEW spent AS {SPEND} HAVING customer <> 'c3'")
    assert sorted(shop.maintain().loaded) == ["better", "few", "spend", "spent"]
    assert rows(shop, "better") == [("c1", 1045)]
    assert rows(shop, "few") == [(1,)]
    assert shop.verify("better").equal
    with pytest.raises(InUse, match="spent is read by view better, few"):
        shop.sql("DROP VIEW spent")
    shop.sql("DROP VIEW spent CASCADE")
    assert shop.views() == ["spend"]


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("CREATE VIEW spend AS SELECT 1 AS a", TableExists, "CREATE OR REPLACE MATERIALIZED VIEW"),
        ("CREATE OR REPLACE VIEW orders AS SELECT 1 AS a", TableExists, "there is a table orders"),
        ("CREATE OR REPLACE VIEW spend AS SELECT * FROM best", UnsupportedSql, "would read itself"),
        ("CREATE OR REPLACE VIEW IF NOT EXISTS a AS SELECT 1", InvalidSql, "exclude each other"),
        ("CREATE OR REPLACE VIEW spend", InvalidSql, "write CREATE"),
        ("CREATE OR VIEW spend AS SELECT 1", InvalidSql, "write CREATE"),
        ("ALTER VIEW spend RENAME TO best", TableExists, "table or view best already"),
        ("ALTER VIEW spend RENAME TO Orders", TableExists, "table or view Orders already"),
        ("ALTER VIEW spend RENAME TO", InvalidSql, "write ALTER VIEW name RENAME TO other"),
        ("ALTER VIEW nothing RENAME TO a", ViewNotFound, "no view nothing"),
    ],
)
def test_what_can_not_be_is_refused_and_nothing_changes(
    shop: ev.Database, statement: str, error: type[Exception], message: str
) -> None:
    before = shop.store.catalog.all(VIEWS)
    with pytest.raises(error, match=message):
        shop.sql(statement)
    assert shop.store.catalog.all(VIEWS) == before
    assert shop.store.catalog.all(REPLACEMENTS) == {}


def test_one_that_may_be_there_already(shop: ev.Database) -> None:
    said = shop.sql("CREATE MATERIALIZED VIEW IF NOT EXISTS spend AS SELECT 1 AS a").message
    assert said == "view spend exists already"
    shop.sql("CREATE VIEW IF NOT EXISTS fresh WITH (consistency = 'complete') AS SELECT 1 AS a")
    assert shop.view("fresh").consistency == "complete"
    shop.sql("ALTER VIEW fresh RENAME TO Fresh")
    assert shop.views() == ["Fresh", "best", "spend"]
