"""A maintainer that is killed at any of its writes, or any of whose writes fails, loses nothing."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import everview as ev
from everview.run.engine import Engine

from . import bank
from .processes import Server

MOMENTS = ("before", "in", "after")


@pytest.fixture
def db(spark: Engine, sail: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with bank.create(str(tmp_path / "bank.ev")) as db:
        db._engine = sail
        yield db


def writes_of_an_epoch(db: ev.Database, server: Server) -> int:
    child = server.start("maintain", path=db.path, step=0, moment="once")
    return int(child.result()[-1]["steps"])


def check(db: ev.Database) -> None:
    """What is there balances, and so does what comes when a maintainer goes on."""
    if db.view("total").is_loaded:
        assert bank.faults(db)[1] == []
    began = time.monotonic()
    assert not db.maintain().failed
    assert time.monotonic() - began < 20, "it should go on, not begin anew"
    assert bank.faults(db)[1] == []


def test_kills_at_every_kind_of_write(
    db: ev.Database, server: Server, request: pytest.FixtureRequest
) -> None:
    """While views are loaded, in epochs, and while what a killed one left is finished."""
    kills = 1000 if request.config.getoption("--long") else 50
    chance, made = random.Random(2), bank.work(db, random.Random(1), 0, 300)
    most = writes_of_an_epoch(db, server)  # of a load, which has more
    assert most > 30
    for name in bank.VIEWS:
        db.sql(f"DROP VIEW {name}")
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {bank.VIEWS[name]}")
    killed = 0
    while killed < kills:
        made = bank.work(db, chance, made, chance.choice([1, 20, 300]))
        step, moment = chance.randrange(1, most), chance.choice(MOMENTS)
        child = server.start("maintain", path=db.path, step=step, moment=moment)
        assert child.ends_within(60)
        child.reports()
        status = child.status(poll=True)
        assert status in (0, signal.SIGKILL)
        if status == 0:  # it had fewer steps than that
            most = max(step, 12)
            continue
        killed += 1
        if db.view("total").is_loaded:
            assert bank.faults(db)[1] == []
        if chance.random() < 0.3:
            check(db)
    check(db)
    assert all(db.verify(name).equal for name in bank.VIEWS)


@pytest.mark.parametrize("moment", ["once", "for good"])
def test_any_write_may_fail(db: ev.Database, server: Server, moment: str) -> None:
    made = bank.work(db, random.Random(1), 0, 300)
    most = writes_of_an_epoch(db, server)
    steps = [*range(1, most, 4 if moment == "once" else 9)]
    for step in steps:
        made = bank.work(db, random.Random(step), made, 40)
        child = server.start("maintain", path=db.path, step=step, moment=moment)
        reports = child.result()
        errors = {report["error"] for report in reports if "error" in report}
        assert errors <= {"WriteError"}, reports
        assert all(not report["stopped"] for report in reports if "stopped" in report), reports
        if moment == "once":
            assert "stopped" in reports[-2], "the second try should have done it"
        check(db)
    assert all(db.verify(name).equal for name in bank.VIEWS)
