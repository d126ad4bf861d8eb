"""kill -9 at any moment: acknowledged writes stay, the one in flight is whole or absent.

200 writers are killed, 120 one at a time and 80 in pairs; in the long form five times as many.
"""

from __future__ import annotations

import random
import time
from itertools import islice
from pathlib import Path
from typing import Any

import lmdb
import pytest

import everview as ev
from everview.stores.embedded import opening
from tests.proofs import Prove

from .invariants import Watch, check, check_history
from .processes import Child, Server
from .workload import KEYS, REGIONS, keys_in, operations

MOMENTS = 0.04


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A new seed each time, which pytest shows with a failure; return it here to repeat one."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed} of {request.node.name}")
    return seed


class Killings:
    """Starts writers on one table, kills them, and holds what is left against what they said."""

    def __init__(self, server: Server, path: str, seed: int) -> None:
        self._server = server
        self._path = path
        self._chance = random.Random(seed)
        self._watch = Watch(REGIONS)
        self._writer = 0
        self.acknowledged = 0
        self.in_flight = 0

    def kill(self, writers: int) -> None:
        seed = self._chance.randrange(1 << 32)
        children: dict[int, Child] = {}
        for _ in range(writers):
            self._writer += 1
            children[self._writer] = self._server.start(
                "write_until_killed", path=self._path, seed=seed, writer=self._writer
            )
        for child in children.values():
            child.wait_for_report("op")
        for child in children.values():
            time.sleep(self._chance.uniform(0, MOMENTS))
            child.kill()
        self._check(seed, children)

    def _check(self, seed: int, children: dict[int, Child]) -> None:
        acknowledged: dict[int, dict[int, int]] = {}
        issued = {}
        for writer, child in children.items():
            reports = child.reports()
            for operation in islice(operations(seed, writer), len(reports) + 1):
                issued[operation.number] = operation
            for report in reports:
                sequences = {int(region): last for region, last in report["sequences"].items()}
                acknowledged[report["op"]] = sequences
        before = [dict(replay.rows) for replay in self._watch.replays]
        with ev.open(self._path) as db:
            news = self._watch.check(db.store)
        wrong = check_history(acknowledged, issued, before, news)
        assert not wrong, "\n".join(wrong[:20])
        self.acknowledged += len(acknowledged)
        written = {change["after"]["op"] for new in news for change in new if change["after"]}
        self.in_flight += len(written - acknowledged.keys())

    def kill_often(self, times: int, writers: int) -> None:
        """So often that some kill comes between a commit and its acknowledgement."""
        for _ in range(times):
            self.kill(writers)
        assert self.acknowledged > 40
        assert self.in_flight > 0, "no kill came between a commit and its acknowledgement"
        with ev.open(self._path) as db:
            check(db.store)


@pytest.mark.parametrize("run", range(3))
def test_a_killed_writer_leaves_what_it_acknowledged_and_nothing_torn(
    server: Server,
    path: str,
    seed: int,
    run: int,
    proof: Prove,
    request: pytest.FixtureRequest,
) -> None:
    killings = Killings(server, path, seed)
    kills = 200 if request.config.getoption("--long") else 20
    killings.kill_often(kills, writers=1)
    proof("a writer killed", f"{kills} kills")


@pytest.mark.parametrize("run", range(2))
def test_two_writers_of_one_table_killed_together_leave_nothing_torn(
    server: Server,
    path: str,
    seed: int,
    run: int,
    proof: Prove,
    request: pytest.FixtureRequest,
) -> None:
    killings = Killings(server, path, seed)
    kills = 100 if request.config.getoption("--long") else 20
    killings.kill_often(kills, writers=2)
    proof("two writers killed", f"{2 * kills} kills")


@pytest.mark.parametrize("commits", [1, 2, 3, 4])
def test_a_writer_killed_between_regions_leaves_whole_regions(
    server: Server, path: str, commits: int
) -> None:
    rows = [{"id": key, "op": 1, "text": "x" * 50} for key in range(KEYS)]
    child = server.start("die_after_commits", path=path, rows=rows, commits=commits)
    assert child.ends_within(30)
    assert child.reports() == []
    with ev.open(path) as db:
        watch = check(db.store)
        written = [set(replay.rows) for replay in watch.replays]
    wanted = [set(keys_in(region, KEYS)) for region in range(REGIONS)]
    assert written == wanted[:commits] + [set()] * (REGIONS - commits)


