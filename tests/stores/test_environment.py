"""LMDB environments of a process: one for each directory, as long as it is that one."""

from __future__ import annotations

import gc
import os
import resource
import shutil
import time
import weakref
from contextlib import ExitStack, suppress
from math import inf
from pathlib import Path
from threading import Event, Thread

import lmdb
import pyarrow as pa
import pytest

import everview as ev
from everview.errors import Damaged, DatabaseClosed, DatabaseError, WriteError
from everview.stores import shared_store
from everview.stores.embedded import EmbeddedStore, environment, process_locks, registry, store
from everview.stores.embedded.datafile import DataFile
from tests.shards import new_shard


def made(path: Path, row: int) -> ev.Database:
    db = ev.open(path, create=True, durability="never")
    db.create_table("t", {"id": "INT"}, "id", regions=1).put({"id": row})
    return db


def test_a_database_made_in_place_of_one_that_was_deleted_is_another(tmp_path: Path) -> None:
    path = tmp_path / "t.ev"
    old = made(path, 1)
    shutil.rmtree(path)
    with made(path, 2) as new:
        assert list(new.table("t").scan()) == [{"id": 2}]
        with pytest.raises(DatabaseClosed):
            old.table("t")
    with ev.open(path) as again:
        assert list(again.table("t").scan()) == [{"id": 2}]


def test_workers_have_a_database_that_was_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "t.ev"
    for row in (1, 2):
        with made(path, row):
            store = shared_store(str(path), True)
            assert store is shared_store(str(path), True)
            assert [batch.to_pylist() for batch in store.scan("t")] == [[{"id": row}]]
        shutil.rmtree(path)


def test_who_closes_waits_for_a_sync_that_has_begun(tmp_path: Path) -> None:
    db = ev.open(tmp_path / "t.ev", create=True)
    db.create_table("t", {"id": "INT"}, "id", regions=1).put({"id": 1})
    (region,) = db.store._regions.values()
    failed: list[BaseException] = []

    def sync() -> None:
        try:
            region.sync()
        except WriteError as error:
            failed.append(error)

    with process_locks.fork_lock:  # held, syncs can't go on
        syncing, closing = Thread(target=sync), Thread(target=db.close)
        syncing.start()
        while region._sync_schedule.unsynced_since is not None:
            time.sleep(0.001)
        closing.start()
        closing.join(0.1)
        assert closing.is_alive()
    syncing.join()
    closing.join()
    assert not failed
    with ev.open(tmp_path / "t.ev") as again:
        assert again.failed_syncs() == {}


def test_what_another_process_dropped_is_closed_when_nobody_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_LOOK_SECONDS", 0.0)
    with ev.open(tmp_path / "t.ev", create=True, durability="never") as db:
        for name in ("t", "u"):
            db.create_table(name, {"id": "INT"}, "id", regions=1).put({"id": 1})
        new_shard(db.store, "s", 0)
        reading = db.table("t").batches()
        next(reading)
        for gone in ("tables/000001", "state/s"):
            shutil.rmtree(tmp_path / "t.ev" / gone)
        assert list(db.table("u").scan()) == [{"id": 1}]
        assert all("/tables/000001/" in file for file in deleted_files(tmp_path))
        assert deleted_files(tmp_path), "they are being read"
        assert list(reading) == []
        assert not deleted_files(tmp_path)


def deleted_files(directory: Path) -> list[str]:
    """Files of a directory that are gone, and that this process has open."""
    found = []
    for file in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{file}"))
    return [file for file in found if file.startswith(str(directory)) and "(deleted)" in file]


def test_of_many_environments_the_maps_are_small_until_they_are_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "SMALL_MAP", 1 << 20)
    with ev.open(tmp_path / "t.ev", create=True, durability="never", map_size=1 << 24) as db:
        table = db.create_table("t", {"id": "INT", "text": "STRING"}, "id", regions=2)
        monkeypatch.setattr(registry, "MANY_MAPS", len(registry.registry._open) + 1)
        table.put([{"id": i, "text": ""} for i in range(20)])
        assert maps(db) == [1 << 24, 1 << 20]
        table.put([{"id": i, "text": "x" * 300_000} for i in range(20)])
        assert maps(db) == [1 << 24, 1 << 24]
        assert sum(len(row["text"]) for row in table.scan()) == 20 * 300_000


def maps(db: ev.Database) -> list[int]:
    """The sizes of the maps of regions, in the order in which they were opened."""
    return [region.lmdb.info()["map_size"] for region in db.store._regions.values()]


def test_too_many_files_are_told_with_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_most", lambda: inf)  # else room is made, or the limit raised
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ev.open(tmp_path / "t.ev", create=True, durability="never") as db:
        db.create_table("t", {"id": "INT"}, "id", regions=1).put({"id": 1})
        shard = new_shard(db.store, "s", 0)
        used = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, limits[1]))
        try:
            with ExitStack() as files:
                with suppress(OSError):
                    while True:
                        files.enter_context(open(os.devnull))
                for act in (
                    lambda: new_shard(db.store, "s", 1),
                    lambda: shard.apply(1, 1, lambda state: pa.table({})),
                ):
                    with pytest.raises(DatabaseError, match="files open"):
                        act()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_none_is_opened_while_another_is_being_closed(tmp_path: Path) -> None:
    """Else a new file that has the number of one that is gone may be taken for that."""
    with ev.open(tmp_path / "t.ev", create=True, durability="never") as db:
        gone = new_shard(db.store, "gone", 0).environment
        closing, goes_on = Event(), Event()

        class Slow:
            def __init__(self, opened: lmdb.Environment) -> None:
                self._opened = opened

            def close(self) -> None:
                closing.set()
                assert goes_on.wait(10)
                self._opened.close()

        gone.lmdb = Slow(gone.lmdb)
        dropping = Thread(target=db.store.states.drop, args=("gone",))
        dropping.start()
        assert closing.wait(10)
        opening = Thread(target=db.store.states.create, args=("new", [0]))
        opening.start()
        opening.join(0.1)
        assert opening.is_alive()
        goes_on.set()
        opening.join()
        dropping.join()
        assert list(db.store.states.shard("new", 0).values()) == []


def test_the_size_of_what_is_gone_is_told_as_gone(tmp_path: Path) -> None:
    with ev.open(tmp_path / "t.ev", create=True, durability="never") as db:
        shard = new_shard(db.store, "s", 0)
        shutil.rmtree(tmp_path / "t.ev" / "state")
        with pytest.raises(Damaged, match="is damaged or gone"):
            shard.size()


def test_a_store_that_nobody_closed_may_be_collected_while_another_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = EmbeddedStore(str(tmp_path / "lost.ev"), create=True)
    lost.itself = lost  # type: ignore[attr-defined]  # so that it goes when garbage is collected
    gone, check = weakref.ref(lost), DataFile.check
    del lost

    def collected(file: DataFile) -> None:
        gc.collect()
        check(file)

    def open_another() -> None:
        EmbeddedStore(str(tmp_path / "other.ev"), create=True).close()

    monkeypatch.setattr(DataFile, "check", collected)
    opening = Thread(target=open_another, daemon=True)
    opening.start()
    opening.join(10)
    assert not opening.is_alive()
    assert gone() is None
