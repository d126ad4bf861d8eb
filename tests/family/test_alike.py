"""Views that differ in constants are maintained together by themselves, and each is a view like any
other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import everview as ev
from everview.catalog import NAMED, VIEWS
from everview.cli import main
from everview.engines.engine import Engine
from everview.errors import (
    InUse,
    InvalidSql,
    NotLoaded,
    SqlError,
    TableExists,
    TableNotFound,
    UnsupportedSql,
    ViewNotFound,
)
from everview.sql import named_members, planning

QUERY = "SELECT customer, sum(amount) AS total FROM orders WHERE day >= DATE '{}' GROUP BY customer"
DAYS = ["2026-01-01", "2026-01-05", "2026-02-01", "2026-01-01"]


@pytest.fixture
def db(sail: Engine, spark: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "alike.ev", create=True) as database:
        database.engines.use(sail)
        database.sql(
            "CREATE TABLE orders (id INT PRIMARY KEY, region STRING, customer INT, day DATE, "
            "amount INT)"
        )
        database.sql(
            "INSERT INTO orders VALUES (1, 'EU', 17, DATE '2026-01-05', 5), (2, 'EU', 17, DATE "
            "'2026-01-01', 1), (3, 'US', 18, DATE '2026-02-05', 7)"
        )
        yield database


@pytest.fixture
def spends(db: ev.Database) -> ev.Database:
    """Views v0 to v3; the first is maintained apart, and the last has the values of the first."""
    for number, day in enumerate(DAYS):
        db.sql(f"CREATE MATERIALIZED VIEW v{number} AS {QUERY.format(day)}")
    db.maintain()
    return db


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The views that are planned."""
    names: list[str] = []
    plan = planning._planned

    def noted(context: Any, name: str, *rest: Any) -> Any:
        names.append(name)
        return plan(context, name, *rest)

    monkeypatch.setattr(planning, "_planned", noted)
    return names


def rows(view: ev.View) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in view.scan())


def families(db: ev.Database) -> list[str]:
    return [view.name for view in db.store.catalog.all(VIEWS).values() if view.like is not None]


def test_the_third_view_is_not_planned_and_nothing_is_loaded_for_it(
    db: ev.Database, planned: list[str]
) -> None:
    for number, day in enumerate(DAYS[:2]):
        db.sql(f"CREATE MATERIALIZED VIEW v{number} AS {QUERY.format(day)}")
    assert db.maintain().loaded == ["v1", "v0"]
    planned.clear()
    db.sql(f"CREATE MATERIALIZED VIEW v2 AS {QUERY.format(DAYS[2])}")
    assert planned == []
    assert db.view("v2").status == "new"
    assert "not loaded yet" in db.view("v2").note
    report = db.maintain()
    assert (report.loaded, report.epochs) == ([], 1)
    assert db.view("v2").status == "live"
    assert rows(db.view("v2")) == [(18, 7)]


def test_each_reads_as_a_view_like_any_other(spends: ev.Database) -> None:
    db = spends
    assert db.views == ["v0", "v1", "v2", "v3"]
    assert db.tables == ["orders"]
    alone, view = db.view("v0"), db.view("v3")
    assert (alone.family, view.family) == (None, families(db)[0])
    assert rows(view) == rows(alone) == [(17, 6), (18, 7)]
    assert (view.schema, view.key, view.key_schema) == (alone.schema, alone.key, view.key_schema)
    assert view.get(17) == alone.get(17) == {"customer": 17, "total": 6}
    assert view.get(99) is None
    assert (view.sql, view.tables, view.views) == (alone.sql, ["orders"], {})
    assert (view.parameters, view.table_columns) == ((), alone.table_columns)
    assert (view.epoch, view.status, view.error, view.note) == (1, "live", None, "")
    assert len(view) == len(view.to_pandas()) == len(view.to_polars()) == 2
    assert repr(view) == "<view v3: live, epoch 1>"
    db.sql("INSERT INTO orders VALUES (4, 'EU', 20, DATE '2026-01-04', 1)")
    assert view.freshness.total_seconds() > 0
    with db.pin() as all_views, db.pin("v3") as one:
        db.maintain()
        assert view.freshness.total_seconds() == 0
        assert rows(all_views.view("v3")) == rows(one.view("v3")) == [(17, 6), (18, 7)]
    assert rows(view) == [(17, 6), (18, 7), (20, 1)]
    assert rows(db.view("v1")) == [(17, 5), (18, 7)]
    assert [db.verify(name).equal for name in db.views] == [True] * 4


