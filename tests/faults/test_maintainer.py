"""A maintainer that is killed again and again leaves views that are exact when it goes on."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import everview as ev
from everview.engines.engine import Engine
from tests.proofs import Prove

CHILD = """
import sys, time
import everview as ev
with ev.open(sys.argv[1], engine=sys.argv[2]) as db:
    db.engine
    print("up", flush=True)
    while True:
        db.maintain()
"""
KILLS = {"sail": (4, 100), "spark": (1, 30)}  # in short, and at full length; a JVM starts slowly


@pytest.fixture
def bank(spark: Engine, sail: Engine, tmp_path: Path) -> ev.Database:
    db = ev.open(tmp_path / "bank.ev", create=True)
    db.engines.use(sail)
    db.sql("CREATE TABLE moves (id BIGINT PRIMARY KEY, branch INT, amount DECIMAL(12,2))")
    db.sql("CREATE MATERIALIZED VIEW balance AS SELECT branch, sum(amount) AS total, "
           "count(*) AS n FROM moves GROUP BY branch")  # fmt: skip
    db.sql("CREATE MATERIALIZED VIEW large AS SELECT branch, amount FROM moves WHERE amount > 500")
    return db


@pytest.mark.parametrize("engine", KILLS)
def test_kills_of_the_maintainer_lose_nothing_and_repeat_nothing(
    bank: ev.Database, engine: str, proof: Prove, request: pytest.FixtureRequest
) -> None:
    """On Spark, tasks of a maintainer that was killed may go on for a while beside the next one."""
    kills = KILLS[engine][bool(request.config.getoption("--long"))]
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    moves = bank.table("moves")
    ended = 0
    for _ in range(kills):
        command = [sys.executable, "-c", CHILD, bank.path, engine]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        # on Spark, epochs only begin to run by then
        until = time.monotonic() + chance.uniform(0.05, 0.8) + 4 * (engine == "spark")
        while time.monotonic() < until:
            rows = [
                {"id": chance.randrange(3000), "branch": chance.randrange(9), "amount": amount}
                for amount in chance.choices(range(-999, 999), k=chance.randrange(1, 400))
            ]
            moves.put(rows)
            moves.delete([chance.randrange(3000) for _ in range(20)])
        ended += child.poll() is not None
        child.kill()
        child.wait()
        child.stdout.close()
    assert ended == 0, f"a maintainer ended by itself (seed {seed})"
    bank.maintain()
    rows = moves.to_arrow().to_pylist()
    large = Counter((r["branch"], r["amount"]) for r in rows if r["amount"] > 500)
    found = Counter((r["branch"], r["amount"]) for r in bank.view("large").scan())
    assert found == large, f"seed {seed}"
    totals = {r["branch"]: (r["total"], r["n"]) for r in bank.view("balance").scan()}
    branches = {r["branch"] for r in rows}
    assert totals == {
        b: (
            sum(r["amount"] for r in rows if r["branch"] == b),
            sum(r["branch"] == b for r in rows),
        )
        for b in branches
    }, f"seed {seed}"
    proof(f"maintainer killed at any moment, on {engine}", f"{kills} kills")
    bank.close()
