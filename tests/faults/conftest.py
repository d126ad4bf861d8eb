"""Fixtures of the fault tests: a server of child processes, a database path."""

from __future__ import annotations

import os
import subprocess
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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)
