"""No room: a clear error, nothing torn, reads go on, and writes too once there is room."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import lmdb
import pytest
from click.testing import CliRunner

import everview as ev
from everview.cli.main import main
from everview.errors import PartialWrite, StoreFull, WriteError
from everview.stores.base import WORK
from everview.stores.embedded import gate, syncing
from everview.stores.embedded.environment import Environment
from everview.stores.embedded.lmdb_errors import write_error

from .calls import Calls, FailingSync
from .invariants import Change, check, check_history
from .processes import Server
from .workload import (
    COLUMNS,
    KEYS,
    REGIONS,
    Operation,
    Row,
    keys_in,
    make,
    operations,
    region_of_key,
)

SMALL_MAP = 1 << 20


@pytest.mark.parametrize("regions", [1, 4])
def test_files_that_may_not_grow_give_store_full_and_nothing_torn(
    server: Server, tmp_path: Path, regions: int
) -> None:
    path, seed = str(tmp_path / "full.ev"), 7
    make(path, regions)
    reports = server.start("fill", path=path, seed=seed, limit=600_000).result()

    stopped = next(report for report in reports if "full" in report or "partial" in report)
    number = stopped["full" if "full" in stopped else "partial"]
    if "full" in stopped:
        assert path in stopped["message"]
        assert "make room" in stopped["message"]
    else:
        assert stopped["cause"] == "StoreFull"
        assert regions > 1
    acknowledged = {report["op"]: report["sequences"] for report in reports if "op" in report}
    assert len(acknowledged) > 5
    assert 999 in acknowledged, "it writes again when there is room"
    assert {r["error"] for r in reports if "again" in r} <= {"StoreFull", "PartialWrite"}
    told = next(report for report in reports if "rows" in report)
    assert told["rows"] > 0, "it reads while it can't write"

    issued = {operation.number: operation for operation in islice(operations(seed, 0), number)}
    issued[999] = Operation(999, False, issued[number].keys, "room again")
    known = {op: {int(r): last for r, last in s.items()} for op, s in acknowledged.items()}
    with ev.open(path) as db:
        watch = check(db.store)
        assert check_history(known, issued, [{}] * regions, all_changes(db)) == []
        assert all(watch.rows[key]["op"] == 999 for key in issued[number].keys)


def all_changes(db: ev.Database) -> list[list[Change]]:
    """The whole log of each region."""
    return [
        [change for batch in db.store.changes("t", region) for change in batch.to_pylist()]
        for region in db.table("t").log()
    ]


def rows_of(op: int, keys: list[int], size: int = 500) -> list[Row]:
    return [{"id": key, "op": op, "text": "x" * size} for key in keys]


def put_until_full(table: ev.Table, keys: list[int]) -> tuple[int, WriteError]:
    """Put the rows again and again; returns the operation that failed, and how."""
    for op in range(1, 1000):
        try:
            table.put(rows_of(op, keys))
        except WriteError as error:
            return op, error
    raise AssertionError("the disk is still not full")


def test_a_full_disk_gives_store_full_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    path = str(small_disk / "test.ev")
    filler = small_disk / "filler"
    filler.write_bytes(bytes(20 << 20))
    make(path)
    keys = keys_in(0, 300)
    with ev.open(path) as db:
        table = db.table("t")
        op, error = put_until_full(table, keys)
        assert isinstance(error, StoreFull)
        assert "make room" in str(error)
        assert check(db.store).rows[keys[0]]["op"] == op - 1
        assert table.get(keys[0]) == rows_of(op - 1, keys)[0]
        filler.unlink()
        table.put(rows_of(op, keys))
        assert check(db.store).rows[keys[0]]["op"] == op


def test_a_write_of_many_regions_on_a_full_disk_tells_which_are_written(small_disk: Path) -> None:
    path = str(small_disk / "test.ev")
    (small_disk / "filler").write_bytes(bytes(20 << 20))
    make(path)
    with ev.open(path) as db:
        op, error = put_until_full(db.table("t"), list(range(KEYS)))
        applied = error.applied if isinstance(error, PartialWrite) else {}
        rows = check(db.store).rows
        written = {region_of_key(key) for key, row in rows.items() if row["op"] == op}
        assert written == set(applied)
        assert {region: db.store.log("t")[region].last for region in applied} == applied


def test_on_a_full_disk_a_table_is_created_wholly_or_not(server: Server, small_disk: Path) -> None:
    path, filler = str(small_disk / "test.ev"), small_disk / "filler"
    make(path)
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(40 << 20))
    refused, left = server.start("create_tables", path=path, count=100).result()
    assert refused["error"] == "StoreFull"
    assert left["rows"] == [0] * len(left["tables"])
    filler.unlink()
    with ev.open(path) as db:
        assert db.tables() == left["tables"]
        table = db.create_table("roomy", COLUMNS, "id", regions=1)
        table.put(rows_of(1, [1]))
        assert table.get(1) == rows_of(1, [1])[0]


def test_a_full_map_grows_by_itself(tmp_path: Path) -> None:
    path = str(tmp_path / "small.ev")
    make(path, map_size=SMALL_MAP)
    with ev.open(path, map_size=SMALL_MAP) as db:
        for op in range(10):
            db.table("t").put(rows_of(op, list(range(KEYS))))
        assert check(db.store).rows[1]["op"] == 9
        assert sum(region.bytes for region in db.table("t").status()) > 4 * SMALL_MAP


def test_one_write_larger_than_the_map_grows_it(tmp_path: Path) -> None:
    path = str(tmp_path / "small.ev")
    make(path, regions=1, map_size=SMALL_MAP)
    with ev.open(path, map_size=SMALL_MAP) as db:
        report = db.table("t").put(rows_of(1, list(range(KEYS)), size=5000))
        assert report.rows == KEYS
        assert len(check(db.store).rows) == KEYS


def test_a_map_that_must_grow_under_an_open_scan_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "PATIENCE", 0.2)
    path = str(tmp_path / "small.ev")
    make(path, regions=1, map_size=SMALL_MAP)
    with ev.open(path, map_size=SMALL_MAP) as db:
        table = db.table("t")
        table.put(rows_of(1, [1, 2, 3]))
        scan = table.batches(batch_rows=1)
        next(scan)
        with pytest.raises(StoreFull, match="finish open scans"):
            table.put(rows_of(2, list(range(KEYS)), size=5000))
        assert [row["op"] for batch in scan for row in batch.to_pylist()] == [1, 1]
        table.put(rows_of(2, list(range(KEYS)), size=5000))
        assert check(db.store).rows[1]["op"] == 2


def test_a_map_grown_by_another_process_is_followed_by_readers_and_writers(
    server: Server, tmp_path: Path
) -> None:
    path, go = str(tmp_path / "small.ev"), tmp_path / "go"
    make(path, regions=1, map_size=SMALL_MAP)
    with ev.open(path, map_size=SMALL_MAP) as db:
        table = db.table("t")
        table.put(rows_of(1, [1]))
        server.start("put", path=path, rows=rows_of(2, list(range(KEYS)), 5000)).result()
        assert table.get(1) == rows_of(2, [1], 5000)[0]
        assert table.to_arrow().num_rows == KEYS
        table.put(rows_of(3, [1]))
        assert check(db.store).rows[1]["op"] == 3

    small = str(tmp_path / "other.ev")
    make(small, regions=1, map_size=SMALL_MAP)
    with ev.open(small, map_size=SMALL_MAP) as db:
        db.table("t").put(rows_of(1, [1]))
        reader = server.start("get", path=small, key=1, readonly=True, go=str(go))
        writer = server.start("put", path=small, rows=rows_of(9, [1]), go=str(go))
        reader.wait_for_report("row")
        writer.wait_for_report("rows")
        for op in range(2, 5):
            db.table("t").put(rows_of(op, list(range(KEYS)), size=5000))
        go.touch()
        writer.result()
        assert reader.result()[-1]["rows"] == KEYS
        assert check(db.store).rows[1]["op"] == 9


def test_a_process_with_a_small_map_reads_and_writes_what_grew_meanwhile(
    server: Server, tmp_path: Path
) -> None:
    path = str(tmp_path / "small.ev")
    make(path, regions=1, map_size=SMALL_MAP)
    with ev.open(path, map_size=SMALL_MAP) as db:
        table = db.table("t")
        for op in range(1, 4):
            rows = rows_of(op, list(range(KEYS)), size=3000)
            server.start("put", path=path, rows=rows).result()
            assert table.put(rows_of(op, [KEYS + op])).rows == 1
            assert table.get(1) == rows[1]
        check(db.store)


def test_processes_that_all_meet_full_maps_lose_nothing(server: Server, tmp_path: Path) -> None:
    path, tiny, writers, count = str(tmp_path / "small.ev"), 1 << 17, range(3), 40
    make(path, map_size=tiny)
    children = [
        server.start("write_many", path=path, seed=3, writer=w, count=count, map_size=tiny)
        for w in writers
    ]
    acknowledged = {
        report["op"]: {int(region): last for region, last in report["sequences"].items()}
        for child in children
        for report in child.result()
    }
    issued = {o.number: o for w in writers for o in islice(operations(3, w), count)}
    assert acknowledged.keys() == issued.keys()
    with ev.open(path, map_size=tiny) as db:
        check(db.store)
        assert min(region.bytes for region in db.table("t").status()) > 2 * tiny
        assert check_history(acknowledged, issued, [{}] * REGIONS, all_changes(db)) == []


def test_a_full_map_of_the_catalog_grows_too(tmp_path: Path) -> None:
    with ev.open(tmp_path / "small.ev", create=True, map_size=1 << 17) as db:
        columns = {f"a_rather_long_name_of_column_{n}": "BIGINT" for n in range(100)}
        for n in range(30):
            db.create_table(f"t{n}", columns, "a_rather_long_name_of_column_0", regions=1)
        assert len(db.tables()) == 30


def test_a_full_map_does_not_stop_consumers_nor_trimming(tmp_path: Path) -> None:
    path = str(tmp_path / "small.ev")
    make(path, regions=1, map_size=1 << 18)
    with ev.open(path, map_size=1 << 18) as db:
        table = db.table("t")
        for n in range(1000):
            table.register(f"consumer {n} " + "x" * 240)
        table.put(rows_of(1, [1]))
        table.acknowledge("consumer 0 " + "x" * 240, {0: 1})
        assert len(table.status()[0].consumers) == 1000
        for n in range(1000):
            table.unregister(f"consumer {n} " + "x" * 240)
        assert table.trim() == 1


def test_a_lease_that_finds_no_room_for_its_file_is_store_full(
    db: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def full(path: str | Path, *given: int) -> int:
        if WORK in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(path, *given)

    monkeypatch.setattr(os, "open", full)
    with (
        pytest.raises(StoreFull, match=f"{WORK}.* No space left on device; make room"),
        db.store.leases.hold(WORK, 1.0, print),
    ):
        pass


def test_a_sync_that_fails_is_told_and_what_was_written_is_there(db: ev.Database) -> None:
    environment = db.store.catalog.environment
    environment.lmdb = FailingSync(environment.lmdb, Calls(1))
    with pytest.raises(WriteError, match="could not be synced: sync 1 fails"):
        db.create_table("t", COLUMNS, "id", regions=1)
    assert db.tables() == ["t"]
    assert not environment.sync(until=0.0), "it is still to be synced"
    assert environment.sync()


def test_a_sync_that_fails_in_the_background_shows_in_the_status(
    db: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of durability 'interval' nobody waits for it; the process that tells may be another one."""
    monkeypatch.setattr(syncing, "SYNC_SECONDS", 0.01)
    table = db.create_table("t", COLUMNS, "id", regions=1)
    region = db.store._all_regions(db.store._layout("t"))[0].environment
    region.lmdb = FailingSync(region.lmdb, Calls(1, for_good=True))
    assert db.failed_syncs() == {}
    table.put({"id": 1})
    wait_until(lambda: region.path in db.failed_syncs())
    assert "fails" in db.failed_syncs()[region.path]
    shown = CliRunner().invoke(main, ["status", db.path])
    assert f"{region.path} can't be synced and may not survive a crash: sync" in shown.output
    region.lmdb = region.lmdb.environment
    wait_until(lambda: not db.failed_syncs())


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_a_partial_write_says_what_stays_and_that_the_rest_was_not_written(
    db: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = db.create_table("t", COLUMNS, "id", regions=REGIONS)
    table.put(rows_of(1, list(range(KEYS))))
    writing = Environment.writing

    def full(one: Environment) -> object:
        if one.path.endswith("/2"):
            raise write_error(lmdb.DiskError("No space left on device"), one.path)
        return writing(one)

    with monkeypatch.context() as patch:
        patch.setattr(Environment, "writing", full)
        with pytest.raises(PartialWrite) as raised:
            table.put(rows_of(2, list(range(KEYS))))
        with pytest.raises(StoreFull, match=r"/2 could not be written and is as it was before: No"):
            table.put(rows_of(2, keys_in(2, 1)))
    message = str(raised.value)
    assert "region 0, 1 are written and stay, the other rows of this write are not" in message
    assert "remains" not in message
    assert "make room and write again. Repeat the write to complete it." in message
    ops = {region_of_key(row["id"]): row["op"] for row in table.scan()}
    assert ops == {0: 2, 1: 2, 2: 1, 3: 1}
    assert sorted(raised.value.applied) == [0, 1]
    table.put(rows_of(2, list(range(KEYS))))
    assert {row["op"] for row in table.scan()} == {2}
