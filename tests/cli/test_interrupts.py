"""Ctrl-C at any moment of a command: exit code 130, no traceback, and a database that is sound."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import everview

COMMAND = [sys.executable, "-c", "from everview_command import main; main()"]
ROWS = 20_000
SLOW = "SELECT count(*) FROM items a, items b WHERE a.id > b.id"
# a command, and for how many seconds it works; at full length, also those that start a JVM
QUICK = {
    "status": (["status", "DB"], 1.5),
    "scan": (["scan", "DB", "items", "--format", "json"], 1.5),
    "load": (["load", "DB", "items", "ITEMS"], 2.0),
    "query": (["sql", "DB", SLOW, "--engine", "sail"], 6.0),
}
LONG = {
    "spark": (["sql", "DB", SLOW], 15.0),
    "create": (
        ["sql", "DB", "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM items"],
        15.0,
    ),
    "explain": (["explain", "DB", "CREATE MATERIALIZED VIEW v AS SELECT * FROM items"], 12.0),
    "run": (["run", "DB", "--engine", "sail"], 5.0),
    "verify": (["verify", "DB"], 12.0),
    "demo": (["demo", "--engine", "sail", "--seconds", "2"], 25.0),
}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.ev"
    with everview.open(path, create=True) as db:
        db.create_table("items", {"id": "INT", "name": "STRING"}, "id")
        db.table("items").put([{"id": i, "name": "x" * 50} for i in range(ROWS)])
    lines = "".join(f"{i},{'y' * 50}\n" for i in range(15 * ROWS))
    (tmp_path / "items.csv").write_text(f"id,name\n{lines}")
    return path


def interrupted(command: list[str], after: float, group: bool) -> tuple[int, str]:
    """The exit code and what went to standard error; the terminal sends Ctrl-C to all processes
    of the group, others to one."""
    process = subprocess.Popen(
        COMMAND + command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    time.sleep(after)
    if process.poll() is None:
        (os.killpg if group else os.kill)(process.pid, signal.SIGINT)
    try:
        said = process.communicate(timeout=60)[1].decode()
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, said


@pytest.mark.parametrize("name", [*QUICK, *LONG])
def test_ctrl_c_ends_a_command_with_130(
    name: str, shop: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    is_long = request.config.getoption("--long")
    if name in LONG and not is_long:
        pytest.skip("with --long")
    command, seconds = (QUICK | LONG)[name]
    places = {"DB": str(shop), "ITEMS": str(tmp_path / "items.csv")}
    command = [places.get(word, word) for word in command]
    count = 30 if is_long else 3
    for number in range(count):
        # one in each part of the time, from when Python itself has started
        after = 0.1 + seconds * (number + random.random()) / count
        code, said = interrupted(command, after, group=number % 2 == 0)
        assert "Traceback" not in said, (after, said)
        assert code in (130, 0), (after, said)
        assert code == 0 or said.count("interrupted") == 1 or name == "run", (after, said)
    with everview.open(shop) as db:
        table = db.table("items").to_arrow(columns=["id"], ordered=True)
        assert table["id"].to_pylist() == list(range(len(table)))
        assert len(table) >= ROWS
        assert db.table("items").put({"id": 0, "name": "z"}).rows == 1


def test_ctrl_c_in_the_middle_of_a_destructor_is_not_lost() -> None:
    code = """
import signal, time
from everview.cli import interrupting

class Trap:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

interrupting.begin()
try:
    trap = Trap()
    del trap
    time.sleep(5)
    print("lost")
except KeyboardInterrupt:
    print("raised")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("raised\n", "")


def test_ctrl_c_in_the_middle_of_a_write_waits_for_its_end(tmp_path: Path) -> None:
    code = """
import signal, sys, time
import everview as ev
from everview.cli import interrupting
from everview.stores.embedded.region import Region

write = Region.write

def interrupted(*arguments, **options):
    signal.raise_signal(signal.SIGINT)
    return write(*arguments, **options)

Region.write = interrupted
with ev.open(sys.argv[1], create=True) as db:
    table = db.create_table("items", {"id": "INT"}, "id", 4)
    interrupting.begin()
    try:
        table.put([{"id": i} for i in range(1000)])
        time.sleep(5)
        print("lost")
    except KeyboardInterrupt:
        print(len(table.to_arrow()), "rows")
"""
    command = [sys.executable, "-c", code, str(tmp_path / "db.ev")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("1000 rows\n", "")
