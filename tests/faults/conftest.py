"""Fixtures of the fault tests: a server of child processes, a database path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from . import workload
from .processes import Server


@pytest.fixture(scope="session")
def session_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("reports"))
    yield server
    server.close()


@pytest.fixture
def server(session_server: Server) -> Iterator[Server]:
    """Starts children, and ends those that a test leaves."""
    yield session_server
    session_server.end_children()


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A database with an empty table t of four regions."""
    workload.make(str(tmp_path / "test.ev"))
    return str(tmp_path / "test.ev")
