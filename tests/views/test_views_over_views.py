"""Views that read views: they follow in the same epoch, with the operators of those they read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.errors import InUse, InvalidSql, ViewNotFound
from tests.records import records


@pytest.fixture
def shop(sail: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "shop.ev", create=True) as db:
        db.engines.use(sail)
        db.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer STRING, amount BIGINT)")
        db.table("orders").put([{"id": i, "customer": f"c{i % 4}", "amount": i} for i in range(20)])
        db.sql(
            "CREATE MATERIALIZED VIEW spend AS SELECT customer, sum(amount) AS total, count(*) "
            "AS n FROM orders GROUP BY customer"
        )
        db.sql(
            "CREATE MATERIALIZED VIEW ranked AS SELECT customer, total, rank() OVER (ORDER BY "
            "total DESC) AS place FROM Spend"
        )
        db.sql(
            "CREATE MATERIALIZED VIEW best AS SELECT r.customer, r.total, s.n FROM ranked r JOIN "
            "spend s ON r.customer = s.customer WHERE place = 1"
        )
        yield db


def rows(db: ev.Database, view: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in db.view(view).scan())


def test_they_follow_in_the_same_epoch(shop: ev.Database) -> None:
    assert shop.maintain().failed == {}
    assert rows(shop, "best") == [("c3", 55, 5)]
    shop.table("orders").put({"id": 100, "customer": "c1", "amount": 1000})
    shop.table("orders").delete([19])
    report = shop.maintain()
    assert (report.epochs, report.failed) == (1, {})
    with shop.pin() as at:
        epochs = {at.view(view).epoch for view in ("spend", "ranked", "best")}
        assert len(epochs) == 1
        assert rows(at, "best") == [("c1", 1045, 6)]
        assert ("c3", 36, 4) in rows(at, "spend")
    assert shop.verify("best").equal


def test_what_sql_leaves_open_is_verified_by_the_plan(shop: ev.Database) -> None:
    shop.sql(
        "CREATE MATERIALIZED VIEW numbered AS SELECT customer, n, row_number() OVER (ORDER BY n) "
        "AS place, first(n) OVER (ORDER BY n ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS f FROM "
        "spend"
    )
    shop.sql(
        "CREATE MATERIALIZED VIEW some AS SELECT n, collect_list(customer) AS c, "
        "last(place) AS p FROM numbered GROUP BY n"
    )
    shop.maintain()
    assert not shop.view("best").is_open
    for view in ("numbered", "some"):
        assert shop.view(view).is_open
        assert shop.verify(view).equal


def test_operators_are_those_of_the_inner_view(shop: ev.Database) -> None:
    shop.maintain()
    assert "· shared with best, ranked" in str(shop.explain("spend"))
    kept = [state for view in records(shop) for state in view.operators.values()]
    assert len(kept) > len(set(kept))


def test_a_view_that_others_read_is_dropped_with_them_or_not_at_all(shop: ev.Database) -> None:
    shop.maintain()
    with pytest.raises(InUse, match=r"spend is read by view ranked, best.*CASCADE"):
        shop.sql("DROP VIEW spend")
    with pytest.raises(InUse, match="ranked is read by view best"):
        shop.sql("DROP VIEW ranked")
    with pytest.raises(InvalidSql, match=r"\[CASCADE\]"):
        shop.sql("DROP VIEW spend ENTIRELY")
    shop.sql("DROP MATERIALIZED VIEW ranked CASCADE")
    assert shop.views() == ["spend"]
    assert rows(shop, "spend")[0] == ("c0", 40, 5)
    shop.sql("DROP VIEW IF EXISTS ranked")
    with pytest.raises(ViewNotFound):
        shop.sql("DROP VIEW ranked")
    shop.sql("DROP VIEW spend")
    shop.sql("DROP TABLE orders")
    assert shop.store.states.names() == []


def test_what_is_read_of_another_view_is_what_it_shows(shop: ev.Database, spark: Engine) -> None:
    """Recomputed by another engine, or in another order, it would differ in its last digits."""
    shop.sql(
        "CREATE MATERIALIZED VIEW shapes AS SELECT id % 7 AS g, skewness(amount * 0.1D) AS s, "
        "kurtosis(sqrt(amount)) AS k FROM orders GROUP BY id % 7"
    )
    assert shop.maintain(engine="spark").failed == {}
    shop.sql("CREATE MATERIALIZED VIEW again AS SELECT * FROM shapes")
    shop.sql("CREATE MATERIALIZED VIEW counted AS SELECT s, count(*) AS n FROM shapes GROUP BY s")
    assert shop.maintain().failed == {}
    assert rows(shop, "again") == rows(shop, "shapes")
    shop.table("orders").delete(list(range(20)))
    assert shop.maintain().failed == {}
    assert rows(shop, "again") == rows(shop, "counted") == []
