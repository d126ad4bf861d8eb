"""Spark does what it likes with tasks, and its Python workers die: views stay exact."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from everview.run import workers
from everview.run.engine import Engine

from . import bank


def python_workers() -> list[int]:
    """Those that the daemons of this process's Spark have forked."""
    daemons = [pid for pid in _family(os.getpid()) if b"pyspark.daemon" in _command(pid)]
    return [pid for pid in daemons if _parent(pid) in daemons]


def _family(pid: int) -> list[int]:
    found = [pid]
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += _family(int(child))
    return found


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return 0


def kill_some(chance: random.Random, killed: list[int]) -> None:
    """Kill two of them, a little later."""
    for _ in range(2):
        time.sleep(chance.uniform(0, 0.4))
        if found := python_workers():
            killed.append(chance.choice(found))
            with suppress(ProcessLookupError):
                os.kill(killed[-1], signal.SIGKILL)


@pytest.mark.parametrize("few", [0, 20_000], ids=["spread", "in one partition"])
def test_killed_workers_lose_nothing_and_repeat_nothing(
    few: int, spark: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "FEW_CHANGES", few)
    chance, made, killed = random.Random(4), 0, list[int]()
    with bank.create(str(tmp_path / "bank.ev")) as db:
        db._engine = spark
        made = bank.work(db, chance, made, 200)
        db.maintain()
        for _ in range(6):
            made = bank.work(db, chance, made, 200)
            killer = threading.Thread(target=kill_some, args=(chance, killed))
            killer.start()
            assert not db.maintain().failed
            killer.join()
            assert bank.faults(db)[1] == []
        assert len(killed) >= 6
        assert {db.view(name).status for name in bank.VIEWS} == {"live"}
        assert all(db.verify(name).equal for name in bank.VIEWS)
