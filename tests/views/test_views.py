"""Views follow their tables: equal to DuckDB's recomputation after every epoch, on both engines."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

import everview as ev
from everview.catalog import EPOCH
from everview.engines.engine import Engine
from everview.errors import (
    DataError,
    InUse,
    InvalidSql,
    TableExists,
    UnsupportedSql,
    ViewNotFound,
    WrongKey,
)
from everview.programs import step
from everview.stores.embedded.catalog import EmbeddedCatalog
from everview.stores.embedded.pinned import PinnedStates

VIEWS = {
    "spend": "SELECT customer, sum(amount) AS total, count(*) AS n, count(amount) AS priced, "
    "sum(quantity) AS pieces FROM orders GROUP BY customer",
    "dear": "SELECT customer, amount * 2 AS twice FROM orders WHERE amount > 50",
    "whole": "SELECT count(*) AS n, sum(amount * quantity) AS worth FROM orders WHERE quantity > 3",
    "busy": "SELECT quantity % 3 AS rest, count(*) AS n FROM orders GROUP BY quantity % 3 "
    "HAVING count(*) > 4",
}
SHAPES = {
    "pairs": "SELECT a.id, b.id AS other, a.amount + b.amount AS both_ FROM orders a JOIN orders b "
    "ON a.quantity = b.quantity AND a.id < b.id WHERE a.customer = 'ada'",
    "perhaps": "SELECT a.id, b.id AS other FROM orders a LEFT JOIN orders b "
    "ON a.quantity = b.id AND b.amount > 10",
    "perhaps_less": "SELECT a.id, b.id AS other FROM orders a LEFT JOIN orders b "
    "ON a.quantity = b.id AND b.amount < a.amount",
    "right_side": "SELECT a.id, b.id AS other FROM orders a RIGHT JOIN orders b "
    "ON a.quantity = b.id",
    "has_dearer": "SELECT id, amount FROM orders a WHERE EXISTS (SELECT 1 FROM orders b "
    "WHERE b.customer = a.customer AND b.amount > a.amount)",
    "has_none_dearer": "SELECT id, amount FROM orders a WHERE NOT EXISTS (SELECT 1 FROM orders b "
    "WHERE b.customer = a.customer AND b.amount > a.amount)",
    "in_few": "SELECT id FROM orders WHERE quantity IN (SELECT id FROM orders WHERE amount > 0)",
    "not_in": "SELECT id FROM orders WHERE quantity NOT IN "
    "(SELECT quantity FROM orders WHERE amount > 9000)",
    "both_kinds": "SELECT id, 'dear' AS kind FROM orders WHERE amount > 5000 UNION ALL "
    "SELECT id, 'many' AS kind FROM orders WHERE quantity > 5",
    "kinds": "SELECT DISTINCT customer, quantity FROM orders",
    "extremes": "SELECT customer, min(amount) AS lo, max(amount) AS hi, max(customer) AS name, "
    "count(DISTINCT quantity) AS q, sum(DISTINCT quantity) AS sq, "
    "sum(CAST(quantity AS DOUBLE) / 4) AS d, avg(CAST(quantity AS DOUBLE)) AS ad "
    "FROM orders GROUP BY customer",
    "of_all": "SELECT min(amount) AS lo, max(id) AS hi, count(DISTINCT customer) AS c FROM orders",
    "first_few": "SELECT id, amount FROM orders ORDER BY amount DESC NULLS LAST, id LIMIT 5",
    "above": "SELECT id FROM orders WHERE amount > (SELECT avg(amount) FROM orders)",
    "largest": "SELECT id FROM orders WHERE amount = (SELECT max(amount) FROM orders)",
    "of_largest": "SELECT id, amount / 2 - (SELECT max(amount) FROM orders) AS less FROM orders "
    "WHERE quantity = 3",
    "busiest": "SELECT customer FROM orders GROUP BY customer "
    "HAVING count(*) > (SELECT count(*) / 5 FROM orders)",
    "sets": "(SELECT customer, quantity FROM orders WHERE quantity > 3 INTERSECT "
    "SELECT customer, quantity FROM orders WHERE amount > 100) UNION "
    "(SELECT customer, quantity FROM orders WHERE quantity IS NULL OR quantity < 3 EXCEPT "
    "SELECT customer, quantity FROM orders WHERE amount < 0)",
}
ORDERS = {"id": "BIGINT", "customer": "STRING", "amount": "DECIMAL(12,2)", "quantity": "INT"}
CUSTOMERS = ["ada", "bob", "", None, "\u00e9ve"]


@pytest.fixture
def shop(engine: Engine, spark: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "shop.ev", create=True) as db:
        db.engines.use(engine)
        db.sql(
            "CREATE TABLE orders (id BIGINT, customer STRING, amount DECIMAL(12,2), quantity INT, "
            "PRIMARY KEY (id)) WITH (regions = 2)"
        )
        yield db


def order(chance: random.Random, key: int) -> dict[str, Any]:
    return {
        "id": key,
        "customer": chance.choice(CUSTOMERS),
        "amount": chance.choice(
            [None, f"{chance.randrange(-999, 9999)}.{chance.randrange(99):02}"]
        ),
        "quantity": chance.choice([None, chance.randrange(10)]),
    }


def change(db: ev.Database, chance: random.Random) -> None:
    orders = db.table("orders")
    orders.put([order(chance, chance.randrange(60)) for _ in range(chance.randrange(1, 25))])
    orders.delete([chance.randrange(60) for _ in range(chance.randrange(10))])


def recomputed(db: ev.Database, query: str) -> Counter[Any]:
    orders = db.table("orders").to_arrow()  # noqa: F841  (DuckDB reads it by its name)
    return Counter(tuple(map(_plain, row)) for row in duckdb.sql(query).fetchall())


def found(db: ev.Database, view: str) -> Counter[Any]:
    return Counter(tuple(map(_plain, row.values())) for row in db.view(view).scan())


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value.normalize())
    return None if value is None else str(value)


def check(db: ev.Database, *names: str) -> None:
    for name in names or VIEWS:
        assert found(db, name) == recomputed(db, (VIEWS | SHAPES)[name]), name


def test_views_equal_recomputation_after_every_epoch(shop: ev.Database) -> None:
    chance = random.Random(11)
    change(shop, chance)
    for name in ("spend", "whole"):
        shop.sql(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")
    shop.maintain()
    check(shop, "spend", "whole")
    for name in ("dear", "busy"):
        shop.sql(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")
    for _ in range(4):
        change(shop, chance)
        assert shop.maintain().epochs == 1
        check(shop)
    assert shop.maintain().epochs == 0
    rows = shop.table("orders").to_arrow()
    shop.table("orders").delete(rows.select(["id"]))
    shop.maintain()
    check(shop)
    assert found(shop, "whole") == Counter([("0", None)])
    shop.table("orders").put(rows)
    shop.maintain()
    check(shop)
    assert all(shop.verify(name).equal for name in VIEWS)


def test_every_shape_of_view_equals_recomputation_after_every_epoch(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """With the rows of an epoch in one partition, and spread over several. In the short form Spark
    has a third of them."""
    is_short = shop.engine.name == "spark" and not request.config.getoption("--long")
    chance, shapes = random.Random(3), list(SHAPES)[:: 3 if is_short else 1]
    for name in shapes[::2]:
        shop.sql(f"CREATE MATERIALIZED VIEW {name} AS {SHAPES[name]}")
    change(shop, chance)
    shop.maintain()
    for name in shapes[1::2]:
        shop.sql(f"CREATE MATERIALIZED VIEW {name} AS {SHAPES[name]}")
    for number in range(2 if shop.engine.name == "spark" else 4):  # Spark's take their time
        monkeypatch.setattr(step, "FEW_CHANGES", [0, 20_000][number % 2])
        change(shop, chance)
        assert not shop.maintain().failed
        check(shop, *shapes)
    rows = shop.table("orders").to_arrow()
    shop.table("orders").delete(rows.select(["id"]))
    shop.maintain()
    check(shop, *shapes)
    shop.table("orders").put(rows)
    shop.maintain()
    check(shop, *shapes)


def test_engines_take_turns_on_the_same_state(
    spark: Engine, sail: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one engine put into a shard the other finds there, whatever the type of the key."""
    types = {"k": "INT", "s": "STRING", "d": "DATE", "t": "TIMESTAMP", "n": "DECIMAL(12,2)"}
    types |= {"w": "DECIMAL(30,6)", "f": "DOUBLE", "b": "BINARY", "o": "BOOLEAN"}
    with ev.open(tmp_path / "both.ev", create=True) as db:
        db.engines.use(sail)
        db.create_table("t", types, key="k", regions=2)
        values = """SELECT k, concat('s', k % 7) AS s, date_add(DATE'1969-12-20', k % 7) AS d,
            timestamp_seconds(k % 7 - 3) AS t, CAST(k % 7 - 3 AS DECIMAL(12,2)) / 4 AS n,
            CAST(k % 7 - 3 AS DECIMAL(30,6)) / 8 AS w, CAST(k % 7 AS DOUBLE) / 3 AS f,
            CAST(concat('b', k % 7) AS BINARY) AS b, k % 2 = 0 AS o
            FROM (SELECT CAST(id AS INT) AS k FROM range(60))"""
        rows = spark.select("", values, {}).cast(db.table("t").schema.arrow)
        db.table("t").put(rows)
        for name in list(types)[1:]:
            db.sql(f"CREATE MATERIALIZED VIEW by_{name} AS SELECT {name}, count(*) AS rows_, "
                   f"min(k) AS least FROM t GROUP BY {name}")  # fmt: skip
        db.maintain()
        for number, engine in enumerate((spark, sail, spark)):
            monkeypatch.setattr(step, "FEW_CHANGES", [0, 20_000][number % 2])
            db.engines.use(engine)
            db.table("t").delete(range(number * 20, number * 20 + 20))
            assert not db.maintain().failed
            left = len(db.table("t"))
            for name in list(types)[1:]:
                assert sum(row["rows_"] for row in db.view(f"by_{name}").scan()) == left, name


