"""A file system that can't be written: what is on it can be read, with readonly=True."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import everview as ev
from everview.errors import DatabaseError

from .workload import make


def test_a_database_on_a_read_only_file_system_can_be_read(small_disk: Path) -> None:
    path = str(small_disk / "test.ev")
    make(path)
    with ev.open(path) as db:
        db.table("t").put({"id": 1, "op": 1})
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with ev.open(path, readonly=True) as db, db.pin() as at:
        assert db.table("t").get(1) == at.table("t").get(1) == {"id": 1, "op": 1, "text": None}
        assert db.space().bytes > 0
        assert db.pins() == [], "its note can't be written"
    with pytest.raises(DatabaseError, match="Read-only file system; open it with readonly=True"):
        ev.open(path)
