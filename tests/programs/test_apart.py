"""Shards that are worked on in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.errors import EngineFailed
from everview.plan.nodes import node_of
from everview.programs import apart, workers
from everview.programs.apart import Processes
from everview.programs.applying import empty_delta

pytestmark = pytest.mark.on_the_engine

BY_NAME = "SELECT name, count(*) AS n, sum(x) AS s FROM a JOIN b USING (k) GROUP BY name"


@pytest.fixture
def processes(sail: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    """Every shard of every step goes to another process."""
    made = Processes()
    monkeypatch.setattr(workers, "PROCESSES", made)
    monkeypatch.setattr(apart, "MANY_ROWS", 0)
    yield made
    made.close()


@pytest.fixture
def shop(sail: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "t.ev", create=True) as db:
        db.engines.use(sail)
        db.create_table("a", {"id": "INT", "k": "INT", "x": "DECIMAL(38,0)"}, key="id")
        db.create_table("b", {"k": "INT", "name": "STRING"}, key="k")
        db.table("b").put([{"k": k, "name": "xy"[k % 2]} for k in range(10)])
        db.table("a").put([{"id": i, "k": i % 10, "x": i} for i in range(100)])
        db.sql(f"CREATE MATERIALIZED VIEW v AS {BY_NAME}")
        yield db


def rows(db: ev.Database) -> dict[str, tuple[int, int]]:
    return {row["name"]: (row["n"], int(row["s"])) for row in db.view("v").scan()}


def test_loads_and_epochs_are_the_same_there_also_when_one_is_killed(
    shop: ev.Database, processes: Processes
) -> None:
    shop.maintain()
    assert rows(shop) == {"x": (50, 2450), "y": (50, 2500)}
    assert processes._idle, "some worked"
    for process in processes._idle:
        os.kill(process.pid, signal.SIGKILL)
    shop.table("a").put([{"id": 1, "k": 0, "x": 7}])
    report = shop.maintain()
    assert (report.epochs, report.failed) == (1, {})
    assert rows(shop) == {"x": (51, 2457), "y": (49, 2499)}
    assert shop.verify("v").equal


def test_an_error_there_is_told_as_if_it_were_here(shop: ev.Database, processes: Processes) -> None:
    shop.maintain()
    shop.table("a").put([{"id": i, "k": 0, "x": 9 * 10**37} for i in (1, 2)])
    assert "sum(x) of the group name = x does not fit" in shop.maintain().failed["v"]


def test_who_dies_again_and_again_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "_start", lambda start=apart._start: _killed(start()))
    with pytest.raises(EngineFailed, match="3 processes for a shard ended"):
        Processes().work({}, empty_delta(node_of(NODE)))


def test_any_number_may_have_ended_while_they_were_idle() -> None:
    made = Processes()
    made._idle = [_killed(apart._start()) for _ in range(apart._TRIES + 1)]
    with pytest.raises(RuntimeError, match="KeyError"):  # which is an answer
        made.work({}, empty_delta(node_of(NODE)))
    assert len(made._idle) == 1
    made.close()


def test_one_whose_pipe_is_closed_ends() -> None:
    made = Processes()
    with pytest.raises(RuntimeError, match="KeyError"):
        made.work({}, empty_delta(node_of(NODE)))
    (process,) = made._idle
    made.close()
    assert process.returncode == 0


NODE = '[{"kind": "constant", "columns": [], "rows": []}]'


def _killed(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    process.kill()
    time.sleep(0.01)
    return process


def test_processes_that_ended_idle_do_not_stay_as_zombies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "IDLE_SECONDS", 0.02)
    monkeypatch.setattr(apart, "_REAP_SECONDS", 0.02)
    processes = Processes()
    ended = subprocess.Popen(["true"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    processes._idle.append(ended)
    processes._reap_later()
    until = time.monotonic() + 10
    while processes._idle:
        assert time.monotonic() < until
        time.sleep(0.005)
    assert not Path(f"/proc/{ended.pid}").exists()