@pytest.mark.parametrize("calls", [1, 3])
def test_a_writer_killed_in_an_observer_before_the_write_leaves_nothing(
    server: Server, path: str, calls: int
) -> None:
    rows = [{"id": key, "op": 1, "text": "x"} for key in range(KEYS)]
    child = server.start("die_in_observer", path=path, rows=rows, moment="before", calls=calls)
    assert child.ends_within(30)
    with ev.open(path) as db:
        assert check(db.store).rows == {}


def test_a_writer_killed_in_an_observer_after_the_write_leaves_all_of_it(
    server: Server, path: str
) -> None:
    rows = [{"id": key, "op": 1, "text": "x"} for key in range(KEYS)]
    child = server.start("die_in_observer", path=path, rows=rows, moment="after", calls=1)
    assert child.ends_within(30)
    assert child.reports() == []
    with ev.open(path) as db:
        assert check(db.store).rows == {row["id"]: row for row in rows}


def test_a_writer_killed_in_its_transaction_lets_the_next_one_write(
    server: Server, path: str, tmp_path: Path
) -> None:
    child = server.start("hold", path=path, key=1, release=str(tmp_path / "never"))
    child.wait_for_report("holding")
    child.kill()
    rows = [{"id": 1, "op": 2, "text": "next"}]
    server.start("put", path=path, rows=rows).result(seconds=20)
    with ev.open(path) as db:
        assert check(db.store).rows == {1: rows[0]}


@pytest.fixture
def few_readers(monkeypatch: pytest.MonkeyPatch) -> int:
    """Who opens an environment first says how many readers it has room for."""
    monkeypatch.setattr(opening, "MAX_READERS", 20)
    return 20


@pytest.fixture
def filled(few_readers: int, path: str) -> Any:
    with ev.open(path) as db:
        db.table("t").put([{"id": key, "op": 1, "text": "x" * 100} for key in range(KEYS)])
        yield db


def test_a_hundred_killed_readers_use_up_no_reader_slots(
    server: Server, path: str, few_readers: int, filled: ev.Database
) -> None:
    for _ in range(10):
        readers = [server.start("read_until_killed", path=path) for _ in range(10)]
        for reader in readers:
            reader.wait_for_report("reading")
        for reader in readers:
            reader.kill()
    scans = [filled.table("t").batches(batch_rows=10) for _ in range(few_readers - 2)]
    assert all(next(scan).num_rows == 10 for scan in scans)


def test_readers_beyond_the_slots_are_told_so(few_readers: int, filled: ev.Database) -> None:
    scans = [filled.table("t").batches(batch_rows=10) for _ in range(few_readers + 1)]
    with pytest.raises(ev.errors.DatabaseError, match="readers at once"):
        list(map(next, scans))


def churn(table: ev.Table, times: int) -> None:
    """Replace every row again and again; the log is trimmed, so that pages come free."""
    for _ in range(times):
        table.put([{"id": key, "op": 2, "text": "y" * 100} for key in range(KEYS)])
        table.trim()


def pages(db: ev.Database) -> int:
    environments: list[lmdb.Environment] = [e.lmdb for e in db.store._regions.values()]
    return sum(int(one.info()["last_pgno"]) for one in environments)


def test_killed_readers_keep_no_pages_once_the_database_is_opened_anew(
    server: Server, path: str, filled: ev.Database
) -> None:
    table = filled.table("t")
    readers = [server.start("read_until_killed", path=path) for _ in range(3)]
    for reader in readers:
        reader.wait_for_report("reading")
    churn(table, 2)
    for reader in readers:
        reader.kill()
    server.start("get", path=path, key=1, readonly=True).result()
    churn(table, 10)
    settled = pages(filled)
    churn(table, 30)
    assert pages(filled) <= settled * 1.2


def test_killed_readers_keep_no_pages_from_a_writer_that_stays_open(
    server: Server, path: str, filled: ev.Database
) -> None:
    table = filled.table("t")
    reader = server.start("read_until_killed", path=path)
    reader.wait_for_report("reading")
    churn(table, 2)
    reader.kill()
    time.sleep(1.5)  # the store may look for dead readers every second
    churn(table, 10)
    settled = pages(filled)
    churn(table, 30)
    assert pages(filled) <= settled * 1.2
