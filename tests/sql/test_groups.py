"""The group of a view: what its statement says, what it inherits, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import everview as ev
from everview.catalog import MAIN
from everview.cli import main
from everview.engines.engine import Engine
from everview.errors import InvalidSql, UnsupportedSql
from everview.parsing import only
from everview.sql.create_view import CreateView
from everview.sql.groups import group_named, group_of
from tests.records import a_view, record_of

OVER = {name: a_view(name, group=group) for name, group in (("m", MAIN), ("a", "hour"))}


@pytest.fixture
def shop(sail: Engine, spark: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "shop.ev", create=True) as db:
        db.engines.use(sail)
        db.sql("CREATE TABLE orders (id INT PRIMARY KEY, customer INT, amount INT)")
        db.sql("CREATE MATERIALIZED VIEW main_view AS SELECT id, amount + 1 AS a FROM orders")
        db.sql("CREATE MATERIALIZED VIEW hourly WITH (group = 'Hour') AS SELECT * FROM orders")
        db.table("orders").put([{"id": i, "customer": i % 3, "amount": i} for i in range(9)])
        yield db


@pytest.mark.parametrize("name", ["", "1st", "a b", "a-b", "a/b", "é", "x" * 64, "a\n"])
def test_names_that_no_group_can_have(name: str) -> None:
    with pytest.raises(InvalidSql, match="can't be the name of a group; use up to 63 letters"):
        group_named(name)


def test_names_of_groups_are_the_same_in_any_case() -> None:
    assert group_named("Hour_2") == group_named("HOUR_2") == "hour_2"
    assert group_named("Main") == MAIN
    statement = "CREATE MATERIALIZED VIEW v WITH (Group = 'Hour', load_lag = '1 s') AS SELECT 1"
    assert CreateView.of(only(statement)).group == "hour"
    assert CreateView.of(only("CREATE MATERIALIZED VIEW v AS SELECT 1")).group is None


def test_a_view_takes_the_group_that_it_names_or_that_of_the_views_it_reads() -> None:
    m, a = OVER["m"], OVER["a"]
    assert group_of("v", None, None, {}) == MAIN
    assert group_of("v", "hour", None, {}) == "hour"
    assert group_of("v", None, None, {"a": a}) == "hour"
    assert group_of("v", "hour", None, {"a": a, "b": a}) == "hour"
    assert group_of("v", None, None, {"m": m}) == MAIN
    assert group_of("v", None, a, {}) == "hour"


@pytest.mark.parametrize(
    ("stated", "old", "over", "message"),
    [
        ("day", None, ["a"], "view v in group day can't read view a of group hour.*'hour'"),
        (MAIN, None, ["a"], "view v in group main can't read view a of group hour.*'hour'"),
        ("day", None, ["m"], "view v in group day can't read view m of group main.*'main'"),
        (None, None, ["a", "m"], "view m of group main and view a of group hour.*create a in"),
        (None, "a", ["m"], "view v in group hour can't read view m of group main"),
        (MAIN, "a", [], "view v is in group hour, and CREATE OR REPLACE does not move it to group"),
    ],
)
def test_views_that_read_each_other_are_in_one_group(
    stated: str | None, old: str | None, over: list[str], message: str
) -> None:
    with pytest.raises(UnsupportedSql, match=message):
        group_of("v", stated, OVER[old] if old else None, {name: OVER[name] for name in over})


def test_statements_are_refused_and_change_nothing(shop: ev.Database) -> None:
    refused = {
        "MATERIALIZED VIEW v WITH (group = 'day') AS SELECT id FROM hourly": "of group hour",
        "MATERIALIZED VIEW v AS SELECT h.id FROM hourly h JOIN main_view m ON h.id = m.id": "both",
        "OR REPLACE VIEW hourly WITH (group = 'day') AS SELECT id FROM orders": "does not move",
        "OR REPLACE VIEW hourly AS SELECT a FROM main_view": "view hourly in group hour can't",
    }
    for statement, message in refused.items():
        with pytest.raises(UnsupportedSql, match=message):
            shop.sql(f"CREATE {statement}")
    with pytest.raises(InvalidSql, match="group = 'main'"):
        shop.sql("CREATE MATERIALIZED VIEW v WITH (groups = 'day') AS SELECT id FROM orders")
    assert shop.views == ["hourly", "main_view"]
    shop.sql("CREATE OR REPLACE VIEW hourly WITH (group = 'hour') AS SELECT id FROM orders")
    assert record_of(shop, "hourly").group == "hour"


def test_a_view_with_parameters_is_in_a_group_too(shop: ev.Database) -> None:
    shop.sql(
        "CREATE MATERIALIZED VIEW spend (who INT) WITH (group = 'day') AS SELECT sum(amount) AS s "
        "FROM orders WHERE customer = :who"
    )
    shop.sql("INSERT INTO spend VALUES (1)")
    shop.maintain()
    assert (shop.view("spend").group, shop.view("spend").member(1).group) == ("day", "day")
    assert shop.verify("spend").equal


def test_status_and_explain_show_groups_where_there_are_some(shop: ev.Database) -> None:
    shop.maintain()
    shown = CliRunner().invoke(main, ["status", shop.path]).output
    assert "group" in shown
    views = json.loads(CliRunner().invoke(main, ["status", shop.path, "--json"]).output)["views"]
    assert {view["name"]: view["group"] for view in views} == {
        "hourly": "hour",
        "main_view": "main",
    }
    assert "view hourly: live, at epoch 1 of group hour" in shop.explain("hourly")
    assert "view main_view: live, at epoch 1\n" in shop.explain("main_view")
    assert shop.explain("hourly", json=True)["group"] == "hour"
    assert repr(shop.pin()) == "<pin of epoch 1, group hour at 1>"
    shop.sql("DROP VIEW hourly")
    assert "group" not in CliRunner().invoke(main, ["status", shop.path]).output
    assert repr(shop.pin()) == "<pin of epoch 1>"
