"""The command line: what it prints, how it fails, and that every example in its help works."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import shlex
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import everview
from everview import calibration
from everview.cli import main
from everview.load import json_lines
from tests.sql.duck_engine import DuckEngine

TYPES = {
    "id": "BIGINT",
    "part": "STRING",
    "flag": "BOOLEAN",
    "real": "DOUBLE",
    "single": "FLOAT",
    "wide": "DECIMAL(38,10)",
    "raw": "BINARY",
    "day": "DATE",
    "moment": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "span": "INTERVAL DAY TO SECOND",
    "tags": "ARRAY<STRING>",
    "spot": "STRUCT<x: DOUBLE, `odd, name`: DATE>",
    "prices": "MAP<STRING, DECIMAL(12,2)>",
    "days": "MAP<DATE, ARRAY<BINARY>>",
}
WITH_SPARK = ["calibrate", "demo", "explain", "run", "tail", "verify"]
ROWS = [
    dict.fromkeys(TYPES) | {"id": -1, "part": ""},
    {
        "id": 2**63 - 1,
        "part": ' a,"b"\n🎉 ',
        "flag": True,
        "real": math.inf,
        "single": 0.1,
        "wide": Decimal("1234567890123456789012345678.0000000001"),
        "raw": b"\x00\xff",
        "day": dt.date(1, 1, 1),
        "moment": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC),
        "local": dt.datetime(1, 1, 1, 0, 0, 0, 1),
        "span": dt.timedelta(-3, 4, 5),
        "tags": ['a, "b"', None, ""],
        "spot": {"x": -math.inf, "odd, name": dt.date(2024, 2, 29)},
        "prices": [("a", Decimal("1.50")), ("b", None)],
        "days": [(dt.date(1, 1, 1), [b"\x00", None])],
    },
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, and an engine that starts at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("everview.engines.engine.start", lambda *_: DuckEngine())
    return tmp_path


@pytest.fixture
def shop(here: Path) -> str:
    with everview.open("shop.ev", create=True) as db:
        db.create_table("items", {"id": "INT", "name": "STRING"}, "id", regions=1)
        db.table("items").put([{"id": i, "name": f"n{i}"} for i in range(1, 26)])
        db.create_table("things", TYPES, ["id", "part"], regions=2)
        db.table("things").put(ROWS)
    return "shop.ev"


def run(*arguments: str, input: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=input, catch_exceptions=False)


def output(*arguments: str, input: str | bytes | None = None) -> str:
    result = run(*arguments, input=input)
    assert result.exit_code == 0, result.output
    return result.output


def examples(command: str) -> list[str]:
    text = main.commands[command].help or ""
    _, found, example = text.partition("Example:")
    return [line.strip() for line in example.splitlines() if line.strip()] if found else []


@pytest.mark.parametrize("command", sorted(set(main.commands) - set(WITH_SPARK)))
def test_every_command_has_an_example_that_works_when_pasted(here, command):
    check_that_examples_work(command)


@pytest.mark.parametrize("command", WITH_SPARK)
def test_examples_that_need_spark_work_when_pasted(spark, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(calibration, "ROWS", 400)
    monkeypatch.setattr(calibration, "EPOCHS", ((10, 1), (100, 1)))
    check_that_examples_work(command)


def check_that_examples_work(command: str) -> None:
    lines = examples(command)
    assert any(line.startswith(f"everview {command} ") for line in lines), "no example in --help"
    assert "Example:" in output(command, "--help")
    for line in lines:
        if line.startswith("everview "):
            output(*shlex.split(line)[1:])
        else:
            subprocess.run(line, shell=True, check=True)


def test_init_says_what_it_did(here):
    assert output("init", "shop.ev") == "created shop.ev\n"
    assert output("init", "shop.ev") == "shop.ev is a database already\n"
    (here / "other").mkdir()
    (here / "other" / "file").touch()
    result = run("init", "other")
    assert result.exit_code == 1
    assert result.stderr.startswith("error[EV101]: ")


def test_errors_are_one_line_with_their_code_and_no_traceback(shop):
    for arguments, code in [
        (("scan", shop, "nope"), "EV201"),
        (("put", shop, "items", '{"id": "x"}'), "EV301"),
        (("put", shop, "items", "{"), "EV300"),
        (("put", shop, "items", '{"nope": 1}'), "EV302"),
        (("get", shop, "things", "5"), "EV304"),
        (("get", shop, "items", "x"), "EV301"),
        (("load", shop, "items", "nope.csv"), "EV300"),
        (("sql", shop, "SELEC 1"), "EV601"),
        (("status", "nope.ev"), "EV101"),
    ]:
        result = run(*arguments)
        assert result.exit_code == 1, arguments
        assert result.stderr.startswith(f"error[{code}]: "), result.stderr
        assert result.stdout == ""
        assert "Traceback" not in result.stderr


def test_wrong_usage_exits_with_2(shop):
    for arguments in (("scan",), ("put", shop, "items"), ("nope",), ("sql", shop, "x", "-f", "y")):
        assert run(*arguments).exit_code == 2


def test_ctrl_c_exits_with_130(shop, monkeypatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("everview.open", interrupted)
    result = run("status", shop)
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"


def test_a_reader_that_goes_away_is_no_error(shop):
    with everview.open(shop) as db:
        db.table("items").put([{"id": i, "name": "x" * 100} for i in range(20_000)])
    code = "from everview.cli import main; main()"
    command = [sys.executable, "-c", code, "scan", shop, "items", "--format", "csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"id,name\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_a_full_disk_behind_standard_output_is_one_line_and_no_traceback(shop):
    code = "from everview.cli import main; main()"
    command = [sys.executable, "-c", code, "scan", shop, "items"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: [Errno 28] No space left on device\n"


def test_sql_runs_scripts_from_arguments_files_and_stdin(shop, here):
    script = "DELETE FROM items; INSERT INTO items VALUES (1, 'it''s; 🎉'); SELECT * FROM items;"
    (here / "script.sql").write_text(script, encoding="utf-8")
    expected = (
        "25 rows deleted\n1 row inserted\n"
        "+----+----------+\n| id | name     |\n+----+----------+\n"
        "|  1 | it's; 🎉 |\n+----+----------+\n1 row\n"
    )
    assert output("sql", shop, script) == expected
    assert output("sql", shop, "-f", "script.sql").splitlines()[1:] == expected.splitlines()[1:]
    assert output("sql", shop, input=script).splitlines()[1:] == expected.splitlines()[1:]


def test_sql_stops_at_the_first_error_and_keeps_what_ran_before(shop):
    result = run("sql", shop, "DELETE FROM items; SELECT nope FROM items; DROP TABLE items")
    assert result.exit_code == 1
    assert result.stdout == "25 rows deleted\n"
    with everview.open(shop) as db:
        assert len(db.table("items")) == 0


def test_sql_prints_queries_for_programs_and_messages_aside(shop):
    query = "DELETE FROM items WHERE id > 2; SELECT id, name FROM items ORDER BY id"
    result = run("sql", shop, query, "--format", "json")
    assert result.stdout == '{"id": 1, "name": "n1"}\n{"id": 2, "name": "n2"}\n'
    assert result.stderr == "23 rows deleted\n"
    assert output("sql", shop, "SHOW TABLES", "--format", "csv") == "table\nitems\nthings\n"


def test_put_get_and_delete(shop):
    assert output("put", shop, "items", '{"id": 1}', '[{"ID": -5, "name": "é"}]') == "2 rows put\n"
    again = output("put", shop, "items", '{"id": 1}', '{"id": -5, "name": "e"}')
    assert again == "1 row put, 1 was there already\n"
    assert output("put", shop, "items", '{"id": -5, "name": "é"}') == "1 row put\n"
    assert output("get", shop, "items", "-5") == '{"id": -5, "name": "é"}\n'
    assert output("delete", shop, "items", "-5", "1", "999") == "2 rows deleted\n"
    result = run("get", shop, "items", "-5")
    assert result.exit_code == 1
    assert result.stderr == "table items has no row with key -5\n"


def test_arrays_structs_and_maps_are_json(shop):
    sql = "CREATE TABLE nested (id INT PRIMARY KEY, tags ARRAY<STRING>, prices MAP<STRING, INT>)"
    row = '{"id": 1, "tags": ["a", null], "prices": {"x": 1}}'
    output("sql", shop, sql)
    output("put", shop, "nested", row)
    assert output("get", shop, "nested", "1") == f"{row}\n"
    assert '| ["a", null] | {"x": 1} |' in output("scan", shop, "nested")


def test_keys_of_several_columns_are_json_arrays(shop):
    assert json.loads(output("get", shop, "things", '[-1, ""]'))["id"] == -1
    assert output("delete", shop, "things", '[-1, ""]') == "1 row deleted\n"
    result = run("delete", shop, "things", "[1]")
    assert "write a JSON array [<id>, <part>]" in result.stderr


@pytest.mark.parametrize("format", ["json", "csv"])
def test_what_scan_prints_can_be_stored_again_without_loss(shop, here, format):
    before = output("scan", shop, "things", "--format", format)
    with everview.open(shop) as db:
        rows = db.table("things").to_arrow(ordered=True)
        db.drop_table("things")
        db.create_table("things", TYPES, ["id", "part"])
    if format == "json":
        assert output("put", shop, "things", "-", input=before) == "2 rows put\n"
    else:
        (here / "things.csv").write_bytes(before.encode())
        assert output("load", shop, "things", "things.csv").startswith("loaded 2 rows into things")
    with everview.open(shop) as db:
        assert db.table("things").to_arrow(ordered=True).equals(rows)


def test_put_names_the_line_of_standard_input(shop):
    result = run("put", shop, "items", "-", input='{"id": 1}\n{"id": "x"}\n')
    assert result.stderr.startswith("error[EV301]: standard input, line 2, column id: 'x' is not")


def test_scan_narrows_rows_and_columns(shop):
    arguments = ("scan", shop, "items", "--start", "3", "--stop", "9", "--columns", "NAME")
    assert output(*arguments, "--limit", "2", "--format", "csv") == "name\nn3\nn4\n"
    assert len(output(*arguments, "--format", "json").splitlines()) == 6
    assert json.loads(output("scan", shop, "things", "--start", "[0]", "--format", "json"))["flag"]


def test_a_table_that_is_not_shown_whole_says_so(shop):
    shown = output("scan", shop, "items").splitlines()
    assert shown[-2:] == [
        "20 rows",
        "there are more rows; --limit N shows N rows, --format csv or json shows all",
    ]
    assert output("scan", shop, "items", "--limit", "25").splitlines()[-1] == "25 rows"


def test_load_tells_rows_and_time_and_nothing_else_when_no_one_watches(shop, here):
    (here / "a.csv").write_text("id,name\n100,x\n101,y\n")
    (here / "b.jsonl").write_text('{"id": 102}\n')
    result = run("load", shop, "items", "a.csv")
    assert result.stderr == ""
    assert result.stdout.startswith("loaded 2 rows into items in ")
    both = output("load", shop, "items", "a.csv", "b.jsonl").splitlines()
    assert [line.split(" in ")[0] for line in both] == [
        "a.csv: loaded 2 rows into items",
        "b.jsonl: loaded 1 row into items",
    ]


def test_status_counts_rows_and_changes(shop):
    lines = output("status", shop).splitlines()
    assert [cell.strip() for cell in lines[3].split("|")[1:4]] == ["items", "25", "25"]
    tables = json.loads(output("status", shop, "--json"))["tables"]
    assert [(t["name"], t["rows"], len(t["regions"])) for t in tables] == [
        ("items", 25, 1),
        ("things", 2, 2),
    ]


def test_put_says_what_of_standard_input_is_stored(shop, monkeypatch):
    monkeypatch.setattr(json_lines, "BATCH_ROWS", 2)
    lines = "".join(f'{{"id": {i}}}\n' for i in (101, 102, 103, "null"))
    result = run("put", shop, "items", "-", input=lines)
    assert result.exit_code == 1
    assert "standard input, line 4, column id: NULL" in result.stderr
    assert "the 2 rows of earlier batches are stored" in result.stderr
    assert json.loads(output("get", shop, "items", "102"))["id"] == 102


def test_ctrl_c_says_what_of_a_file_is_stored(shop, here, monkeypatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    (here / "a.csv").write_text("id\n1\n")
    monkeypatch.setattr("everview.Table.put", interrupted)
    result = run("load", shop, "items", "a.csv")
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n  a.csv: no rows were stored\n"


def test_load_takes_what_separates_fields(shop, here):
    (here / "a.csv").write_text("id;name\n100;a,b\n")
    assert "give that as the delimiter" in run("load", shop, "items", "a.csv").stderr
    output("load", shop, "items", "a.csv", "--delimiter", ";")
    assert json.loads(output("get", shop, "items", "100"))["name"] == "a,b"


def test_names_that_nothing_can_have_are_not_found(shop):
    for name in ("x" * 600, "\udcff"):
        for command in (("scan", shop, name), ("get", shop, name, "1"), ("explain", shop, name)):
            result = run(*command)
            assert result.exit_code == 1
            assert result.stderr.startswith("error[EV20")
            assert "there is no" in result.stderr


def test_what_is_no_number_of_seconds_is_wrong_usage(shop):
    for seconds in ("nan", "inf", "1e300"):
        for option in ("--every", "--lease"):
            assert run("run", shop, option, seconds).exit_code == 2
        assert run("demo", "--seconds", seconds).exit_code == 2
    assert run("demo", "--scale", "0").exit_code == 2


def test_verify_without_views_says_so(shop):
    assert output("verify", shop).startswith("there are no views yet")


def test_columns_of_one_name_are_refused_in_json_which_would_lose_one(shop):
    query = "SELECT a.id, b.id FROM items a JOIN items b ON a.id = b.id"
    result = run("sql", shop, query, "--format", "json")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "two columns are called id" in result.stderr


def test_files_and_pipes_get_utf_8_whatever_the_locale_is(shop):
    with everview.open(shop) as db:
        db.table("items").put({"id": 1, "name": "é🎉"})
    code = "from everview.cli import main; main()"
    command = [sys.executable, "-c", code, "get", shop, "items", "1"]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, check=False
    )
    assert done.stdout.decode() == '{"id": 1, "name": "é🎉"}\n'
