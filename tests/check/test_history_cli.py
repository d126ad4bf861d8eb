"""The command check: what it prints, how it exits, how it fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import everview
from everview.check import Recorder
from everview.cli import main

SPEND = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["check", *arguments], catch_exceptions=False)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Two orders in two epochs, and what readers saw."""
    with Recorder(tmp_path / "history") as recorder:
        recorder.committed(0, {"orders": {0: 0}})
        for n in (1, 2):
            recorder.wrote("orders", n, {"id": n, "customer": "ada", "amount": n}, 0, n)
            recorder.committed(n, {"orders": {0: n}})
            recorder.read("spend", n, [{"customer": "ada", "total": [1, 3][n - 1]}], reader="r")
    return tmp_path / "history"


def record(history: Path, epoch: int, rows: list[dict[str, object]]) -> None:
    with Recorder(history) as recorder:
        recorder.read("spend", epoch, rows, reader="late")


def test_a_right_history_is_a_table_of_levels(history):
    result = run(str(history), "--view", f"spend={SPEND}")
    assert result.exit_code == 0
    assert result.output == (
        "+-------+-------------+-------+--------+----------+----------+\n"
        "| view  | convergence | weak  | strong | complete | reached  |\n"
        "+-------+-------------+-------+--------+----------+----------+\n"
        "| spend | holds       | holds | holds  | holds    | complete |\n"
        "+-------+-------------+-------+--------+----------+----------+\n"
    )


def test_a_wrong_read_exits_with_3_and_shows_the_smallest_counterexample(history):
    record(history, 1, [{"customer": "ada", "total": 2}])
    result = run(str(history), "--view", f"spend={SPEND}")
    assert result.exit_code == 3
    assert result.output.splitlines()[3:] == [
        "| spend | holds       | broken | broken | holds    | convergence |",
        "+-------+-------------+--------+--------+----------+-------------+",
        "spend: weak is broken: a read shows a state that the tables never had",
        "spend: strong is broken: a read does not show the tables as epoch 1 committed them",
        "the smallest counterexample found: a read shows a state that the tables never had",
        "  write orders 0/1, key 1: put id=1, customer=ada, amount=1",
        "  read of spend at epoch 1 by late: 1 row",
        "    missing: customer=ada, total=1",
        "    unexpected: customer=ada, total=2",
        "  as if orders 0/1 was applied twice",
    ]
    assert run(str(history), "--view", f"spend={SPEND}", "--level", "convergence").exit_code == 0


def test_json_has_all_that_was_found(history):
    record(history, 2, [])
    result = run(
        str(history), "--view", f"spend={SPEND}", "--key", "spend=customer", "--json", "--records"
    )
    assert result.exit_code == 3
    (verdict,) = json.loads(result.output)["verdicts"]
    assert (verdict["view"], verdict["reached"]) == ("spend", "none")
    assert verdict["records"] == [{"key": ["ada"], "reached": "none"}]
    broken = verdict["levels"]["convergence"]
    assert broken["holds"] is False
    (read,) = broken["counterexample"]["reads"]
    assert read["missing"] == [{"row": {"customer": "ada", "total": 3}, "count": 1}]
    assert read["reader"] == "late"


def test_records_are_counted_and_the_wrong_ones_named(history):
    record(history, 2, [{"customer": "ada", "total": 3}, {"customer": "eve", "total": 9}])
    options = ("--view", f"spend={SPEND}", "--key", "spend=customer", "--records")
    output = run(str(history), *options).output
    assert "spend: of 2 records 1 none, 1 complete\n  eve: none\n" in output


def test_what_can_not_be_decided_exits_with_1(tmp_path):
    with Recorder(tmp_path / "history") as recorder:
        for n in range(1, 9):
            recorder.wrote("orders", n, {"id": n, "customer": "ada", "amount": 1}, n, 1)
        recorder.read("spend", 1, [{"customer": "ada", "total": 99}])
        recorder.read("spend", 2, [{"customer": "ada", "total": 8}])
    options = (str(tmp_path / "history"), "--view", f"spend={SPEND}", "--bound", "20")
    result = run(*options)
    assert result.exit_code == 1
    assert (
        "spend: weak is undecided: there are more states to look at than the bound" in result.output
    )
    assert run(*options[:-1], "1000").exit_code == 3


