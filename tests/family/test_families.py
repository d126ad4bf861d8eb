"""Views with parameters: how they are made, changed, renamed, replaced and dropped, and what is
refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import everview as ev
from everview.cli import main
from everview.engines.engine import Engine
from everview.errors import (
    EverviewError,
    InUse,
    InvalidSchema,
    InvalidSql,
    NullNotAllowed,
    TableExists,
    UnsupportedSql,
    WrongType,
)

SPEND = (
    "(r STRING, d DATE) AS SELECT customer, sum(amount) AS total FROM orders "
    "WHERE region = :r AND day >= :d GROUP BY customer"
)
ROWS = (
    "(1, 'EU', 17, DATE '2026-01-05', 5), (2, 'EU', 17, DATE '2026-01-01', 1), "
    "(3, 'US', 18, DATE '2026-02-05', 7)"
)


@pytest.fixture
def db(sail: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "families.ev", create=True) as database:
        database.engines.use(sail)
        database.sql(
            "CREATE TABLE orders (id INT PRIMARY KEY, region STRING, customer INT, day DATE, "
            "amount INT)"
        )
        database.sql(f"INSERT INTO orders VALUES {ROWS}")
        yield database


def rows(db: ev.Database, query: str) -> list[tuple[Any, ...]]:
    answer = db.sql(query).to_arrow()
    return sorted(tuple(row.values()) for row in answer.to_pylist())


def test_members_come_change_and_go_by_statements(db: ev.Database) -> None:
    message = str(db.sql(f"CREATE MATERIALIZED VIEW spend {SPEND}"))
    assert message.endswith("loads it; INSERT INTO spend adds members")
    db.sql("INSERT INTO spend VALUES ('EU', DATE '2026-01-01'), ('US', DATE '2026-02-01')")
    db.sql("INSERT INTO Spend (d, r) SELECT DATE '2026-01-02', 'EU'")
    assert str(db.sql("INSERT INTO spend VALUES ('EU', DATE '2026-01-01')")) == (
        "0 rows inserted, 1 was there already"
    )
    db.maintain()
    query = "SELECT r, CAST(d AS STRING), customer, total FROM spend"
    assert rows(db, query) == [
        ("EU", "2026-01-01", 17, 6),
        ("EU", "2026-01-02", 17, 5),
        ("US", "2026-02-01", 18, 7),
    ]
    db.sql("UPDATE spend SET r = 'US' WHERE d = DATE '2026-01-02'")
    db.sql("DELETE FROM spend WHERE r = 'EU'")
    db.sql("DELETE FROM orders WHERE id = 3")
    db.sql("INSERT INTO orders VALUES (4, 'US', 19, DATE '2026-01-20', 2)")
    db.maintain()
    assert rows(db, query) == [("US", "2026-01-02", 19, 2)]
    assert db.verify("spend").equal


def test_a_family_is_renamed_replaced_and_dropped_with_its_members(db: ev.Database) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW spend {SPEND}")
    db.sql("INSERT INTO spend VALUES ('EU', DATE '2026-01-01')")
    db.sql("ALTER VIEW spend RENAME TO spent")
    db.sql("INSERT INTO spent VALUES ('US', DATE '2026-01-01')")
    db.maintain()
    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW spent {SPEND.replace('sum(amount)', 'count(*)')}")
    db.maintain()
    assert rows(db, "SELECT r, customer, total FROM spent") == [("EU", 17, 2), ("US", 18, 1)]
    assert db.view("spent").sql.startswith("SELECT customer, count(*)")
    db.sql(f"CREATE MATERIALIZED VIEW IF NOT EXISTS spent {SPEND}")
    assert db.tables() == ["orders", "spend_members"]
    db.sql("CREATE MATERIALIZED VIEW regions AS SELECT DISTINCT r FROM spend_members")
    with pytest.raises(InUse, match="view regions reads the table spend_members"):
        db.sql("DROP VIEW spent")
    with pytest.raises(InUse):
        db.sql("DROP TABLE spend_members")
    db.sql("DROP VIEW regions")
    db.sql("DROP VIEW spent")
    assert db.tables() == ["orders"]


def test_a_view_may_read_a_family(db: ev.Database) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW spend {SPEND}")
    db.sql("CREATE MATERIALIZED VIEW regions AS SELECT r, sum(total) AS t FROM spend GROUP BY r")
    db.sql("INSERT INTO spend VALUES ('EU', DATE '2026-01-01')")
    db.maintain()
    db.sql("INSERT INTO spend VALUES ('US', DATE '2026-01-01')")
    db.maintain()
    assert rows(db, "SELECT * FROM regions") == [("EU", 6), ("US", 7)]
    with pytest.raises(InUse, match="DROP VIEW spend CASCADE"):
        db.sql("DROP VIEW spend")
    db.sql("DROP VIEW spend CASCADE")
    assert (db.views(), db.tables()) == ([], ["orders"])


def test_rows_of_a_table_that_is_there_are_members(db: ev.Database) -> None:
    db.sql("CREATE TABLE spend_members (r STRING, d DATE, PRIMARY KEY (r, d))")
    db.sql("INSERT INTO spend_members VALUES ('EU', DATE '2026-01-01')")
    db.sql(f"CREATE MATERIALIZED VIEW spend {SPEND}")
    db.maintain()
    assert rows(db, "SELECT r, total FROM spend") == [("EU", 6)]


def test_what_is_no_parameter(db: ev.Database) -> None:
    db.sql(
        "CREATE MATERIALIZED VIEW v (n INT) AS SELECT id, ':x' AS text, CAST(named_struct('a', id) "
        "AS STRUCT<a:INT>) AS s, named_struct('a', 1)  AS t /* :y */ FROM orders WHERE id>=:N -- :z"
    )
    struct = "CAST(named_struct('b', 1) AS STRUCT<b :INT>)"
    db.sql(f"CREATE VIEW w AS SELECT id, {struct} AS s FROM orders")
    db.sql("INSERT INTO v VALUES (2)")
    db.maintain()
    assert rows(db, "SELECT n, id, text, s.a FROM v") == [(2, 2, ":x", 2), (2, 3, ":x", 3)]
    assert len(db.view("w")) == 3


@pytest.mark.parametrize(
    ("view", "error", "reason"),
    [
        (
            "AS SELECT id FROM orders WHERE id = :m",
            InvalidSql,
            r"column 34: .* no parameter :m",
        ),
        ("(n INT) AS SELECT id FROM orders WHERE id = :m", InvalidSql, "VIEW v .m STRING."),
        ("(many INT) AS SELECT id FROM orders WHERE id = :mani", InvalidSql, "did you mean many"),
        ("(n INT) AS SELECT id FROM orders", InvalidSql, "has no :n; write it where"),
        ("(n INT, m) AS SELECT :n", InvalidSql, "or, if these are parameters of the view"),
        ("(n INTT) AS SELECT :n", InvalidSql, "can't be read; write .name TYPE"),
        ("(n INT NOT NULL) AS SELECT :n", InvalidSql, "a name and a type only"),
        ("(n INT, N INT) AS SELECT :n", InvalidSchema, "appears twice"),
        ("(n ARRAY<INT>) AS SELECT :n", InvalidSchema, "can't be part of a primary key"),
        ("(id INT) AS SELECT * FROM orders WHERE id = :id", InvalidSql, r"\* EXCEPT \(id\)"),
        ("(n INT) AS SELECT id FROM orders LIMIT :n", UnsupportedSql, "in LIMIT"),
        (
            "(n INT) AS SELECT count(*) AS c FROM orders GROUP BY id + :n",
            UnsupportedSql,
            "or in what GROUP BY names",
        ),
        (
            "(n INT) AS SELECT 1 AS one FROM orders WHERE id > (SELECT max(id) FROM orders "
            "WHERE id < :n)",
            UnsupportedSql,
            "inside a subquery",
        ),
        (
            "(n INT) WITH (refresh = 'full') AS SELECT id FROM orders WHERE id = :n",
            UnsupportedSql,
            "leave the option out",
        ),
    ],
)
def test_what_is_refused_leaves_nothing(
    db: ev.Database, view: str, error: type[EverviewError], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        db.sql(f"CREATE MATERIALIZED VIEW v {view}")
    assert (db.tables(), db.views()) == (["orders"], [])


def test_a_replacement_has_the_same_parameters(db: ev.Database) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW spend {SPEND}")
    for other in [
        "AS SELECT 1 AS one",
        SPEND.replace("r STRING", "r INT"),
        "(r STRING) AS SELECT :r",
    ]:
        with pytest.raises(UnsupportedSql, match="DROP VIEW spend"):
            db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW spend {other}")


def test_names_that_are_taken(db: ev.Database) -> None:
    db.sql("CREATE TABLE spend_members (r STRING PRIMARY KEY, d DATE)")
    with pytest.raises(
        TableExists, match=r"with \(r STRING, d DATE\) and the key \(r\).* \(r, d\)"
    ):
        db.sql(f"CREATE MATERIALIZED VIEW spend {SPEND}")
    db.sql("CREATE MATERIALIZED VIEW paid_members AS SELECT id FROM orders")
    with pytest.raises(TableExists, match="give view paid another name"):
        db.sql(f"CREATE MATERIALIZED VIEW paid {SPEND}")
    assert db.views() == ["paid_members"]


@pytest.mark.parametrize(
    ("statement", "error", "reason"),
    [
        ("INSERT INTO spend VALUES (NULL, DATE '2026-01-01')", NullNotAllowed, "column r"),
        ("INSERT INTO spend VALUES ('EU')", InvalidSql, r"to fill \(r, d\)"),
        ("INSERT INTO spend VALUES ('EU', 'today')", WrongType, "column d"),
        ("INSERT INTO spend (x) VALUES ('EU')", EverviewError, "x"),
    ],
)
def test_members_that_can_not_be(
    db: ev.Database, statement: str, error: type[EverviewError], reason: str
) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW spend {SPEND}")
    with pytest.raises(error, match=reason):
        db.sql(statement)
    assert len(db.view("spend").members) == 0


def test_explain_needs_the_table_of_members(db: ev.Database) -> None:
    with pytest.raises(UnsupportedSql, match="then write EXPLAIN v"):
        db.sql("EXPLAIN CREATE MATERIALIZED VIEW v (n INT) AS SELECT id FROM orders WHERE id = :n")
    db.sql(f"CREATE MATERIALIZED VIEW spend {SPEND}")
    assert "spend_members" in str(db.sql("EXPLAIN spend"))


def test_status_says_how_many_members_there_are(db: ev.Database) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW spend {SPEND}")
    db.sql("INSERT INTO spend VALUES ('EU', DATE '2026-01-01'), ('US', DATE '2026-01-01')")
    db.maintain()
    answer = CliRunner().invoke(main, ["status", db.path], catch_exceptions=False)
    lines = [line.split() for line in answer.output.splitlines()]
    (names,) = [line for line in lines if "members" in line]
    (line,) = [line for line in lines if line[1:2] == ["spend"]]
    assert line[names.index("members")] == "2"


def test_a_row_that_fails_for_one_member_stops_the_view_and_is_named(db: ev.Database) -> None:
    db.sql("CREATE MATERIALIZED VIEW v (n INT) AS SELECT id, 10 DIV (amount - :n) AS x FROM orders")
    db.sql("INSERT INTO v VALUES (3)")
    db.maintain()
    assert rows(db, "SELECT * FROM v") == [(3, 1, 5), (3, 2, -5), (3, 3, 2)]
    db.sql("INSERT INTO v VALUES (7)")
    db.maintain()
    view = db.view("v")
    assert view.status == "stopped"
    assert "zero" in str(view.error)
    assert len(view) == 3, "rows as they were"
    db.sql("DELETE FROM v WHERE n = 7")
    db.sql(
        "CREATE OR REPLACE MATERIALIZED VIEW v (n INT) AS SELECT id, amount DIV :n AS x FROM orders"
    )
    db.maintain()
    assert rows(db, "SELECT * FROM v") == [(3, 1, 1), (3, 2, 0), (3, 3, 2)]
