"""Many processes and threads on one table: nothing lost, nobody waits without need."""

from __future__ import annotations

import gc
import os
import threading
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest

import everview as ev
from everview.errors import DatabaseClosed, EverviewError, LogError, TableNotFound
from everview.intake import rows_to_arrow
from everview.stores.embedded import EmbeddedStore
from tests.shards import new_shard

from .invariants import check, check_history
from .processes import Child, Server
from .workload import COLUMNS, KEYS, REGIONS, Row, keys_in, operations

PROMPTLY = 10.0


def put_row(key: int, op: int) -> Row:
    return {"id": key, "op": op, "text": "x"}


def test_writers_of_overlapping_keys_lose_nothing(server: Server, path: str) -> None:
    writers = range(4)
    children = [
        server.start("write_many", path=path, seed=1, writer=writer, count=30) for writer in writers
    ]
    acknowledged = {
        report["op"]: {int(region): last for region, last in report["sequences"].items()}
        for child in children
        for report in child.result()
    }
    issued = {o.number: o for w in writers for o in islice(operations(1, w), 30)}
    assert acknowledged.keys() == issued.keys()
    with ev.open(path) as db:
        check(db.store)
        news = [
            [change for batch in db.store.changes("t", region) for change in batch.to_pylist()]
            for region in range(REGIONS)
        ]
    assert check_history(acknowledged, issued, [{}] * REGIONS, news) == []
    puts = sum(len(o.keys) for o in issued.values() if not o.delete)
    assert puts == sum(change["op"] == "put" for new in news for change in new)


def test_writers_of_disjoint_keys_write_all_of_them(server: Server, path: str) -> None:
    writers = 4
    for key in range(0, KEYS, 500):
        rows = [[put_row(key + n, writer) for n in range(writer, 500, 4)] for writer in range(4)]
        children = [server.start("put", path=path, rows=part) for part in rows]
        for child in children:
            child.result()
    with ev.open(path) as db:
        found = check(db.store).rows
        changes = sum(held.last for held in db.table("t").log().values())
    assert {key: row["op"] for key, row in found.items()} == {k: k % writers for k in range(KEYS)}
    assert changes == KEYS


@pytest.fixture
def held(server: Server, path: str, tmp_path: Path) -> Child:
    """A writer that stays in its transaction in region 0, until the file `release` is there."""
    with ev.open(path) as db:
        db.table("t").put([put_row(key, 0) for key in range(100)])
    child = server.start("hold", path=path, key=keys_in(0)[0], release=str(tmp_path / "release"))
    assert child.wait_for_report("holding") == {"holding": 0}
    return child


def test_writers_of_other_regions_do_not_wait_for_a_writer(
    server: Server, path: str, tmp_path: Path, held: Child
) -> None:
    rows = [put_row(key, 5) for region in (1, 2, 3) for key in keys_in(region, 3)]
    server.start("put", path=path, rows=rows).result(PROMPTLY)
    assert held.status(poll=True) is None

    waiting = server.start("put", path=path, rows=[put_row(keys_in(0, 2)[1], 5)])
    assert not waiting.ends_within(0.5), "writers of one region take turns"
    (tmp_path / "release").touch()
    waiting.result(PROMPTLY)
    held.result(PROMPTLY)
    with ev.open(path) as db:
        rows_now = check(db.store).rows
    assert rows_now[keys_in(0)[0]]["text"] == "held"
    assert all(rows_now[row["id"]] == row for row in rows)


def test_a_reader_that_has_the_table_open_is_not_blocked_by_a_writer(
    server: Server, path: str, tmp_path: Path
) -> None:
    with ev.open(path) as db:
        table, key = db.table("t"), keys_in(0)[0]
        table.put(put_row(key, 0))
        child = server.start("hold", path=path, key=key, release=str(tmp_path / "release"))
        child.wait_for_report("holding")
        assert table.get(key) == put_row(key, 0)
        assert table.to_arrow().num_rows == 1
        assert child.status(poll=True) is None
        (tmp_path / "release").touch()
        child.result(PROMPTLY)
        assert table.get(key) == {"id": key, "op": 1, "text": "held"}


