"""A maintainer that is killed at any of its writes leaves every member of a family right."""

from __future__ import annotations

import random
import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.member import Member
from tests.proofs import Prove

from .processes import Server
from .test_steps import MOMENTS, writes_of_maintenance

SINCE = (
    "(least INT) AS SELECT branch, count(*) AS n, sum(amount) AS total FROM moves "
    "WHERE amount >= :least GROUP BY branch"
)
BELOW = (
    "SELECT branch, count(*) AS n, sum(amount) AS total FROM moves WHERE id < {} GROUP BY branch"
)
Totals = Mapping[int, tuple[int, int]]


@pytest.fixture
def db(spark: Engine, sail: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "moves.ev", create=True) as db:
        db.engines.use(sail)
        db.sql("CREATE TABLE moves (id INT PRIMARY KEY, branch INT, amount INT)")
        db.sql(f"CREATE MATERIALIZED VIEW since {SINCE}")
        yield db


def change(db: ev.Database, chance: random.Random) -> None:
    """Rows and members come and go, and so do views that are alike."""
    moves, members = db.table("moves"), db.view("since").members
    moves.put([
        {"id": chance.randrange(200), "branch": chance.randrange(4), "amount": chance.randrange(50)}
        for _ in range(chance.choice([1, 20, 100]))
    ])  # fmt: skip
    moves.delete([chance.randrange(200) for _ in range(5)])
    members.put([{"least": chance.randrange(60)} for _ in range(chance.randrange(4))])
    members.delete([chance.randrange(60) for _ in range(3)])
    name = f"below_{chance.randrange(6)}"
    if name in db.views:
        db.sql(f"DROP VIEW {name}")
    else:
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {BELOW.format(chance.randrange(250))}")


def totals(rows: Iterator[dict[str, int]]) -> Totals:
    found: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        found[row["branch"]].append(row["amount"])
    return {branch: (len(amounts), sum(amounts)) for branch, amounts in found.items()}


def shown(view: ev.View | Member) -> Totals:
    return {row["branch"]: (row["n"], row["total"]) for row in view.scan()}


def check(db: ev.Database) -> int:
    """Each member has what its rows add up to at the epoch; returns how many there are."""
    number = 0
    with db.pin() as at:
        moves = list(at.table("moves").scan())
        since = at.view("since")
        for row in since.members.scan() if since.is_loaded else ():
            least = row["least"]
            own = (move for move in moves if move["amount"] >= least)
            assert shown(since.member(least)) == totals(own), f"since {least}"
            number += 1
        for name in db.views:
            view = at.view(name)
            if name != "since" and view.is_loaded:
                below = int(view.sql.split("<")[1].split()[0])
                own = (move for move in moves if move["id"] < below)
                assert shown(view) == totals(own), f"below {below}"
                number += 1
    return number


def test_kills_at_every_kind_of_write(
    db: ev.Database, server: Server, proof: Prove, request: pytest.FixtureRequest
) -> None:
    kills = 400 if request.config.getoption("--long") else 15
    chance = random.Random(7)
    change(db, chance)
    most, killed, members = writes_of_maintenance(db, server), 0, 0
    while killed < kills:
        change(db, chance)
        step, moment = chance.randrange(1, most), chance.choice(MOMENTS)
        child = server.start("maintain", path=db.path, step=step, moment=moment)
        assert child.ends_within(60)
        child.reports()
        killed += child.status(poll=True) == signal.SIGKILL
        members += check(db)
        if chance.random() < 0.3:
            assert not db.maintain().failed
            members += check(db)
    assert not db.maintain().failed
    assert any(db.view(name).family for name in db.views)
    assert [name for name in db.views if not db.verify(name).equal] == []
    proof("members, maintainer killed", f"{killed:,} kills, {members:,} reads", [], 0, 0)
