"""A maintainer that is killed while it loads a view beside epochs goes on with the load."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import everview as ev
from everview.catalog import LOAD
from everview.engines.engine import Engine
from tests.proofs import Prove

CHILD = """
import sys
import everview as ev
with ev.open(sys.argv[1], engine=sys.argv[2]) as db:
    db.engine
    print("up", flush=True)
    while True:
        db.maintain()
"""
# kills that come during a load, in short and at full length; a JVM starts slowly
KILLS = {"sail": (2, 100), "spark": (1, 20)}
MOVES, BRANCHES = 60_000, 500
VIEWS = {
    "balance": "SELECT branch, sum(amount) AS total, count(*) AS n FROM moves GROUP BY branch",
    "cities": "SELECT city, sum(amount) AS total, max(amount) AS most FROM moves "
    "JOIN branches USING (branch) GROUP BY city",
}


@pytest.fixture
def bank(spark: Engine, sail: Engine, tmp_path: Path) -> ev.Database:
    db = ev.open(tmp_path / "bank.ev", create=True)
    db.engines.use(sail)
    db.sql("CREATE TABLE moves (id BIGINT PRIMARY KEY, branch INT, amount BIGINT)")
    db.sql("CREATE TABLE branches (branch INT PRIMARY KEY, city STRING)")
    ids = np.arange(MOVES)
    db.table("moves").put(pa.table({"id": ids, "branch": ids % BRANCHES, "amount": ids % 97}))
    names = [f"city {number % 40}" for number in range(BRANCHES)]
    db.table("branches").put(pa.table({"branch": np.arange(BRANCHES), "city": names}))
    db.sql(f"CREATE MATERIALIZED VIEW balance AS {VIEWS['balance']}")
    db.maintain()
    return db


def check(db: ev.Database) -> None:
    """That all loaded views are as a recomputation has them, at one epoch."""
    with db.pin() as at:
        moves, branches = (at.table(name).to_arrow() for name in ("moves", "branches"))
        rows = {name: at.view(name).to_arrow() for name in db.views if at.view(name).is_loaded}
    assert min(moves.num_rows, branches.num_rows) > 0  # DuckDB finds them by these names
    for name, view in rows.items():
        wanted = sorted(duckdb.sql(VIEWS[name]).fetchall())
        assert sorted(tuple(row.values()) for row in view.to_pylist()) == wanted, name


@pytest.mark.parametrize("engine", KILLS)
def test_kills_during_loads_lose_nothing_and_repeat_nothing(
    bank: ev.Database, engine: str, proof: Prove, request: pytest.FixtureRequest
) -> None:
    kills = KILLS[engine][bool(request.config.getoption("--long"))]
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    moves, in_a_load = bank.table("moves"), 0
    for _ in range(10 * kills):
        if in_a_load >= kills:
            break
        if "cities" not in bank.views:
            bank.sql(f"CREATE MATERIALIZED VIEW cities AS {VIEWS['cities']}")
        command = [sys.executable, "-c", CHILD, bank.path, engine]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        until = time.monotonic() + chance.uniform(0.05, 1.5) + 4 * (engine == "spark")
        while time.monotonic() < until:
            many = chance.randrange(1, 400)
            ids, amounts = (np.array(chance.choices(range(n), k=many)) for n in (MOVES, 1000))
            moves.put(pa.table({"id": ids, "branch": amounts % BRANCHES, "amount": amounts}))
            moves.delete([chance.randrange(MOVES) for _ in range(20)])
        assert child.poll() is None, f"a maintainer ended by itself (seed {seed})"
        child.kill()
        child.wait()
        child.stdout.close()
        in_a_load += bank.store.catalog.get(LOAD) is not None
        if bank.view("cities").is_loaded:
            assert not bank.maintain().failed
            check_at_end(bank, seed)
            bank.sql("DROP VIEW cities")
    if "cities" not in bank.views:
        bank.sql(f"CREATE MATERIALIZED VIEW cities AS {VIEWS['cities']}")
    assert not bank.maintain().failed
    check_at_end(bank, seed)
    assert in_a_load >= kills, "too few kills came during a load"
    assert bank.store.catalog.get(LOAD) is None
    proof(f"maintainer killed in a load, on {engine}", f"{in_a_load} kills in a load")
    bank.close()


def check_at_end(bank: ev.Database, seed: int) -> None:
    """When all changes are in the views: the tables of a pin are as of now."""
    try:
        check(bank)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}") from error
