"""INSERT, UPDATE, DELETE and SELECT; what an engine evaluates holds for each engine."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from everview.database import Database
from everview.errors import (
    DataError,
    InvalidSql,
    NullNotAllowed,
    SqlError,
    TableNotFound,
    UnknownColumn,
    UnsupportedSql,
    WrongType,
)
from everview.sql import split

from .duck_engine import DuckEngine


class NoEngine:
    def select(self, *asked: Any) -> Any:
        raise AssertionError(f"the engine was asked for {asked}")


@pytest.fixture
def shop(db: Database) -> Database:
    """A database with two tables and no engine at all."""
    db.engines.use(NoEngine())  # type: ignore[assignment]
    db.sql(
        "CREATE TABLE orders (id BIGINT, customer STRING, amount DECIMAL(12,2), PRIMARY KEY (id))"
    )
    db.sql(
        "CREATE TABLE lines (order_id BIGINT, line INT, note STRING, PRIMARY KEY (order_id, line))"
    )
    db.sql("INSERT INTO orders VALUES (1, 'ada', 9.90), (2, 'bob', 20), (3, NULL, NULL)")
    db.sql("INSERT INTO lines VALUES (1, 1, 'pen'), (1, 2, 'ink'), (2, 1, 'pad')")
    return db


@pytest.fixture
def duck(shop: Database) -> DuckEngine:
    engine = DuckEngine()
    shop.engines.use(engine)  # type: ignore[assignment]
    return engine


@pytest.fixture(params=["duck", "spark", "sail"])
def asked(request: pytest.FixtureRequest, shop: Database) -> Database:
    """The shop with each engine in turn."""
    shop.engines.use(request.getfixturevalue(request.param))
    return shop


def rows(db: Database, table: str = "orders") -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in db.table(table).scan()]


def test_plain_literals_are_inserted_without_an_engine(shop):
    shop.sql(
        "CREATE TABLE t (id INT, f DOUBLE, b BOOLEAN, d DATE, m TIMESTAMP, "
        "l TIMESTAMP_NTZ, x BINARY, s STRING, PRIMARY KEY (id))"
    )
    done = shop.sql(
        "INSERT INTO t VALUES "
        "(-1, 1.5, TRUE, DATE '2020-01-01', TIMESTAMP '2020-01-01 12:00:00+02:00', "
        "TIMESTAMP_NTZ '2020-01-01 12:00:00', X'ff00', 'it''s 🎉'), "
        "(2, -1e3, false, '2020-01-02', '2020-01-01', NULL, NULL, \"\")"
    )
    assert (done.message, done.count) == ("2 rows inserted", 2)
    utc = dt.UTC
    assert rows(shop, "t") == [
        (
            -1,
            1.5,
            True,
            dt.date(2020, 1, 1),
            dt.datetime(2020, 1, 1, 10, tzinfo=utc),
            dt.datetime(2020, 1, 1, 12),
            b"\xff\x00",
            "it's 🎉",
        ),
        (
            2,
            -1000.0,
            False,
            dt.date(2020, 1, 2),
            dt.datetime(2020, 1, 1, tzinfo=utc),
            None,
            None,
            "",
        ),
    ]


def test_insert_takes_columns_in_any_order_and_replaces_rows_with_the_same_key(shop):
    done = shop.sql("INSERT INTO orders (amount, ID) VALUES (1, 1), (2.345, 1), (-2.345, 9)")
    assert done.count == 2
    assert rows(shop)[0] == (1, None, Decimal("2.35"))
    assert rows(shop)[-1] == (9, None, Decimal("-2.35"))


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("INSERT INTO orders VALUES ('x', 'a', 1)", WrongType, "row 1, column id: 'x' is not"),
        ("INSERT INTO orders VALUES (4, 'a', 1), (5, 6, 7)", WrongType, "row 2, column customer"),
        ("INSERT INTO orders VALUES (4, 'a', 10000000000)", WrongType, "more than 10 digits"),
        ("INSERT INTO orders (customer) VALUES ('a')", NullNotAllowed, "column id: missing"),
        ("INSERT INTO orders VALUES (4, 'a')", InvalidSql, "row 1 has 2 values, for 3 to fill"),
        ("INSERT INTO orders (id, nope) VALUES (1, 2)", UnknownColumn, "it has id, customer, am"),
        ("INSERT INTO orders (id, id) VALUES (1, 2)", InvalidSql, "named twice"),
        ("INSERT INTO ordres VALUES (1)", TableNotFound, "did you mean orders.*tables: lines"),
        ("INSERT OVERWRITE orders VALUES (1, 'a', 1)", UnsupportedSql, "only INSERT INTO table"),
        (
            "INSERT INTO orders VALUES (1, 'a', 1) ON CONFLICT DO NOTHING",
            UnsupportedSql,
            "rows with the same key are replaced",
        ),
        ("INSERT INTO orders", InvalidSql, "no VALUES and no SELECT"),
        ("INSERT INTO orders VALUES (4)", InvalidSql, "row 1 has 1 value, for 3 to fill"),
        ("UPDATE orders", InvalidSql, "SET is missing"),
        ("UPDATE orders SET", InvalidSql, "write SET column = value"),
        ("UPDATE orders SET id =", InvalidSql, "Required keyword: 'expression' missing, at"),
        ("UPDATE orders SET nope = 1", UnknownColumn, "no column nope"),
        ("UPDATE orders SET id = 1, ID = 2", InvalidSql, "assigned twice"),
        ("UPDATE orders SET id = 1 FROM lines", UnsupportedSql, "SET and WHERE only"),
        ("UPDATE nope SET id = 1", TableNotFound, "no table nope"),
        ("DELETE FROM orders USING lines WHERE true", UnsupportedSql, "WHERE only"),
        ("SELECT * FROM order", TableNotFound, "did you mean orders"),
        ("SELECT FROM WHERE", InvalidSql, "line 1, column 13: .*WHERE"),
        ("SELECT 1 +\n  FROM orders WHERE AND", InvalidSql, "line 2, column"),
        ("SELECT 'abc", InvalidSql, "left open"),
        ("SELEC 1", InvalidSql, "did you mean SELECT"),
        ("hello world", InvalidSql, "no statement begins with HELLO"),
        ("MERGE INTO a USING b ON 1 = 1", UnsupportedSql, "MERGE is not supported; supported: "),
        ("EXPLAIN SELECT 1", UnsupportedSql, "EXPLAIN CREATE MATERIALIZED VIEW"),
        ("SELECT 1; SELECT 2", InvalidSql, "2 statements instead of one"),
        (" -- nothing", InvalidSql, "there is no statement"),
    ],
)
def test_statements_that_cannot_run_change_nothing(shop, statement, error, message):
    before = rows(shop)
    with pytest.raises(error, match=message):
        shop.sql(statement)
    assert rows(shop) == before


def test_delete_without_a_condition_needs_no_engine(shop):
    assert shop.sql("DELETE FROM lines").message == "3 rows deleted"
    assert rows(shop, "lines") == []


def test_select_returns_rows(asked):
    found = asked.sql("SELECT customer, amount FROM orders WHERE amount > 1 ORDER BY id")
    assert found.to_pylist() == [
        {"customer": "ada", "amount": Decimal("9.90")},
        {"customer": "bob", "amount": Decimal("20.00")},
    ]
    assert found.count == len(found) == 2


def test_with_names_shadow_tables_only_where_spark_says_so(asked):
    found = asked.sql(
        "WITH lines AS (SELECT note FROM lines WHERE line = 1), more AS (SELECT 1) "
        "SELECT count(*) AS n FROM lines CROSS JOIN more"
    )
    assert found.to_pylist() == [{"n": 2}]


def test_insert_of_expressions_and_queries(asked):
    assert asked.sql("INSERT INTO orders VALUES (10, upper('x'), 1 + 1)").count == 1
    done = asked.sql(
        "INSERT INTO orders (id, amount) SELECT id + 100, amount * 1.005 FROM orders WHERE id < 3"
    )
    assert done.message == "2 rows inserted"
    asked.sql("WITH n AS (SELECT 200 AS id) INSERT INTO orders SELECT id, 'n', 1 FROM n")
    assert rows(asked)[3:] == [
        (10, "X", Decimal("2.00")),
        (101, None, Decimal("9.95")),
        (102, None, Decimal("20.10")),
        (200, "n", Decimal("1.00")),
    ]
    with pytest.raises(InvalidSql, match="the query has 2 columns, for 1 to fill"):
        asked.sql("INSERT INTO orders (id) SELECT id, amount FROM orders")


def test_update_computes_from_the_old_row(asked):
    done = asked.sql(
        "UPDATE orders AS o SET o.amount = amount * 2.005, customer = "
        "concat(customer, ', ', 'x') WHERE o.id IN (SELECT order_id FROM lines)"
    )
    assert (done.message, done.count) == ("2 rows updated", 2)
    assert rows(asked) == [
        (1, "ada, x", Decimal("19.85")),
        (2, "bob, x", Decimal("40.10")),
        (3, None, None),
    ]
    assert asked.sql("UPDATE orders SET amount = 0 WHERE id = 99").message == "0 rows updated"
    again = asked.sql("UPDATE orders SET customer = customer")
    assert (again.count, again.message) == (0, "0 rows updated, 3 were so already")


def test_update_refuses_what_does_not_fit_and_changes_nothing(asked):
    before = rows(asked)
    with pytest.raises(WrongType, match=r"column amount: .*more than 10 digits"):
        asked.sql("UPDATE orders SET amount = amount + 99999999999")
    with pytest.raises(NullNotAllowed, match="column id"):
        asked.sql("UPDATE orders SET id = NULL WHERE id = 1")
    assert rows(asked) == before


def test_update_of_a_key_moves_rows_even_onto_each_other(asked):
    assert asked.sql("UPDATE lines SET line = line + 1 WHERE order_id = 1").count == 2
    assert rows(asked, "lines") == [(1, 2, "pen"), (1, 3, "ink"), (2, 1, "pad")]


@pytest.mark.parametrize("change", ["id = 3 WHERE id = 1", "id = 7"])
def test_update_to_a_key_that_is_taken_changes_nothing(asked, change):
    before = rows(asked)
    with pytest.raises(DataError, match=r"two rows would have the key id = .; nothing was changed"):
        asked.sql(f"UPDATE orders SET {change}")
    assert rows(asked) == before


def test_delete_where(asked):
    assert asked.sql("DELETE FROM lines l WHERE l.note = 'pen' OR order_id = 2").count == 2
    assert rows(asked, "lines") == [(1, 2, "ink")]


def test_what_the_engine_refuses_is_a_short_sql_error(asked):
    with pytest.raises(SqlError) as refused:
        asked.sql("SELECT nope FROM orders")
    assert "nope" in str(refused.value)
    assert "\tat " not in str(refused.value)


def test_what_is_not_found_is_looked_for_among_all_columns(asked):
    if isinstance(asked.engine, DuckEngine):
        pytest.skip("it is Spark and Sail that are asked again")
    found = asked.sql("SELECT max(IDENTIFIER('amount')) AS most FROM orders").to_pylist()
    assert found == asked.sql("SELECT max(amount) AS most FROM orders").to_pylist()


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("SELECT count(*) FROM orders", {"orders": ["id"]}),
        ("SELECT `AMOUNT` FROM Orders o", {"orders": ["id", "amount"]}),
        ("SELECT o.* FROM orders o, lines", {"orders": None, "lines": None}),
        ("SELECT 1 AS x FROM lines a NATURAL JOIN lines b", {"lines": None}),
        ("SELECT 'customer' AS x FROM orders", {"orders": ["id"]}),
        (
            "SELECT max(note) AS x FROM lines WHERE line IN (SELECT id FROM orders)",
            {"lines": ["order_id", "line", "note"], "orders": ["id"]},
        ),
        ("SELECT 1 AS one", {}),
    ],
)
def test_only_columns_a_query_names_are_read(shop, duck, query, tables):
    shop.sql(query)
    assert duck.queries[-1][1] == tables


def test_scripts_are_split_at_semicolons_outside_strings_and_comments():
    script = "SELECT ';' ; -- one; two\nSHOW TABLES;;\n SELECT 'it''s;' /* ; */ AS x"
    assert split(script) == ["SELECT ';'", "SHOW TABLES", "SELECT 'it''s;' /* ; */ AS x"]
    assert split(" -- nothing\n;") == []
    assert split("SHOW TABLES -- all;\n") == ["SHOW TABLES"]
    assert split("SHOW TABLES LIKE 'a;b' ;\n") == ["SHOW TABLES LIKE 'a;b'"]


def test_rows_that_are_there_already_are_told_apart(db: Database) -> None:
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, v STRING)")
    db.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    again = db.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    assert again.message == "1 row inserted, 2 were there already"
    assert again.count == 1
    assert str(db.sql("INSERT INTO t VALUES (3, 'c')")) == "0 rows inserted, 1 was there already"
    assert sum(held.last for held in db.table("t").log().values()) == 3