def test_two_runs_give_equal_view_tables(spark: Engine, sail: Engine, tmp_path: Path) -> None:
    """On either engine, in epochs cut elsewhere: the same rows in the same order, bit by bit."""
    names = ["extremes", "first_few", "above", "perhaps_less"]
    runs = []
    for run, engine in enumerate((sail, sail, spark)):
        chance = random.Random(7)
        with ev.open(tmp_path / f"run{run}.ev", create=True) as db:
            db.engines.use(spark)
            db.create_table("orders", ORDERS, key="id", regions=2)
            for name in names:
                db.sql(f"CREATE MATERIALIZED VIEW {name} AS {SHAPES[name]}")
            db.engines.use(engine)
            for number in range(6):
                change(db, chance)
                if number % 3 >= run % 2:
                    db.maintain()
            db.maintain()
            runs.append({name: db.view(name).to_arrow() for name in names})
    for name in names:
        assert runs[0][name].num_rows > 0
        assert all(run[name].equals(runs[0][name]) for run in runs), name


def test_a_view_has_the_names_types_and_key_that_spark_gives_it(shop: ev.Database) -> None:
    shop.sql(f"CREATE MATERIALIZED VIEW spend AS {VIEWS['spend']}")
    view = shop.view("SPEND")
    assert view.status == "new"
    assert len(view) == 0
    assert str(view.schema.field("total").type) == "decimal128(22, 2)"
    assert view.key == ("customer",)
    shop.table("orders").put({"id": 1, "customer": "ada", "amount": "2.50"})
    shop.maintain()
    row = {"customer": "ada", "total": 2.5, "n": 1, "priced": 1, "pieces": None}
    assert {**(view.get("ada") or {}), "total": 2.5} == row
    assert view.get("nobody") is None
    shop.sql("CREATE MATERIALIZED VIEW unnamed AS SELECT customer, sum(quantity * 1.5) FROM orders "
             "GROUP BY customer")  # fmt: skip
    shop.maintain()
    assert (shop.view("unnamed").get("ada") or {})["customer"] == "ada"
    assert shop.sql("SELECT total FROM spend WHERE n = 1").to_pylist()[0]["total"] == 2.5


