"""everview tail: what a view has and what changes in it, until Ctrl-C."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner

import everview as ev
from everview.catalog import FOLLOWERS
from everview.cli.main import main
from everview.engines.engine import Engine

VIEW = (
    "CREATE MATERIALIZED VIEW spend AS SELECT customer, sum(amount) AS total, "
    "collect_list(id) AS ids FROM orders GROUP BY customer"
)


@pytest.fixture
def db(tmp_path: Path, sail: Engine) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "shop.ev", create=True) as db:
        db.engines.use(sail)
        db.sql("CREATE TABLE orders (id INT PRIMARY KEY, customer STRING, amount DECIMAL(9,2))")
        db.sql(VIEW)
        yield db


def put(db: ev.Database, id_: int, customer: str | None, amount: str) -> None:
    db.table("orders").put({"id": id_, "customer": customer, "amount": amount})
    db.maintain()


def tail(db: ev.Database, *options: str) -> str:
    shown = CliRunner().invoke(main, ["tail", db.path, "spend", *options], catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    return shown.output


def test_rows_and_changes_are_lines_of_text(db: ev.Database) -> None:
    put(db, 1, "ada", "9.90")
    assert tail(db, "--epochs", "1") == "epoch 1  +  customer=ada  total=9.90  ids=[1]\n"
    start = db.view("spend").register("test")
    put(db, 2, "ada", "0.10")
    put(db, 1, None, "9.90")
    lines = tail(db, "--from", str(start), "--epochs", "2").splitlines()
    assert lines[0].startswith("epoch 2  ~  customer=ada  total=9.90 -> 10.00  ids=[1] -> ")
    assert len(lines) == 3
    assert "epoch 3  +  customer=NULL  total=9.90  ids=[1]" in lines
    followers = db.store.catalog.get(FOLLOWERS["spend"])
    assert followers is not None
    assert followers.by_name.keys() == {"test"}, "a tail that has ended follows no more"


def test_json_loses_nothing(db: ev.Database) -> None:
    put(db, 1, 'a "b"\n', "9.90")
    (line,) = tail(db, "--epochs", "1", "--format", "json").splitlines()
    assert json.loads(line) == {
        "epoch": 1,
        "op": "insert",
        "before": None,
        "after": {"customer": 'a "b"\n', "total": "9.90", "ids": [1]},
    }


def test_wrong_uses_are_told(db: ev.Database) -> None:
    db.maintain()
    for options, message, code in (
        (["spend", "--from", "then"], "neither snapshot nor now nor an epoch", 2),
        (["spend", "--from", "77"], "has not come to epoch 77", 1),
        (["nothing"], "there is no view nothing", 1),
        (["orders"], "orders is a table", 1),
    ):
        shown = CliRunner().invoke(main, ["tail", db.path, *options])
        assert (shown.exit_code, message in shown.output) == (code, True), shown.output


class Tail:
    """A process that tails a view, and the lines it has written."""

    def __init__(self, db: ev.Database, *options: str) -> None:
        code = "from everview.cli.main import main; main()"
        command = [sys.executable, "-c", code, "tail", db.path, "spend", "--format", "json"]
        self.lines: list[str] = []
        self._process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            self.lines.extend(line for line in lines if line.endswith("\n"))

    def wait_for(self, epoch: int) -> None:
        deadline = time.monotonic() + 20
        while not self.lines or json.loads(self.lines[-1])["epoch"] < epoch:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def kill(self) -> list[str]:
        self._process.kill()
        self._process.wait()
        self._reading.join()
        return self.lines


def test_a_tail_waits_for_the_load_and_survives_kills(db: ev.Database) -> None:
    """Killed, and begun again after the last epoch that it wrote whole, its lines are the view."""
    db.table("orders").put({"id": 0, "customer": "ada", "amount": "1.00"})
    tail = Tail(db)
    time.sleep(1)
    assert tail.lines == [], "the view is not loaded yet"
    db.maintain()
    tail.wait_for(db.view("spend").epoch)  # it has the first rows
    db.view("spend").register("test")  # so that the log stays while nobody tails
    lines: list[str] = []
    for round_ in range(3):
        for id_ in range(4):
            put(db, id_, f"c{(id_ + round_) % 3}", f"{round_}.{id_}0")
        tail.wait_for(db.view("spend").epoch - round_)
        written = tail.kill()
        last = json.loads(written[-1])["epoch"] - 1  # of the last, some lines may be missing
        lines += [line for line in written if json.loads(line)["epoch"] <= last]
        put(db, 9, f"c{round_}", "9.00")
        tail = Tail(db, "--from", str(last))
    put(db, 100, "last", "1.00")  # one line
    tail.wait_for(db.view("spend").epoch)
    lines += tail.kill()
    copy = Counter[tuple[str, Decimal, tuple[int, ...]]]()
    for change in map(json.loads, lines):
        for image, weight in (("before", -1), ("after", 1)):
            if (row := change[image]) is not None:
                copy[row["customer"], Decimal(row["total"]), tuple(sorted(row["ids"]))] += weight
    rows = db.view("spend").scan()
    assert +copy == Counter((r["customer"], r["total"], tuple(sorted(r["ids"]))) for r in rows)
    assert not -copy
