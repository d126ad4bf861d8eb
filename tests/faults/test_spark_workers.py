"""Spark does what it likes with tasks, and its Python workers die: views stay exact."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext

from everview.engines.engine import Engine
from everview.programs import step, workers
from tests.proofs import Prove

from . import bank
from .proc import command_of, family, parent_of


def python_workers() -> list[int]:
    """Those that the daemons of this process's Spark have forked."""
    module = b"\0everview.programs.daemon\0"  # the JVM has the name among its settings
    daemons = [pid for pid in family(os.getpid()) if module in command_of(pid)]
    return [pid for pid in daemons if parent_of(pid) in daemons]


def kill_some(chance: random.Random, killed: list[int]) -> None:
    """Kill two of them, a little later."""
    for _ in range(2):
        time.sleep(chance.uniform(0, 0.4))
        deadline = time.monotonic() + 1
        while not (running := python_workers()) and time.monotonic() < deadline:
            time.sleep(0.01)
        if running:
            killed.append(chance.choice(running))
            with suppress(ProcessLookupError):
                os.kill(killed[-1], signal.SIGKILL)


@pytest.mark.parametrize("few", [0, 20_000], ids=["spread", "in one partition"])
def test_killed_workers_lose_nothing_and_repeat_nothing(
    few: int,
    spark: Engine,
    tmp_path: Path,
    proof: Prove,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    epochs = 100 if request.config.getoption("--long") else 3
    recovery = []
    monkeypatch.setattr(step, "FEW_CHANGES", few)
    chance, made, killed = random.Random(4), 0, list[int]()
    with bank.create(str(tmp_path / "bank.ev")) as db:
        db.engines.use(spark)
        made = bank.work(db, chance, made, 200)
        db.maintain()
        for _ in range(epochs):
            made = bank.work(db, chance, made, 200)
            killer = threading.Thread(target=kill_some, args=(chance, killed))
            killer.start()
            report = db.maintain()
            assert not report.failed
            recovery.append(report.seconds)
            killer.join()
            assert bank.faults(db)[1] == []
        assert len(killed) >= epochs
        assert {db.view(name).status for name in bank.VIEWS} == {"live"}
        lost, twice = bank.verified(db)
        proof("Spark: killed Python workers", f"{len(killed)} kills", recovery, lost, twice)
        assert (lost, twice) == (0, 0)


def failing(name: str, notes: str) -> Callable[..., Any]:
    """A worker function whose first attempt fails, in each task, after it has written."""

    def run(*given: Any) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        yield from getattr(workers, name)(*given)
        if context.attemptNumber() == 0:
            with open(f"{notes}/{context.taskAttemptId()}", "w"):
                pass
            raise RuntimeError("the first attempt fails")

    return run


def doubled(name: str, notes: str) -> Callable[..., Any]:
    """A worker function that runs twice at once, as two attempts of its task would."""

    def run(task: Any, *given: Any) -> Iterator[Any]:
        *view, batches = given
        held = list(batches)
        with ThreadPoolExecutor(2) as attempts:
            work = getattr(workers, name)
            futures = [
                attempts.submit(lambda: list(work(task, *view, iter(held)))) for _ in range(2)
            ]
            one, other = (future.result() for future in futures)
        assert one == other, "attempts of one task gave different rows"
        with open(f"{notes}/{os.getpid()}.{time.monotonic_ns()}", "w"):
            pass
        yield from one

    return run


@pytest.mark.on_the_engine
def test_tasks_that_run_again_or_twice_at_once_change_nothing(
    spark: Engine,
    tmp_path: Path,
    proof: Prove,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setattr(step, "FEW_CHANGES", 0)
    epochs = 100 if request.config.getoption("--long") else 1
    chance, tasks = random.Random(4), list[int]()
    with bank.create(str(tmp_path / "bank.ev")) as db:
        db.engines.use(spark)
        made = bank.work(db, chance, 0, 200)
        db.maintain()
        for fault in (failing, doubled):
            notes = tmp_path / fault.__name__
            notes.mkdir()
            for name in ("operate", "sink"):
                monkeypatch.setattr(workers, name, fault(name, str(notes)))
            monkeypatch.setattr(spark.programs, "_programs", {})
            for _ in range(epochs):
                made = bank.work(db, chance, made, 200)
                assert not db.maintain().failed
                assert bank.faults(db)[1] == []
            tasks.append(len(list(notes.iterdir())))
        assert min(tasks) >= 6 * epochs
        lost, twice = bank.verified(db)
        often = f"{tasks[0]:,} and {tasks[1]:,} tasks"
        proof("Spark: tasks again, twice at once", often, lost=lost, twice=twice)
        assert (lost, twice) == (0, 0)
