"""A maintainer of two groups that is killed at any of its writes loses nothing in either."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import everview as ev
from everview.engines.engine import Engine
from tests.proofs import Prove

from . import bank
from .processes import Server
from .test_steps import MOMENTS, live_states, writes_of_maintenance

COPIES = {"copy": "", "slow_copy": "WITH (group = 'slow') "}
SLOW = "WITH (group = 'slow') AS SELECT account, sum(amount) AS balance FROM {} GROUP BY account"


@pytest.fixture
def db(spark: Engine, sail: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with bank.create(str(tmp_path / "bank.ev")) as db:
        db.engines.use(sail)
        for name, option in COPIES.items():
            db.sql(f"CREATE MATERIALIZED VIEW {name} {option}AS SELECT * FROM transfers")
        db.sql(f"CREATE MATERIALIZED VIEW slow_balances {SLOW.format(bank._MOVES)}")
        yield db


def check(db: ev.Database) -> None:
    """The views of each group are as the transfers were at the epoch of the group."""
    assert bank.faults(db)[1] == []
    for copy in COPIES:
        assert bank.differences(db, copy) == (0, 0, 0), f"{copy}: lost, twice, of another time"
    with db.pin("slow_copy", "slow_balances") as at:
        balances = {row["account"]: row["balance"] for row in at.view("slow_balances").scan()}
        wanted = dict.fromkeys(balances, 0)
        for row in at.view("slow_copy").scan():
            wanted[row["to_account"]] += row["amount"]
            wanted[row["from_account"]] -= row["amount"]
    assert balances == wanted


def test_kills_at_every_kind_of_write(
    db: ev.Database, server: Server, proof: Prove, request: pytest.FixtureRequest
) -> None:
    kills = 500 if request.config.getoption("--long") else 20
    chance, made = random.Random(3), bank.work(db, random.Random(1), 0, 300)
    db.maintain()
    killed, apart = 0, 0
    made = bank.work(db, chance, made, 300)
    most = writes_of_maintenance(db, server)  # many more if an engine does them
    while killed < kills:
        made = bank.work(db, chance, made, chance.choice([1, 20, 300]))
        if chance.random() < 0.2:
            name, option = chance.choice(list(COPIES.items()))
            db.sql(f"CREATE OR REPLACE VIEW {name} {option}AS SELECT * FROM transfers")
        step, moment = chance.randrange(1, most), chance.choice(MOMENTS)
        child = server.start("maintain", path=db.path, step=step, moment=moment)
        assert child.ends_within(60)
        child.reports()
        status = child.status(poll=True)
        assert status in (0, signal.SIGKILL)
        if status == 0:  # it had fewer steps than that
            most = max(step, 8)
            continue
        killed += 1
        with db.pin() as at:
            apart += (
                at.positions["transfers"]
                != db.store.catalog.epoch_of("slow").positions["transfers"]
            )
        check(db)
        if chance.random() < 0.3:
            before = live_states(db)
            assert not db.maintain().failed
            assert before.items() <= live_states(db).items(), "it made state anew"
            check(db)
    assert not db.maintain().failed
    check(db)
    assert apart > kills // 10, "it was rarely killed between the commits of the groups"
    assert all(db.verify(name).equal for name in db.views)
    proof("maintainer of two groups killed at any write", f"{killed:,} kills")
