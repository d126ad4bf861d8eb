"""LMDB environments of a process: one for each directory, as long as it is that one."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

import everview as ev
from everview.errors import DatabaseClosed, WriteError
from everview.run.workers import open_store
from everview.stores.embedded import environment, store


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
            store = open_store(str(path), "never", True)
            assert store is open_store(str(path), "never", True)
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

    with environment._unforked:  # held, syncs can't go on
        syncing, closing = Thread(target=sync), Thread(target=db.close)
        syncing.start()
        while region._unsynced_since is not None:
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
        db.store.shard("s", 0, create=True)
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