def test_statements_know_them_as_views(spends: ev.Database) -> None:
    db = spends
    answer = db.sql("SELECT v1.total + v3.total AS t FROM v1 JOIN v3 USING (customer) ORDER BY t")
    assert answer.to_arrow().to_pylist() == [{"t": 11}, {"t": 14}]
    assert db.sql("SHOW VIEWS").to_arrow()["view"].to_pylist() == ["v0", "v1", "v2", "v3"]
    assert db.sql("SHOW TABLES").to_arrow()["table"].to_pylist() == ["orders"]
    assert db.sql("DESCRIBE v3").to_arrow().num_rows == 2
    assert "v3: equal" in str(db.sql("VERIFY v3"))
    with pytest.raises(TableNotFound, match=r"v3 is a view, not a table;.* reads: orders$"):
        db.sql("INSERT INTO v3 VALUES (1)")
    with pytest.raises(TableExists, match="there is a view v3"):
        db.sql("CREATE TABLE v3 (a INT PRIMARY KEY)")
    with pytest.raises(TableExists, match="view v3 exists already"):
        db.sql(f"CREATE MATERIALIZED VIEW v3 AS {QUERY.format(DAYS[0])}")
    with pytest.raises(TableExists, match="view V3 exists already"):
        db.sql("CREATE MATERIALIZED VIEW V3 AS SELECT id FROM orders")
    assert "exists already" in str(
        db.sql(f"CREATE MATERIALIZED VIEW IF NOT EXISTS v3 AS {QUERY.format(DAYS[0])}")
    )
    with pytest.raises(TableExists, match="there is a table orders"):
        list(db.run_script(f"CREATE MATERIALIZED VIEW orders AS {QUERY.format(DAYS[0])}"))
    with pytest.raises(InUse, match="is read by view v0, v1, v2, v3; drop the view first"):
        db.sql("DROP TABLE orders")
    with pytest.raises(UnsupportedSql, match="view v3 has no parameters"):
        db.view("v3").members.put([])
    with pytest.raises(UnsupportedSql, match="view v3 has no parameters"):
        db.view("v3").member(1)


def test_explain_says_with_how_many_it_is_maintained_and_why(spends: ev.Database) -> None:
    text = spends.explain("v3")
    assert "view v3: live, at epoch 1\nkey: customer\n" in text
    assert "together with views that differ in constants, 2 in all; here value_1 = 2026" not in text
    assert "views that differ in constants, 3 in all; here value_1 = 2026-01-01" in text
    assert "for 2 such views together, and" in text
    assert "together with" not in spends.explain("v0")
    spends.sql("INSERT INTO orders VALUES (4, 'EU', 17, DATE '2026-01-02', 9)")
    spends.maintain()
    assert "rows in" in spends.explain("v3", analyze=True)


def test_views_over_them_are_as_over_any_view(spends: ev.Database) -> None:
    db = spends
    db.sql("CREATE MATERIALIZED VIEW top AS SELECT max(total) AS most FROM v3")
    db.maintain()
    assert rows(db.view("top")) == [(7,)]
    db.sql("INSERT INTO orders VALUES (4, 'EU', 17, DATE '2026-01-04', 9)")
    db.maintain()
    assert rows(db.view("top")) == [(15,)]
    assert db.verify("top").equal
    with pytest.raises(InUse, match="view v3 is read by view top"):
        db.sql("DROP VIEW v3")
    db.sql("ALTER VIEW v3 RENAME TO spend")
    assert "spend" in db.views
    assert rows(db.view("spend")) == [(17, 15), (18, 7)]
    assert db.verify("top").equal
    db.sql("DROP VIEW spend CASCADE")
    assert db.views == ["v0", "v1", "v2"]


