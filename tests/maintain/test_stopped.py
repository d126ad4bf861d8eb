"""A view whose epoch fails stops alone: it says why, keeps its rows, and comes back when mended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import everview as ev
from everview.cli import main
from everview.engines.engine import Engine
from everview.errors import NotLoaded

SUMS = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
LARGE = 2**63 - 1


@pytest.fixture
def either(engine: Engine, spark: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    yield from two_views(tmp_path, engine)


@pytest.fixture
def shop(sail: Engine, spark: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    yield from two_views(tmp_path, sail)


def two_views(directory: Path, engine: Engine) -> Iterator[ev.Database]:
    """Two views over the same table, both current; one will not bear large amounts."""
    with ev.open(directory / "shop.ev", create=True) as db:
        db.engines.use(engine)
        db.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer STRING, amount BIGINT)")
        db.table("orders").put(
            [
                {"id": 1, "customer": "ada", "amount": 5},
                {"id": 2, "customer": "bob", "amount": 7},
            ]
        )
        db.sql(f"CREATE MATERIALIZED VIEW sums AS {SUMS}")
        db.sql(
            "CREATE MATERIALIZED VIEW counts AS "
            "SELECT customer, count(*) AS n FROM orders GROUP BY customer"
        )
        assert db.maintain().failed == {}
        yield db


def rows(db: ev.Database, view: str) -> dict[str, int]:
    return dict(tuple(row.values()) for row in db.view(view).scan())


def overflow(db: ev.Database) -> None:
    db.table("orders").put(
        [
            {"id": 3, "customer": "ada", "amount": LARGE},
            {"id": 4, "customer": "cy", "amount": 1},
        ]
    )


def test_a_failing_view_stops_alone_and_says_why(either: ev.Database) -> None:
    before = either.view("sums").epoch
    overflow(either)
    report = either.maintain()
    assert (list(report.failed), report.epochs) == (["sums"], 1)
    view = either.view("sums")
    assert view.status == "stopped"
    for said in ("sum(amount)", "customer = ada", "wider type", "DROP VIEW sums"):
        assert said in report.failed["sums"]
    assert view.error == report.failed["sums"]
    assert rows(either, "counts") == {"ada": 2, "bob": 1, "cy": 1}
    assert rows(either, "sums") == {"ada": 5, "bob": 7}, "as of its last good epoch"
    assert view.get("ada") == {"customer": "ada", "total": 5}
    assert (view.epoch, either.view("counts").epoch) == (before, before + 1)
    assert view.freshness.total_seconds() > 0
    assert either.view("counts").freshness.total_seconds() == 0


def test_what_fails_in_the_engine_names_the_row_too(either: ev.Database) -> None:
    queries = {
        "quotients": "SELECT customer, 100 / amount AS part FROM orders",
        "few": "SELECT sum(amount) AS total FROM orders WHERE CAST(customer AS INT) IS NULL",
        "shares": "SELECT customer, 1 / (count(*) - 3) AS part FROM orders GROUP BY customer",
        "parts": "SELECT id, CAST(part AS INT) AS n FROM orders LATERAL VIEW explode(split(customer"
        ", ',')) e AS part",
    }
    either.table("orders").put([{"id": i, "customer": str(i), "amount": i} for i in range(1, 30)])
    for name, query in queries.items():
        either.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    assert either.maintain().failed == {}
    bad = [(100, "100", 5), (101, "eve" * 50, 6), (102, "7", 0), (103, "7", 1)]
    either.table("orders").put(
        [dict(zip(("id", "customer", "amount"), r, strict=True)) for r in bad]
    )
    failed = either.maintain().failed
    assert sorted(failed) == ["few", "parts", "quotients", "shares"]
    assert ", on the row customer = 7, amount = 0, id = 102 of orders" in failed["quotients"]
    assert f"customer = {('eve' * 50)[:40]}..., amount = 6, id = 101 of orders" in failed["few"]
    assert "the row customer = 7, count(*) = 3 of aggregate by (customer)" in failed["shares"]
    assert f"the row id = 101, part = {('eve' * 50)[:40]}... of " in failed["parts"]
    assert rows(either, "counts")["7"] == 3


def test_what_sail_lacks_is_no_fault_of_a_row(shop: ev.Database) -> None:
    shop.sql(
        "CREATE MATERIALIZED VIEW pairs AS SELECT id, zip_with(array(id), array(amount), (x, y) -> "
        "x + y) AS both FROM orders"
    )
    (said,) = shop.maintain().failed.values()
    assert "if Sail lacks something here, use the engine spark. After you have " in said
    assert "row" not in said


def test_a_subquery_of_several_rows_is_no_fault_of_sails(shop: ev.Database) -> None:
    shop.sql("CREATE MATERIALIZED VIEW one AS SELECT (SELECT amount FROM orders) AS a FROM orders")
    (said,) = shop.maintain().failed.values()
    assert "more than one row; have it give one" in said
    assert "Sail" not in said


def test_the_others_stay_current_and_the_stopped_one_as_it_was(shop: ev.Database) -> None:
    overflow(shop)
    shop.maintain()
    shop.table("orders").delete([1, 2])
    report = shop.maintain()
    assert (report.failed, report.epochs) == ({}, 1)
    assert rows(shop, "counts") == {"ada": 1, "cy": 1}
    assert rows(shop, "sums") == {"ada": 5, "bob": 7}
    assert shop.verify("counts").equal
    assert shop.verify("sums").equal, "it equals its query as of its last good epoch"
    assert shop.verify("sums").epoch == shop.view("sums").epoch


def test_status_show_views_and_explain_tell_of_it(shop: ev.Database) -> None:
    overflow(shop)
    shop.maintain()
    error = shop.view("sums").error
    told = {row["view"]: (row["status"], row["error"]) for row in shop.sql("SHOW VIEWS")}
    assert told == {"counts": ("live", None), "sums": ("stopped", error)}
    assert f"view sums: stopped, at epoch 1: {error}" in shop.explain("sums")
    status = CliRunner().invoke(main, ["status", shop.path])
    assert status.exit_code == 0
    assert f"sums is stopped: {error}" in status.output
    described = json.loads(CliRunner().invoke(main, ["status", shop.path, "--json"]).output)
    views = {view["name"]: view for view in described["views"]}
    assert (views["sums"]["status"], views["sums"]["error"]) == ("stopped", error)
    assert views["sums"]["freshness"] > 0
    assert views["counts"] == {
        "name": "counts", "status": "live", "consistency": "strong", "epoch": 2, "group": "main",
        "freshness": 0.0, "error": None, "progress": None, "members": None,
    }  # fmt: skip


def test_it_works_again_when_the_rows_are_mended(shop: ev.Database) -> None:
    overflow(shop)
    shop.maintain()
    shop.table("orders").put([{"id": 3, "customer": "ada", "amount": 10}])
    shop.sql("DROP VIEW sums")
    shop.sql(f"CREATE MATERIALIZED VIEW sums AS {SUMS}")
    assert shop.maintain().failed == {}
    assert rows(shop, "sums") == {"ada": 15, "bob": 7, "cy": 1}
    shop.table("orders").delete([3])
    shop.maintain()
    assert rows(shop, "sums") == {"ada": 5, "bob": 7, "cy": 1}
    assert shop.verify("sums").equal


def test_it_works_again_though_no_other_view_follows_the_table(shop: ev.Database) -> None:
    shop.sql("DROP VIEW counts")
    shop.sql(f"CREATE MATERIALIZED VIEW more AS {SUMS} HAVING sum(amount) > 1")
    shop.maintain()
    overflow(shop)
    assert sorted(shop.maintain().failed) == ["more", "sums"]
    shop.table("orders").put([{"id": 3, "customer": "ada", "amount": 10}])
    shop.sql("DROP VIEW sums")
    shop.sql(f"CREATE MATERIALIZED VIEW sums AS {SUMS}")
    assert shop.maintain().failed == {}
    assert rows(shop, "sums") == {"ada": 15, "bob": 7, "cy": 1}
    assert rows(shop, "more") == {"ada": 5, "bob": 7}


def test_it_works_again_with_a_wider_type(shop: ev.Database) -> None:
    overflow(shop)
    shop.maintain()
    shop.sql("DROP VIEW sums")
    wider = SUMS.replace("sum(amount)", "sum(CAST(amount AS DECIMAL(20,0)))")
    shop.sql(f"CREATE MATERIALIZED VIEW sums AS {wider}")
    assert shop.maintain().failed == {}
    assert rows(shop, "sums") == {"ada": LARGE + 5, "bob": 7, "cy": 1}


def test_a_view_that_fails_while_it_is_loaded_has_no_rows(either: ev.Database) -> None:
    overflow(either)
    either.sql("CREATE MATERIALIZED VIEW casts AS SELECT id, CAST(amount AS INT) AS a FROM orders")
    report = either.maintain()
    assert sorted(report.failed) == ["casts", "sums"]
    assert str(LARGE) in report.failed["casts"], "the value that does not fit"
    assert "DROP VIEW casts" in report.failed["casts"]
    view = either.view("casts")
    assert (view.status, view.to_arrow().num_rows, view.is_loaded) == ("stopped", 0, False)
    with pytest.raises(NotLoaded, match="casts"):
        either.verify("casts")
    assert rows(either, "counts") == {"ada": 2, "bob": 1, "cy": 1}