def test_definitions_come_from_a_database(tmp_path):
    path = str(tmp_path / "shop.ev")
    with everview.open(path, create=True) as db:
        db.create_table("orders", {"id": "INT", "amount": "DECIMAL(9,2)"}, "id", regions=1)
        put = db.table("orders").put({"id": 1, "amount": "2.50"})
        ((region, sequence),) = put.sequences.items()
    with Recorder(tmp_path / "history") as recorder:
        recorder.wrote("orders", 1, {"id": 1, "amount": "2.50"}, region, sequence)
        recorder.read("sums", 1, [{"total": "2.50"}])
    options = (str(tmp_path / "history"), "--db", path)
    query = "SELECT sum(amount) AS total FROM orders"
    assert run(*options, "--view", f"sums={query}").exit_code == 0
    result = run(*options)
    assert result.exit_code == 1
    assert "reads view sums, but its query is not known" in result.stderr


def test_views_of_a_database_have_its_types_and_keys(tmp_path, monkeypatch):
    class Average:
        name, key, sql = "means", ("customer",), "SELECT customer, avg(x) AS x FROM t GROUP BY ALL"
        schema = pa.schema([("customer", pa.string()), ("x", pa.decimal128(16, 6))])
        table_columns: ClassVar = {"t": ("id", "customer", "x")}

    path = str(tmp_path / "shop.ev")
    with everview.open(path, create=True) as db:
        db.create_table("t", {"id": "INT", "customer": "STRING", "x": "DECIMAL(9,2)"}, "id")
    monkeypatch.setattr(everview.Database, "views", property(lambda db: ["means"]))
    monkeypatch.setattr(everview.Database, "view", lambda db, name: Average())
    with Recorder(tmp_path / "history") as recorder:
        for n in (1, 2, 3):
            recorder.wrote("t", n, {"id": n, "customer": "ada", "x": f"{n // 3}.00"}, 0, n)
        recorder.read("means", 1, [{"customer": "ada", "x": "0.333333"}])
        recorder.read("means", 1, [{"customer": "ada", "x": "0.333333"}], key="ada")
    assert run(str(tmp_path / "history"), "--db", path).exit_code == 0


def test_columns_that_were_added_since_are_none_of_a_views(tmp_path, monkeypatch):
    class Pairs:
        name, key, sql = "pairs", ("id",), "SELECT T.id, n FROM T JOIN u ON T.id = u.id"
        schema = pa.schema([("id", pa.int32()), ("n", pa.int32())])
        table_columns: ClassVar = {"T": ("id", "n"), "u": ("id",)}

    path = str(tmp_path / "shop.ev")
    with everview.open(path, create=True) as db:
        db.create_table("T", {"id": "INT", "n": "INT"}, "id")
        db.create_table("u", {"id": "INT"}, "id").add_columns({"n": "INT"})
    monkeypatch.setattr(everview.Database, "views", property(lambda db: ["pairs"]))
    monkeypatch.setattr(everview.Database, "view", lambda db, name: Pairs())
    with Recorder(tmp_path / "history") as recorder:
        recorder.wrote("T", 1, {"id": 1, "n": 5}, 0, 1)
        recorder.wrote("u", 1, {"id": 1, "n": 6}, 0, 1)
        recorder.read("pairs", 1, [{"id": 1, "n": 5}])
    assert run(str(tmp_path / "history"), "--db", path).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "error[EV306]: the history reads view spend, but its query is not known"),
        (("--view", "spend=SELEC 1"), "error[EV601]: view spend: "),
        (("--view", "spend=SELECT nope FROM orders"), "error[EV601]: view spend: DuckDB"),
        (("--view", "spend=SELECT * FROM nope"), "error[EV306]: view spend reads table nope"),
        (("--view", "spend=SELECT id FROM orders"), "error[EV306]: a read of view spend has the"),
        (("--view", f"spend={SPEND}", "--view", "v=SELECT 1"), "error[EV306]: the history has no"),
        (("--db", "nope.ev"), "error[EV101]: "),
    ],
)
def test_bad_input_is_one_line_with_its_code(history, arguments, message):
    result = run(str(history), *arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith(message), result.stderr
    assert "Traceback" not in result.stderr


def test_wrong_usage_exits_with_2(history):
    for arguments in ((), (str(history), "--view", "spend"), (str(history), "--level", "best")):
        assert run(*arguments).exit_code == 2


def test_without_duckdb_it_says_what_to_install(history, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    result = run(str(history), "--view", f"spend={SPEND}")
    assert result.exit_code == 1
    assert "error[EV603]: " in result.stderr
    assert "pip install everview[check]" in result.stderr