def test_a_view_is_replaced_when_its_new_rows_are_there(spends: ev.Database) -> None:
    db = spends
    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW V3 AS {QUERY.format('2026-02-02')}")
    assert (rows(db.view("v3")), db.view("v3").status) == ([(17, 6), (18, 7)], "live")
    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW v3 AS {QUERY.format('2026-02-03')}")
    assert rows(db.view("v3")) == [(17, 6), (18, 7)]
    db.maintain()
    assert rows(db.view("v3")) == [(18, 7)]
    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW v3 AS {QUERY.format('2026-02-04')}")
    db.sql("CREATE OR REPLACE MATERIALIZED VIEW v3 AS SELECT customer FROM orders")
    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW v3 AS {QUERY.format('2026-02-05')}")
    db.sql("CREATE OR REPLACE MATERIALIZED VIEW v3 AS SELECT id FROM orders")
    assert rows(db.view("v3")) == [(18, 7)]
    db.maintain()
    assert rows(db.view("v3")) == [(1,), (2,), (3,)]
    db.sql("DROP VIEW v3")
    assert db.views == ["v0", "v1", "v2"]


def test_the_last_view_takes_its_family_with_it(spends: ev.Database) -> None:
    db = spends
    for name in ("v3", "v1"):
        db.sql(f"DROP VIEW {name}")
    assert rows(db.view("v2")) == [(18, 7)]
    with pytest.raises(ViewNotFound, match=r"there is no view v3; .*views: v0, v2$"):
        db.view("v3")
    (family,) = families(db)
    members = f"{family}_members"
    assert len(db.table(members)) == 1
    db.sql("DROP VIEW v2")
    assert (families(db), db.views, db.store.tables()) == ([], ["v0"], ["orders"])
    assert db.store.catalog.all(NAMED) == {}
    db.sql("DROP VIEW v0")
    db.sql("DROP TABLE orders")


def test_a_view_with_the_values_of_another_that_is_dropped_stays(spends: ev.Database) -> None:
    db = spends
    db.sql(f"CREATE MATERIALIZED VIEW v4 AS {QUERY.format(DAYS[0])}")
    db.sql("DROP VIEW v3")
    db.maintain()
    assert rows(db.view("v4")) == [(17, 6), (18, 7)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT sum(amount / customer) AS s FROM orders WHERE day >= DATE '2026-01-1{}'",
        "SELECT region, sum(amount) / count(id) AS s FROM orders WHERE id > {} GROUP BY region",
        "SELECT sum(CAST(region AS INT)) AS s FROM orders WHERE id > {}",
        "SELECT id FROM orders WHERE amount <> {}",
        "SELECT id, rank() OVER (ORDER BY id) AS r FROM orders WHERE customer = {}",
        "SELECT id FROM orders WHERE customer = {} ORDER BY amount LIMIT 2",
        "SELECT first(id) AS f FROM orders WHERE customer = {}",
        "SELECT count(*) AS n FROM orders WHERE day >= 'x{}'",
    ],
    ids=["division", "division of sums", "cast", "no interval", "window", "limit", "open",
         "text that is no day"],
)  # fmt: skip
def test_what_might_fail_for_others_or_suits_few_stays_apart(db: ev.Database, query: str) -> None:
    for number in range(4):
        try:
            db.sql(f"CREATE MATERIALIZED VIEW v{number} AS {query.format(number)}")
        except SqlError as error:
            assert "x0" in str(error)  # noqa: PT017
            break
    assert families(db) == []


def test_equal_views_share_all_and_are_no_family(db: ev.Database) -> None:
    for name in ("one", "other"):
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {QUERY.format(DAYS[0])}")
    assert families(db) == []
    db.sql(f"CREATE MATERIALIZED VIEW third AS {QUERY.format(DAYS[1])}")
    assert len(families(db)) == 1


def test_options_keep_a_view_apart(db: ev.Database) -> None:
    for options in ("sharing = 'none'", "consistency = 'complete'", "load_lag = '3 s'"):
        for number in range(2):
            name = f"{options.split()[0]}_{number}"
            db.sql(
                f"CREATE MATERIALIZED VIEW {name} WITH ({options}) AS {QUERY.format(DAYS[number])}"
            )
    assert families(db) == []
    with pytest.raises(UnsupportedSql, match="sharing = 'selection' is for the members"):
        db.sql(
            f"CREATE MATERIALIZED VIEW v WITH (sharing = 'selection') AS {QUERY.format(DAYS[0])}"
        )
    with pytest.raises(UnsupportedSql, match="share at least a selection"):
        db.sql(
            "CREATE MATERIALIZED VIEW v (d DATE) WITH (sharing = 'none') AS SELECT id FROM orders "
            "WHERE day = :d"
        )