def test_an_epoch_that_was_not_committed_is_not_seen_and_done_once(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(5)
    for name, query in VIEWS.items():
        shop.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    change(shop, chance)
    shop.maintain()
    before = {name: found(shop, name) for name in VIEWS}
    change(shop, chance)
    commit = EmbeddedCatalog.write

    def fail(catalog: EmbeddedCatalog, changes: Any, *rest: Any, **options: Any) -> None:
        if EPOCH in changes:
            raise KeyboardInterrupt
        commit(catalog, changes, *rest, **options)

    with monkeypatch.context() as broken:
        broken.setattr(EmbeddedCatalog, "write", fail)
        with pytest.raises(KeyboardInterrupt):
            shop.maintain()
    assert {name: found(shop, name) for name in VIEWS} == before
    shop.sql("CREATE TABLE other (id INT PRIMARY KEY)")
    shop.sql("CREATE MATERIALIZED VIEW others AS SELECT count(*) AS n FROM other")
    shop.sql("DROP VIEW dear")
    shop.sql(f"CREATE MATERIALIZED VIEW dear AS {VIEWS['dear']}")
    change(shop, chance)
    assert shop.maintain().epochs == 2
    check(shop)


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("SELECT rand() AS r FROM orders", "rand"),
        ("SELECT count(*) + rand() AS r FROM orders", "rand"),
        ("SELECT id FROM orders ORDER BY id OFFSET 2", "LIMIT n OFFSET m"),
        ("SELECT approx_count_distinct(customer) AS n FROM orders", r"count\(DISTINCT"),
        ("SELECT id FROM orders TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("SELECT id, current_date() AS today FROM orders", "current_date"),
        ("SELECT id FROM orders WHERE id IN (SELECT day(now()) FROM orders)", "in a subquery"),
    ],
)
def test_what_can_not_be_maintained_is_refused_and_leaves_nothing(
    shop: ev.Database, query: str, named: str
) -> None:
    with pytest.raises(UnsupportedSql, match=named):
        shop.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert shop.views() == []
    assert not Path(shop.path, "state").exists()