def test_a_fresh_readonly_reader_is_not_blocked_by_a_writer(
    server: Server, path: str, held: Child
) -> None:
    key = keys_in(0)[0]
    found = server.start("get", path=path, key=key, readonly=True).result(PROMPTLY)
    assert found == [{"row": put_row(key, 0), "rows": 100}]
    assert held.status(poll=True) is None


def test_a_handle_open_before_a_fork_works_in_the_child_and_the_parent(
    server: Server, path: str
) -> None:
    reports = server.start("fork_after_open", path=path).result(30)
    child, parent = (next(r for r in reports if who in r) for who in ("child", "parent"))
    assert child["child"]["op"] == 1
    assert (parent["rows"], parent["status"]) == (50, 0)
    with ev.open(path) as db:
        watch = check(db.store)
        assert sum(replay.last for replay in watch.replays) == 101


def test_a_child_that_drops_a_scan_it_inherited_does_not_spoil_its_parents(
    server: Server, path: str
) -> None:
    reports = server.start("fork_in_scan", path=path).result(30)
    region = len(keys_in(0, KEYS))
    assert reports[0]["old"] >= region, "the scan of the region reads one committed state"


def test_threads_share_one_database(path: str) -> None:
    failures: list[BaseException] = []
    with ev.open(path) as db:
        table = db.table("t")

        def work(thread: int) -> None:
            try:
                for n in range(40):
                    table.put([put_row(key, thread * 100 + n) for key in range(n, n + 50)])
                    table.delete([n])
                    assert table.get(1999) is None
                    assert list(table.scan(limit=5)) is not None
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        watch = check(db.store)
        ops = [op for batch in table.changes() for op in batch.column("op").to_pylist()]
        assert ops.count("put") == 6 * 40 * 50
        assert set(watch.rows) >= set(range(40, 89))


def test_a_table_dropped_by_another_process_is_not_found(server: Server, path: str) -> None:
    with ev.open(path) as db:
        table = db.table("t")
        table.put(put_row(1, 1))
        server.start("drop", path=path).result()
        for use in (
            lambda: table.get(1),
            lambda: table.put(put_row(1, 2)),
            lambda: table.delete([1]),
            lambda: table.to_arrow(),
            lambda: list(table.changes()),
            lambda: table.snapshot(),
            lambda: db.table("t"),
        ):
            with pytest.raises(TableNotFound):
                use()


def test_a_scan_goes_on_when_another_process_drops_the_table(server: Server, path: str) -> None:
    with ev.open(path) as db:
        table = db.table("t")
        table.put([put_row(key, 1) for key in range(KEYS)])
        scan = table.batches(batch_rows=10)
        found = next(scan).num_rows
        server.start("drop", path=path).result()
        assert found + sum(batch.num_rows for batch in scan) == KEYS


def test_a_scan_fails_clearly_when_its_own_process_drops_the_table(path: str) -> None:
    with ev.open(path) as db:
        table = db.table("t")
        table.put([put_row(key, 1) for key in range(KEYS)])
        scan = table.batches(batch_rows=10, ordered=False)
        found = next(scan).num_rows
        db.drop_table("t")
        with suppress(DatabaseClosed):
            assert found + sum(batch.num_rows for batch in scan) == KEYS


def test_a_scan_fails_clearly_when_its_database_is_closed(path: str) -> None:
    with ev.open(path) as db:
        db.table("t").put([put_row(key, 1) for key in range(KEYS)])
        scan = db.table("t").batches(batch_rows=10, ordered=False)
        found = next(scan).num_rows
    with suppress(DatabaseClosed):
        assert found + sum(batch.num_rows for batch in scan) == KEYS


def test_the_disk_space_of_a_dropped_table_is_freed_by_processes_that_stay(
    server: Server, path: str
) -> None:
    with ev.open(path) as db:
        table = db.table("t")
        table.put([put_row(key, 1) for key in range(KEYS)])
        server.start("drop", path=path).result()
        with pytest.raises(TableNotFound):
            table.get(1)
        db.create_table("other", COLUMNS, "id").put(put_row(1, 1))
        gc.collect()
        assert [name for name in deleted_files_held() if name.startswith(path)] == []


