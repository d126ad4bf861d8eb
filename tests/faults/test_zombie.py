"""A maintainer that is stopped, superseded and then goes on writes nothing that counts."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from everview.engines.engine import Engine
from tests.proofs import Prove

from . import bank

LEASE, BEAT, FENCE = 0.4, 0.05, 0.2  # shorter than they are, as there are many rounds
PATIENCE = 10.0
MAINTAINER = f"""
import sys
import everview as ev
from everview.stores.embedded import lease, states
lease.BEAT_SECONDS, states._FENCE_PATIENCE = {BEAT}, {FENCE}
with ev.open(sys.argv[1], engine="sail") as db:
    db.engine
    print("up", flush=True)
    while True:
        with db.running(lease={LEASE}) as is_current:
            with open(sys.argv[2], "a") as active:
                active.write("x")
            while is_current():
                db.maintain(lease={LEASE})
"""


class Maintainer:
    """A process that maintains, or stands by; it notes in a file whenever it begins to run."""

    def __init__(self, process: subprocess.Popen[bytes], notes: Path) -> None:
        self.process = process
        self._notes = notes

    def begins(self) -> int:
        return self._notes.stat().st_size if self._notes.exists() else 0


@contextmanager
def maintainer(db: str, notes: Path) -> Iterator[Maintainer]:
    process = subprocess.Popen(
        [sys.executable, "-c", MAINTAINER, db, str(notes)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield Maintainer(process, notes)
        assert process.poll() is None, "it ended by itself"
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


@contextmanager
def stopped(victim: Maintainer) -> Iterator[threading.Event]:
    """Inside the block it is stopped, unless it happened to be in a transaction of the catalog or
    of a table: then nobody else can write, and it is woken before its time."""
    woken = threading.Event()

    def wake() -> None:
        woken.set()
        os.kill(victim.process.pid, signal.SIGCONT)

    watchdog = threading.Timer(PATIENCE, wake)
    os.kill(victim.process.pid, signal.SIGSTOP)
    watchdog.start()
    try:
        yield woken
    finally:
        watchdog.cancel()
        os.kill(victim.process.pid, signal.SIGCONT)


def test_a_superseded_maintainer_writes_nothing(
    spark: Engine, sail: Engine, tmp_path: Path, proof: Prove, request: pytest.FixtureRequest
) -> None:
    rounds = 500 if request.config.getoption("--long") else 10
    chance, made, superseded, recovery = random.Random(8), 0, 0, list[float]()
    with bank.create(str(tmp_path / "bank.ev")) as db, ExitStack() as stack:
        db.engines.use(sail)
        db.maintain()
        running, waiting = (
            stack.enter_context(maintainer(db.path, tmp_path / name)) for name in ("one", "other")
        )
        if not running.begins():
            running, waiting = waiting, running
        for _ in range(rounds):
            until = time.monotonic() + chance.uniform(0, 0.15)
            while time.monotonic() < until:
                made = bank.work(db, chance, made, 50)
            before, began = waiting.begins(), time.monotonic()
            with stopped(running) as woken:
                made = bank.work(db, chance, made, 50)
                while waiting.begins() == before and not woken.is_set():
                    assert bank.faults(db, with_table=False)[1] == []
                    time.sleep(0.01)
                recovery.append(time.monotonic() - began)
            for _ in range(3):
                made = bank.work(db, chance, made, 20)
                assert bank.faults(db, with_table=False)[1] == []
            if waiting.begins() > before:
                running, waiting = waiting, running
                superseded += 1
        stack.close()
        assert superseded > rounds * 0.8
        db.maintain()
        assert bank.faults(db)[1] == []
        lost, twice = bank.verified(db)
        proof("maintainer stopped, superseded", f"{superseded:,} times", recovery, lost, twice)
        assert (lost, twice) == (0, 0)
