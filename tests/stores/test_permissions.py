"""Directories that may not be written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lmdb
import pytest

import everview as ev
from everview.errors import DatabaseError, NotADatabase
from everview.stores.embedded import environment

DENIED = PermissionError(13, os.strerror(13))


def test_a_database_that_may_not_be_written_says_what_reading_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: str, **_: Any) -> None:
        raise lmdb.Error(f"{path}: {os.strerror(13)}")

    ev.open(tmp_path / "shop.ev", create=True).close()
    monkeypatch.setattr(environment.lmdb, "open", denied)
    with pytest.raises(DatabaseError, match=r"Permission denied; also a reader writes .* a copy$"):
        ev.open(tmp_path / "shop.ev", readonly=True)


def test_a_directory_that_may_not_be_written_becomes_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = os.makedirs

    def denied(path: str, *given: Any, **named: Any) -> None:
        if path.endswith("tables"):
            raise DENIED
        made(path, *given, **named)

    monkeypatch.setattr(os, "makedirs", denied)
    with pytest.raises(NotADatabase, match=r"nothing can be written in .*: Permission denied"):
        ev.open(tmp_path / "shop.ev", create=True)
    assert not os.listdir(tmp_path / "shop.ev")