def deleted_files_held() -> list[str]:
    """Files that this process has open although they were removed."""
    held = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            held.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            continue
    return [name for name in held if name.endswith("data.mdb (deleted)")]


def test_a_table_created_again_is_empty_and_an_old_handle_uses_the_new_one(
    server: Server, path: str
) -> None:
    with ev.open(path) as db:
        table = db.table("t")
        table.put([put_row(key, 1) for key in range(100)])
        server.start("drop", path=path, again=COLUMNS).result()
        assert table.get(1) is None
        assert list(table.changes()) == []
        table.put(put_row(5, 2))
        assert check(db.store).rows == {5: put_row(5, 2)}


def test_a_table_created_again_with_other_columns_refuses_rows_of_the_old_ones(
    server: Server, path: str
) -> None:
    """A put prepares rows by the definition it saw; a new one may be there when it writes."""
    with ev.open(path) as db:
        prepared = rows_to_arrow(db.table("t").schema, [{"id": 1, "op": 2, "text": "x"}])
        again = {"id": "BIGINT", "other": "BIGINT", "text": "STRING"}
        server.start("drop", path=path, again=again).result()
        with pytest.raises(EverviewError):
            db.store.put("t", prepared)
        assert db.table("t").get(1) is None


def test_a_snapshot_of_a_table_that_was_created_again_is_gone(server: Server, path: str) -> None:
    with ev.open(path) as db:
        db.table("t").put([put_row(key, 1) for key in range(4)])
        snapshot = db.table("t").snapshot()
        server.start("drop", path=path, again=COLUMNS).result()
        db.table("t").put([put_row(key, 2) for key in range(10, 50)])
        with pytest.raises((LogError, TableNotFound)):
            pytest.fail(f"it reads {[batch.to_pylist() for batch in snapshot.scan()]}")


def test_a_readonly_handle_goes_on_when_its_process_opens_the_database_for_writing(
    path: str,
) -> None:
    with ev.open(path) as db:
        db.table("t").put(put_row(1, 1))
    reader = EmbeddedStore(path, readonly=True)
    assert reader.get_row("t", 1) == put_row(1, 1)
    with ev.open(path) as db:
        db.table("t").put(put_row(1, 2))
        assert reader.tables() == ["t"]
        assert reader.get_row("t", 1) == put_row(1, 2)
    reader.close()


def test_a_readonly_handle_refuses_writes_with_a_typed_error(path: str) -> None:
    reader = ev.Database(EmbeddedStore(path, readonly=True))
    for write in (
        lambda: reader.table("t").put(put_row(1, 1)),
        lambda: reader.table("t").trim(),
        lambda: reader.create_table("other", COLUMNS, "id"),
        lambda: reader.drop_table("t"),
    ):
        with pytest.raises(EverviewError):
            write()
    assert reader.tables() == ["t"]
    reader.close()


def test_a_fork_while_another_thread_opens_regions_leaves_a_child_that_works(
    server: Server, path: str
) -> None:
    reports = server.start("fork_with_lock_held", path=path).result(30)
    assert reports == [{"child": 1}, {"status": 0}]


def test_a_waiting_writer_gets_its_turn_soon_after_the_other_ends(
    server: Server, path: str, tmp_path: Path, held: Child
) -> None:
    waiting = server.start("put", path=path, rows=[put_row(keys_in(0)[0], 7)])
    time.sleep(0.2)
    held.kill()
    waiting.result(PROMPTLY)
    with ev.open(path) as db:
        assert check(db.store).rows[keys_in(0)[0]] == put_row(keys_in(0)[0], 7)


def test_a_store_that_nobody_closes_lets_go_of_its_files(path: str) -> None:
    def open_files() -> int:
        files = (os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd"))
        return sum("test.ev" in file for file in files)

    before = open_files()
    for _ in range(5):
        store = EmbeddedStore(path)
        store.scan("t")
        shard = new_shard(store, "s", 0)
        del store
        gc.collect()
        assert shard.size()[0] == 0, "who uses a shard uses its store"
        del shard
    gc.collect()
    assert open_files() == before
