"""A maintainer that is killed at any of its writes loses nothing."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import everview as ev
from everview.catalog import REPLACEMENTS
from everview.engines.engine import Engine
from everview.plan.jobs import jobs
from tests.proofs import Prove
from tests.records import records

from . import bank
from .processes import Server

MOMENTS = ("before", "in", "after")
COPY = "copy"
THRICE = """SELECT a.branch, a.credit + b.credit + c.credit AS credit FROM credits a
    JOIN credits b ON a.branch = b.branch JOIN credits c ON a.branch = c.branch"""


@pytest.fixture
def db(spark: Engine, sail: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with bank.create(str(tmp_path / "bank.ev")) as db:
        db.engines.use(sail)
        yield db


def writes_of_maintenance(db: ev.Database, server: Server) -> int:
    child = server.start("maintain", path=db.path, step=0, moment="")
    return int(child.result()[-1]["steps"])


def create_again(db: ev.Database, views: Iterable[str]) -> None:
    for name in views:
        db.sql(f"DROP VIEW {name}")
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {bank.VIEWS[name]}")


class Recovery(ev.Watcher):
    """When the first epoch is visible again."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.seconds: float | None = None

    def committed(self, epoch: ev.Epoch) -> None:
        self.seconds = self.seconds or time.monotonic() - self._began


def live_states(db: ev.Database) -> dict[str, dict[str, str]]:
    """Of the views that are neither new nor about to be replaced."""
    replaced = {one.view.name for one in db.store.catalog.all(REPLACEMENTS).values()}
    live = [view for view in records(db) if view.is_live and view.name not in replaced]
    return {view.name: dict(view.states) for view in live}


def check_balances(db: ev.Database) -> None:
    """What is there balances, also in the view that reads another three times."""
    if db.view("total").is_loaded:
        assert bank.faults(db)[1] == []
    if db.view("thrice").is_loaded:
        with db.pin("credits", "thrice") as at:
            credits = {row["branch"]: row["credit"] for row in at.view("credits").scan()}
            thrice = {row["branch"]: row["credit"] for row in at.view("thrice").scan()}
        assert thrice == {branch: 3 * credit for branch, credit in credits.items()}


def check(db: ev.Database) -> float | None:
    """What is there balances, and so does what comes when a maintainer goes on, with the state it
    has; returns after how many seconds the next epoch came."""
    check_balances(db)
    before, watch = live_states(db), Recovery()
    assert not db.maintain(watch=watch).failed
    assert before.items() <= live_states(db).items(), "it made state anew"
    check_balances(db)
    return watch.seconds


def test_kills_at_every_kind_of_write(
    db: ev.Database, server: Server, proof: Prove, request: pytest.FixtureRequest
) -> None:
    """While views are loaded or replaced, in epochs, and in finishing what a killed one left."""
    kills = 1000 if request.config.getoption("--long") else 25
    db.sql(f"CREATE MATERIALIZED VIEW {COPY} AS SELECT * FROM transfers")
    chance, made = random.Random(2), bank.work(db, random.Random(1), 0, 300)
    most = writes_of_maintenance(db, server)  # with loads there are more
    assert most > 30
    create_again(db, bank.VIEWS)
    db.sql(f"CREATE MATERIALIZED VIEW thrice AS {THRICE}")
    plans = [db.view(name).plan for name in (*bank.VIEWS, "thrice")]
    assert jobs(plans).ahead, "what it reads is run in a job ahead of it"
    killed, recovery = 0, list[float]()
    while killed < kills:
        made = bank.work(db, chance, made, chance.choice([1, 20, 300]))
        if chance.random() < 0.2:
            name = chance.choice(list(bank.VIEWS))
            db.sql(f"CREATE OR REPLACE VIEW {name} AS {bank.VIEWS[name]}")
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
        check_balances(db)
        assert bank.differences(db, COPY) == (0, 0, 0), "lost, twice, of another time"
        if chance.random() < 0.3 and (seconds := check(db)) is not None:
            recovery.append(seconds)
            assert bank.differences(db, COPY) == (0, 0, 0), "lost, twice, of another time"
    check(db)
    lost, twice = bank.verified(db)
    proof("maintainer killed at any write", f"{killed:,} kills", recovery, lost, twice)
    assert (lost, twice) == (0, 0)
    assert recovery
