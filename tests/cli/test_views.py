"""Views at the command line, read as tables are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import everview as ev
from everview.cli import main
from everview.engines.engine import Engine


@pytest.fixture(scope="module")
def shop(spark: Engine, sail: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("views") / "shop.ev"
    with ev.open(path, create=True, engine="sail") as db:
        db.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer STRING, amount DECIMAL(9,2))")
        db.table("orders").put(
            [
                {"id": 1, "customer": "ada", "amount": "1.00"},
                {"id": 2, "customer": "bob", "amount": "2.50"},
                {"id": 3, "customer": "ada", "amount": "2.50"},
            ]
        )
        db.sql(
            "CREATE MATERIALIZED VIEW spend AS SELECT customer, sum(amount) AS total FROM orders "
            "GROUP BY customer ORDER BY customer DESC"
        )
        db.sql(
            "CREATE MATERIALIZED VIEW prices AS SELECT amount / 10, count(*) AS n FROM orders "
            "GROUP BY 1"
        )
        db.maintain()
        db.sql("CREATE MATERIALIZED VIEW late AS SELECT id, amount FROM orders")
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def test_scan_prints_a_view_in_its_order(shop: str) -> None:
    assert run("scan", shop, "Spend", "--format", "csv").stdout == (
        "customer,total\nbob,2.50\nada,3.50\n"
    )
    narrow = run("scan", shop, "spend", "--columns", "TOTAL", "--limit", "1", "--format", "json")
    assert narrow.stdout == '{"total": "2.50"}\n'
    wrong = run("scan", shop, "spend", "--columns", "nope")
    assert wrong.stderr == "error[EV302]: view spend has no column nope; it has customer, total\n"
    assert run("scan", shop, "spend", "--start", "a").exit_code == 2


def test_get_finds_a_row_of_a_view_whatever_its_columns_are_called(shop: str) -> None:
    assert json.loads(run("get", shop, "spend", "ada").stdout) == {
        "customer": "ada",
        "total": "3.50",
    }
    none = run("get", shop, "spend", "eve")
    assert none.exit_code == 1
    assert none.stderr == "view spend has no row with key eve\n"
    assert json.loads(run("get", shop, "prices", "0.25").stdout)["n"] == 2


def test_a_view_that_is_not_loaded_says_so_wherever_it_is_read(shop: str) -> None:
    said = "view late is not loaded yet, so it has no rows: everview run DB --once loads it\n"
    assert run("scan", shop, "late", "--format", "csv").stdout == "id,amount\n"
    assert run("scan", shop, "late", "--format", "csv").stderr == said
    assert run("get", shop, "late", "1").stderr == f"{said}view late has no row with key 1\n"
    query = run("sql", shop, "SELECT * FROM late, spend", "--format", "csv", "--engine", "sail")
    assert query.stdout == "id,amount,customer,total\n"
    assert query.stderr == said


def test_advice_names_what_works_where_the_user_reads_it(shop: str) -> None:
    statements = "SELECT id FROM late;\n"
    shell = CliRunner().invoke(main, ["shell", shop, "--engine", "sail"], input=statements)
    assert "no rows: the command maintain loads it\n" in shell.stdout
    created = "CREATE OR REPLACE MATERIALIZED VIEW late AS SELECT id, amount FROM orders"
    assert "; everview run DB --once loads the new def" in run("sql", shop, created).stdout
    with ev.open(shop, engine="sail") as db:
        assert db.view("late").note.endswith("no rows: db.maintain() loads it")
        assert "; db.maintain() loads the new definition" in db.sql(created).message


def test_what_is_for_tables_says_that_a_view_is_none(shop: str) -> None:
    for arguments in (("put", shop, "spend", "{}"), ("sql", shop, "DELETE FROM spend")):
        done = run(*arguments)
        assert done.exit_code == 1
        assert done.stderr == (
            "error[EV201]: spend is a view, not a table; read it with everview scan DB spend, and "
            "write to the tables that it reads: orders\n"
        )
    assert run("explain", shop, "orders").stderr == (
        "error[EV204]: orders is a table, not a view; read it with everview scan DB orders\n"
    )
    assert "there is no view spned; did you mean spend?" in run("explain", shop, "spned").stderr


def test_describe_shows_the_columns_of_a_view(shop: str) -> None:
    done = run("sql", shop, "DESCRIBE spend", "--format", "csv")
    assert done.stdout == (
        'column,type,nullable,key\ncustomer,STRING,true,1\ntotal,"DECIMAL(19,2)",true,\n'
    )
    assert done.stderr.startswith("spend is a view: SELECT customer, sum(amount)")


def test_a_table_can_not_have_the_name_of_a_view(shop: str) -> None:
    for exists in ("", "IF NOT EXISTS "):
        done = run("sql", shop, f"CREATE TABLE {exists}SPEND (id INT PRIMARY KEY)")
        assert done.exit_code == 1
        assert done.stderr.startswith("error[EV202]: there is a view SPEND; a table needs a name")