def test_names_and_drops(shop: ev.Database) -> None:
    with pytest.raises(TableExists, match="orders"):
        shop.sql(f"CREATE MATERIALIZED VIEW orders AS {VIEWS['spend']}")
    shop.sql(f"CREATE MATERIALIZED VIEW spend AS {VIEWS['spend']}")
    with pytest.raises(TableExists, match="Spend"):
        shop.sql(f"CREATE MATERIALIZED VIEW Spend AS {VIEWS['dear']}")
    with pytest.raises(InUse, match="DROP VIEW spend"):
        shop.sql("DROP TABLE orders")
    assert "spend" in str(shop.sql("SHOW VIEWS"))
    view = shop.view("spend")
    shop.sql("DROP VIEW spend")
    with pytest.raises(ViewNotFound, match="spend"):
        view.to_arrow()
    shop.sql("DROP TABLE orders")
    assert shop.tables() == []


def test_floats_and_odd_names_are_grouped_as_spark_does(shop: ev.Database) -> None:
    shop.sql("CREATE TABLE odd (id INT PRIMARY KEY, f DOUBLE, `a b` STRING)")
    shop.sql("CREATE MATERIALIZED VIEW odds AS SELECT f AS `f``f`, count(*) AS n, `a b` AS `x.y`, "
             "sum(id * 1.5) FROM odd GROUP BY f, `a b`")  # fmt: skip
    values = [0.0, -0.0, float("nan"), -float("nan"), None, 1.5]
    odd = shop.table("odd")
    odd.put([{"id": i, "f": f, "a b": "q"} for i, f in enumerate(values)])
    shop.maintain()
    odd.delete([1])
    shop.maintain()
    counts = sorted((str(row["f`f"]), row["n"], row["x.y"]) for row in shop.view("odds").scan())
    assert counts == [("0.0", 1, "q"), ("1.5", 1, "q"), ("None", 1, "q"), ("nan", 2, "q")]


