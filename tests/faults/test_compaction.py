"""Compaction beside everyone else, and killed at every step: nothing is lost, nothing is torn."""

from __future__ import annotations

import random
import time
from itertools import count, islice
from pathlib import Path

import pytest

import everview as ev
from tests.proofs import Prove
from tests.shards import new_shard

from .invariants import check, check_history
from .processes import Server
from .test_full import all_changes
from .workload import REGIONS, make, operations


def test_who_is_killed_at_any_step_of_a_compaction_has_done_no_harm(
    server: Server, tmp_path: Path, proof: Prove
) -> None:
    path = str(tmp_path / "test.ev")
    make(path, regions=1)
    with ev.open(path) as db:
        table = db.table("t")
        for n in range(5):
            table.put([{"id": key, "op": n, "text": "x" * 50} for key in range(n * 9, 400)])
        rows = list(table.scan())
    for step in count(1):
        child = server.start("compact", path=path, die_at=step)
        assert child.ends_within(30)
        with ev.open(path) as db:
            assert list(db.table("t").scan()) == rows
            check(db.store)
        if child.reports():
            break
        with ev.open(path) as db:  # makes something to compact anew, in a file that has holes
            db.table("t").put([{"id": key, "op": step, "text": "y" * 50} for key in range(200)])
            rows = list(db.table("t").scan())
    assert step > 10
    proof("compaction, killed", f"at each of {step - 1} steps", lost=0)


def test_nothing_is_lost_beside_compactions(
    server: Server, tmp_path: Path, request: pytest.FixtureRequest, proof: Prove
) -> None:
    """Writers, readers with pins, and what a maintainer does; compactions that are killed."""
    is_long = request.config.getoption("--long")
    path, seed, writes = str(tmp_path / "test.ev"), 11, 600 if is_long else 60
    chance = random.Random(seed)
    make(path)
    with ev.open(path) as db:
        new_shard(db.store, "s", 0)
    writers = [
        server.start("write_many", path=path, seed=seed, writer=w, count=writes) for w in range(2)
    ]
    maintainer = server.start("epochs", path=path, number=writes)
    readers = [server.start("pin_on", path=path, seed=n) for n in range(2)]
    compactions = [server.start("compact_on", path=path)]
    kills = 0
    while any(one.status(poll=True) is None for one in (*writers, maintainer)):
        time.sleep(chance.random() / 5)
        if compactions[-1].reports():
            compactions[-1].kill()
            kills += 1
            compactions.append(server.start("compact_on", path=path))
    for reader in readers:
        assert reader.wait_for_report("rows")
        reader.kill()
    compactions[-1].wait_for_report("given_back")
    compactions[-1].kill()
    reports = [report for one in compactions for report in one.reports()]
    assert not any(report["skipped"] for report in reports)
    assert sum(report["given_back"] for report in reports) > 0
    acknowledged = {
        report["op"]: {int(region): last for region, last in report["sequences"].items()}
        for writer in writers
        for report in writer.result()
    }
    issued = {o.number: o for w in range(2) for o in islice(operations(seed, w), writes)}
    assert acknowledged.keys() == issued.keys()
    assert [report["epoch"] for report in maintainer.result()] == list(range(1, writes + 1))
    with ev.open(path) as db:
        check(db.store)
        assert check_history(acknowledged, issued, [{}] * REGIONS, all_changes(db)) == []
        assert db.store.states.shard("s", 0).output(writes) is not None
        values = [value for batch in db.store.states.shard("s", 0).values() for value in batch]
    assert values == expected_state(writes)
    proof("compaction beside writers", f"{len(reports)} runs, {kills} kills", lost=0)


def expected_state(epochs: int) -> list[bytes]:
    state: dict[bytes, bytes] = {}
    for epoch in range(1, epochs + 1):
        for n in range(300):
            state[b"%d" % (epoch * n % 500)] = b"%d " % epoch * 50
    return [state[key] for key in sorted(state)]


def test_more_tables_than_a_process_may_have_files_are_used_in_turn(
    server: Server, tmp_path: Path
) -> None:
    """300 tables of two regions would have 1,800 files open."""
    tables, files = 300, 512
    child = server.start("many_tables", path=str(tmp_path / "t.ev"), tables=tables, files=files)
    opened, read, failed = child.result()
    assert opened["open"] < files
    assert read["sums"] == [10 * (n + 1) for n in range(tables)]
    assert read["status"] == tables
    assert failed["error"] == "DatabaseError", "all at once can't be"
    assert f"this process may have {files} files open" in failed["message"]
    assert "ulimit -n" in failed["message"]
