"""LMDB environments of a process: one for each directory, as long as it is that one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import everview as ev
from everview.errors import DatabaseClosed
from everview.run.workers import open_store


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