def test_two_columns_of_one_name_are_refused(shop: ev.Database) -> None:
    with pytest.raises(InvalidSql, match="two columns"):
        shop.sql("CREATE MATERIALIZED VIEW v AS SELECT id, id FROM orders")


def test_rows_of_a_view_are_found_by_keys_with_null_and_by_odd_names(shop: ev.Database) -> None:
    shop.table("orders").put(
        [{"id": i, "customer": c, "quantity": i} for i, c in enumerate(["ada", "", None])]
    )
    shop.sql("CREATE MATERIALIZED VIEW n AS SELECT customer, count(*) AS n FROM orders GROUP BY 1")
    shop.sql(
        "CREATE MATERIALIZED VIEW `a.b/c` AS SELECT quantity / 2, customer AS `c.d`, count(*) AS n "
        "FROM orders GROUP BY ALL"
    )
    shop.maintain()
    assert shop.view("n").get(None) == {"customer": None, "n": 1}
    assert shop.view("n").get("") == {"customer": "", "n": 1}
    odd = shop.view("a.b/c")
    assert odd.get(1, None) == {"(quantity / 2)": 1.0, "c.d": None, "n": 1}
    assert odd.get(0.0, "ada") == {"(quantity / 2)": 0.0, "c.d": "ada", "n": 1}
    for key in [(), (1,), (1, 2, 3), ([1],)]:
        with pytest.raises(WrongKey, match="is not a key; a key is a tuple"):
            odd.get(*key)


def test_doubles_are_read_in_the_order_that_spark_has_them_in(shop: ev.Database) -> None:
    """NaN is the greatest of them, and zero is zero."""
    shop.sql("CREATE TABLE odd (id INT PRIMARY KEY, f DOUBLE)")
    shop.sql("CREATE MATERIALIZED VIEW up AS SELECT id, f FROM odd ORDER BY f, id")
    shop.sql("CREATE MATERIALIZED VIEW down AS SELECT id, f FROM odd ORDER BY f DESC, id")
    values = [1.5, float("nan"), None, 0.0, -0.0, float("inf"), 0.0]
    shop.table("odd").put([{"id": i, "f": f} for i, f in enumerate(values)])
    shop.maintain()
    assert [row["id"] for row in shop.view("up").scan()] == [2, 3, 4, 6, 0, 5, 1]
    assert [row["id"] for row in shop.view("down").scan()] == [1, 5, 0, 3, 4, 6, 2]


def test_a_query_over_a_view_has_the_types_of_the_view(shop: ev.Database) -> None:
    shop.sql("CREATE TABLE odd (id INT PRIMARY KEY, at TIMESTAMP_NTZ, m MAP<STRING, INT>)")
    shop.sql("CREATE MATERIALIZED VIEW odds AS SELECT at, m FROM odd")
    shop.maintain()
    assert shop.sql("SELECT at, m FROM odds").to_arrow().num_rows == 0
    at = datetime(2024, 2, 29, 12)
    shop.table("odd").put([{"id": 1, "at": at, "m": {"a": 1}}])
    shop.maintain()
    assert list(shop.sql("SELECT at, m FROM odds")) == [{"at": at, "m": [("a", 1)]}]