def test_a_script_creates_views_together_up_to_the_one_that_fails(
    db: ev.Database, planned: list[str]
) -> None:
    creations = [f"CREATE MATERIALIZED VIEW v{n} AS {QUERY.format(d)}" for n, d in enumerate(DAYS)]
    script = ["CREATE MATERIALIZED VIEW other AS SELECT id FROM orders", *creations]
    wrong = "CREATE MATERIALIZED VIEW v1 AS SELECT id FROM orders"
    results = db.run_script(";\n".join([*script, wrong, "DROP VIEW other"]))
    messages = [str(next(results)) for _ in script]
    assert [message.split()[1] for message in messages] == ["other", "v0", "v1", "v2", "v3"]
    with pytest.raises(TableExists, match="view v1 exists already"):
        next(results)
    assert db.views == ["other", "v0", "v1", "v2", "v3"]
    assert len(planned) == 3  # `other`, `v0` and the family
    db.maintain()
    assert rows(db.view("v0")) == [(17, 6), (18, 7)]
    with pytest.raises(InvalidSql):
        list(
            db.run_script([creations[0].replace("v0", "v5"), "CREATE MATERIALIZED VIEW AS", wrong])
        )
    assert "v5" in db.views


def test_changes_of_a_view_are_its_own(spends: ev.Database) -> None:
    db = spends
    view, alone = db.view("v3"), db.view("v0")
    for one in (view, alone):
        one.register("me")
    db.view("v1").register("me")
    db.sql("INSERT INTO orders VALUES (4, 'EU', 17, DATE '2026-01-02', 9)")
    db.sql("DELETE FROM orders WHERE id = 3")
    db.maintain()

    def changes(view: ev.View) -> list[dict[str, Any]]:
        found = [row for batch in view.changes(1) for row in batch.to_pylist()]
        return sorted(found, key=lambda row: row["op"])

    assert changes(view) == changes(alone)
    assert [row["after"] for row in changes(view)] == [None, {"customer": 17, "total": 15}]
    assert len(changes(db.view("v1"))) == 1
    view.acknowledge("me", view.epoch)
    view.unregister("me")
    with view.follow() as feed:
        for epoch in feed:
            assert epoch.changes["after"].to_pylist() == [{"customer": 17, "total": 15}]
            feed.stop()
    db.sql(f"CREATE MATERIALIZED VIEW v9 AS {QUERY.format('2026-03-03')}")
    with pytest.raises(NotLoaded, match="view v9 has no rows yet"):
        db.view("v9").register("me")


