"""Spark on a cluster runs tasks twice, kills the slower ones and loses executors: same views."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from everview.engines.engine import Engine
from tests.proofs import Prove

from . import bank

PROGRAM = str(Path(__file__).with_name("cluster.py"))
SLOW = 5.0


def output_of(command: list[str], seconds: float) -> str:
    """What a program writes; nothing that it started is left behind."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors[-5000:]
    return output


def test_speculation_and_killed_executors_lose_nothing_and_repeat_nothing(
    spark: Engine, tmp_path: Path, proof: Prove, request: pytest.FixtureRequest
) -> None:
    if not request.config.getoption("--long"):
        pytest.skip("takes two minutes; `make test-faults` runs it")
    epochs = 60
    notes = tmp_path / "notes"
    notes.mkdir()
    with bank.create(str(tmp_path / "bank.ev")) as db:
        db.engines.use(spark)
        bank.work(db, random.Random(1), 0, 300)
        db.maintain()
        command = [sys.executable, PROGRAM, db.path, str(notes), str(epochs), str(SLOW)]
        told = json.loads(output_of(command, seconds=60 + 30 * epochs).splitlines()[-1])
        assert told["killed"] >= epochs // 2
        assert told["speculated"] >= epochs // 2
        assert {db.view(name).status for name in bank.VIEWS} == {"live"}
        lost, twice = bank.verified(db)
        often = f"{told['killed']} kills, {told['speculated']} speculative tasks"
        proof("Spark cluster", often, told["recovery"], lost, twice)
        assert (lost, twice) == (0, 0)
