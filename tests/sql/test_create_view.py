"""What CREATE VIEW says beside its query: names of columns, and options."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.errors import InvalidSql
from everview.parsing import Statement
from everview.sql.create_view import CreateView

QUERY = "SELECT customer, sum(amount) FROM orders GROUP BY customer ORDER BY sum(amount) DESC"


@pytest.fixture
def shop(sail: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "shop.ev", create=True) as db:
        db.engines.use(sail)
        db.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer STRING, amount BIGINT)")
        db.table("orders").put([{"id": i, "customer": f"c{i % 3}", "amount": i} for i in range(9)])
        yield db


def test_a_view_may_name_its_columns(shop: ev.Database) -> None:
    shop.sql(f"CREATE MATERIALIZED VIEW spend (who, `how much`) AS {QUERY}")
    shop.sql("CREATE VIEW big AS SELECT who FROM spend WHERE `how much` > 10")
    shop.maintain()
    assert shop.view("spend").to_arrow().to_pylist() == [
        {"who": "c2", "how much": 15},
        {"who": "c1", "how much": 12},
        {"who": "c0", "how much": 9},
    ]
    assert shop.view("spend").get("c1") == {"who": "c1", "how much": 12}
    assert sorted(row["who"] for row in shop.view("big").scan()) == ["c1", "c2"]
    assert all(shop.verify(view).equal for view in shop.views())


def test_readers_are_planned_anew_with_the_names_that_they_gave(shop: ev.Database) -> None:
    shop.sql(f"CREATE VIEW spend (who, much) AS {QUERY}")
    shop.sql("CREATE VIEW big (someone) AS SELECT who FROM spend WHERE much > 10")
    shop.maintain()
    shop.sql(
        "CREATE OR REPLACE VIEW spend (n, who, much) AS "
        "SELECT count(*), customer, sum(amount) FROM orders GROUP BY customer"
    )
    shop.maintain()
    assert shop.view("big").schema.names == ["someone"]
    assert sorted(row["someone"] for row in shop.view("big").scan()) == ["c1", "c2"]
    assert shop.view("spend").get("c1") == {"n": 3, "who": "c1", "much": 12}


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("(who)", r"names 1 column \(who\) and its query gives 2 \(customer, sum\(amount\)\)"),
        ("(who, much, more)", "names 3 columns"),
        ("(who, WHO)", "two columns who"),
        ("(who STRING, much)", "who STRING can't name a column"),
        ("(who, )", "nothing can't name a column"),
    ],
)
def test_names_that_do_not_fit_the_query_are_refused(
    shop: ev.Database, columns: str, reason: str
) -> None:
    with pytest.raises(InvalidSql, match=reason):
        shop.sql(f"CREATE VIEW spend {columns} AS {QUERY}")
    assert shop.views() == []


def test_options_stand_after_the_names_and_in_any_order() -> None:
    text = "CREATE VIEW v (a) WITH (refresh = 'full', CONSISTENCY = 'complete') AS SELECT 1"
    creation = CreateView.of(Statement(text))
    assert creation.definition.columns == ("a",)
    assert creation.definition.query == "SELECT 1"
    assert creation.definition.is_full
    assert creation.consistency == "complete"
    for wrong in ("WITH ()", "WITH (refresh)", "WITH (refresh = full x)", "WITH (speed = 'high')"):
        with pytest.raises(InvalidSql, match="a view has no option"):
            CreateView.of(Statement(f"CREATE VIEW v {wrong} AS SELECT 1"))
    for wrong in ("WITH", "(a", "(a) SELECT 1", "AS"):
        with pytest.raises(InvalidSql):
            CreateView.of(Statement(f"CREATE VIEW v {wrong}"))