def test_dates_for_which_python_has_no_value_are_read_as_arrow(
    sail: Engine, tmp_path: Path
) -> None:
    with ev.open(tmp_path / "t.ev", create=True) as db:
        db.engines.use(sail)
        table = db.create_table("t", {"id": "INT", "years": "INT"}, key="id")
        table.put([{"id": 1, "years": 8000}, {"id": 2, "years": 1}])
        db.sql(
            "CREATE MATERIALIZED VIEW v AS SELECT id, add_months(DATE '2020-02-29', 12 * years) AS "
            "day FROM t"
        )
        db.maintain()
        view = db.view("v")
        days = sorted(view.to_arrow()["day"].cast("int32").to_pylist())
        assert days == [18_686, 18_321 + 20 * 146_097]
        assert view.get(2) == {"id": 2, "day": date(2021, 2, 28)}
        for read in (lambda: view.get(1), lambda: list(view.scan())):
            with pytest.raises(DataError, match=r"column day has a date .* with to_arrow\(\)"):
                read()
        with pytest.raises(DataError, match="column day has a date"):
            db.sql("SELECT * FROM v").to_pylist()


def test_rows_are_told_apart_by_intervals(engine: Engine, tmp_path: Path) -> None:
    views = {
        "whole": "SELECT a - b AS i FROM t",
        "counts": "SELECT a - b AS i, count(*) AS n FROM t GROUP BY a - b",
        "pairs": "SELECT x.id, y.id AS other FROM t x JOIN t y ON x.a - x.b = y.a - y.b",
    }
    days = [datetime(2001, 3, day) for day in range(1, 8)]
    with ev.open(tmp_path / "t.ev", create=True) as db:
        db.engines.use(engine)
        columns = {"id": "INT", "a": "TIMESTAMP", "b": "TIMESTAMP"}
        table = db.create_table("t", columns, key="id")
        for name, query in views.items():
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        for first in (0, 2):
            rows = [{"id": i, "a": days[(first + i) % 7], "b": days[i]} for i in range(7)]
            table.put([*rows, {"id": 7, "a": days[0], "b": None}])
            assert db.maintain().failed == {}
            assert all(db.verify(name).equal for name in views)


def test_every_row_is_had_by_its_key_from_the_shard_of_its_slot(
    db: ev.Database, sail: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.engines.use(sail)
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, g STRING, day DATE, x DECIMAL(20,2), b BOOLEAN)")
    days = [None, *(date(2024, 1, d) for d in range(1, 20))]
    db.table("t").put(
        [
            {"id": i, "g": [None, "", "ä", "b"][i % 4], "day": days[i % 20], "x": i % 9, "b": i > 9}
            for i in range(200)
        ]
    )
    keys = {"id": 1, "g, day": 1, "day": 1, "x": 2, "b, g": 1, "g, x": 1}
    for number, columns in enumerate(keys):
        query = f"SELECT {columns}, count(*) AS n FROM t GROUP BY {columns}"
        db.sql(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
    db.sql("CREATE MATERIALIZED VIEW pairs AS SELECT a.id, b.g AS h FROM t a JOIN t b USING (id)")
    db.maintain()
    asked: list[int] = []
    shard_of = PinnedStates.shard

    def noted(self: PinnedStates, state: str, number: int) -> Any:
        asked.append(number)
        return shard_of(self, state, number)

    monkeypatch.setattr(PinnedStates, "shard", noted)
    for name in [*(f"v{number}" for number in range(len(keys))), "pairs"]:
        view = db.view(name)
        rows = list(view.scan())
        asked.clear()
        assert [view.get(*(row[column] for column in view.key)) for row in rows] == rows, name
        if name in ("v0", "v1", "v2", "pairs"):
            assert len(asked) == len(rows), "one shard is asked for each row"
    assert db.view("v3").get("7.00") == {"x": Decimal("7.00"), "n": 22}