def test_a_failure_names_the_views_and_a_later_one_stays_apart(
    db: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "SELECT sum(amount * 1000000000) AS s FROM orders WHERE id > {}"
    for number in range(3):
        db.sql(f"CREATE MATERIALIZED VIEW v{number} AS {query.format(number)}")
    assert len(families(db)) == 1
    assert db.maintain().failed.keys() == {"v0", "v1", "v2"}
    assert db.view("v2").status == "stopped"
    assert "overflow" in str(db.view("v2").error).lower()
    db.sql(f"CREATE MATERIALIZED VIEW v3 AS {query.format(3)}")
    assert db.view("v3").family is None


def test_status_shows_a_family_as_one_line(spends: ev.Database, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["status", str(tmp_path / "alike.ev")])
    assert result.exit_code == 0
    lines = [line.split("|")[1:5] for line in result.output.splitlines() if "| v" in line]
    assert [[cell.strip() for cell in line] for line in lines] == [
        ["view", "status", "consistency", "members"],
        ["v0", "live", "strong", "NULL"],
        ["v1 and 2 like it", "live", "strong", "3"],
    ]


def test_views_that_are_dropped_and_created_at_once_lose_nothing(spends: ev.Database) -> None:
    """Others drop views that have the values of those that come."""
    db, rounds = spends, 12

    def drop() -> None:
        for number in range(rounds):
            db.sql(f"DROP VIEW old_{number}")

    for number in range(rounds):
        db.sql(f"CREATE MATERIALIZED VIEW old_{number} AS {QUERY.format(f'2026-01-{number + 10}')}")
    thread = threading.Thread(target=drop)
    thread.start()
    for number in range(rounds):
        db.sql(f"CREATE MATERIALIZED VIEW new_{number} AS {QUERY.format(f'2026-01-{number + 10}')}")
    thread.join()
    db.maintain()
    assert [name for name in db.views if rows(db.view(name)) != [(18, 7)]] == ["v0", "v1", "v3"]


def test_a_family_that_is_dropped_meanwhile_is_made_again_or_not_needed(
    spends: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, put = spends, named_members._put

    def dropped_before(context: Any, members: Any) -> int:
        monkeypatch.setattr(named_members, "_put", put)
        for name in ("v1", "v2", "v3"):
            db.sql(f"DROP VIEW {name}")
        return put(context, members)

    monkeypatch.setattr(named_members, "_put", dropped_before)
    db.sql(f"CREATE MATERIALIZED VIEW v4 AS {QUERY.format('2026-01-07')}")
    db.maintain()
    assert rows(db.view("v4")) == [(18, 7)]
    assert db.views == ["v0", "v4"]
    assert families(db) == []


def test_a_name_that_a_member_gets_meanwhile_is_taken(
    spends: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, plan = spends, planning._planned

    def named_before(*arguments: Any) -> Any:
        monkeypatch.setattr(planning, "_planned", plan)
        db.sql(f"CREATE MATERIALIZED VIEW v9 AS {QUERY.format('2026-01-07')}")
        return plan(*arguments)

    monkeypatch.setattr(planning, "_planned", named_before)
    with pytest.raises(TableExists, match="view v9 exists already"):
        db.sql("CREATE MATERIALIZED VIEW v9 AS SELECT id FROM orders")
    db.maintain()
    assert rows(db.view("v9")) == [(18, 7)]


def test_a_drop_that_is_refused_drops_nothing(spends: ev.Database) -> None:
    db = spends
    db.sql("CREATE MATERIALIZED VIEW f (c INT) AS SELECT total FROM v3 WHERE customer = :c")
    db.sql("CREATE MATERIALIZED VIEW w AS SELECT count(*) AS n FROM f_members")
    with pytest.raises(InUse, match="view w reads the table f_members"):
        db.sql("DROP VIEW v3 CASCADE")
    assert db.views == ["f", "v0", "v1", "v2", "v3", "w"]
    assert rows(db.view("v3")) == [(17, 6), (18, 7)]


def test_a_row_that_was_deleted_meanwhile_is_put_again(
    spends: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = spends
    are_there, lost = named_members._are_there, [True]

    def without_row(context: Any, members: Any) -> bool:
        if lost.pop() if lost else False:
            table = members[0].table
            keys = named_members.rows_of(context.store.describe(table), [members[0].values])
            context.store.delete(table, keys)
        return are_there(context, members)

    monkeypatch.setattr(named_members, "_are_there", without_row)
    db.sql(f"CREATE MATERIALIZED VIEW v4 AS {QUERY.format('2026-01-07')}")
    assert not lost
    db.maintain()
    assert rows(db.view("v4")) == [(18, 7)]


def test_views_of_different_groups_are_never_together(db: ev.Database) -> None:
    for number, day in enumerate(DAYS):
        db.sql(f"CREATE MATERIALIZED VIEW v{number} AS {QUERY.format(day)}")
        db.sql(f"CREATE MATERIALIZED VIEW h{number} WITH (group = 'hour') AS {QUERY.format(day)}")
    assert [db.view(f"v{number}").group for number in range(4)] == ["main"] * 4
    assert [db.view(f"h{number}").group for number in range(4)] == ["hour"] * 4
    assert len(families(db)) == 2
    assert db.view("v3").family != db.view("h3").family
    db.maintain()
    db.sql("INSERT INTO orders VALUES (4, 'EU', 20, DATE '2026-02-02', 1)")
    db.maintain()
    for number in range(4):
        assert rows(db.view(f"v{number}")) == rows(db.view(f"h{number}"))
    assert all(db.verify(view).equal for view in db.views)
    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW h3 AS {QUERY.format('2026-02-01')}")
    assert db.view("h3").group == "hour"
    with pytest.raises(UnsupportedSql, match="view h3 is in group hour"):
        db.sql(
            "CREATE OR REPLACE MATERIALIZED VIEW h3 WITH (group = 'main') AS "
            + QUERY.format("2026-02-03")
        )
    db.sql("CREATE MATERIALIZED VIEW over AS SELECT total FROM h2")
    assert db.view("over").group == "hour"
    db.maintain()
    assert rows(db.view("over")) == [(1,), (7,)]
