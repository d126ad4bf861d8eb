"""The lease: one maintainer of a database at a time.

A token counts the maintainers that took over. For each token and role there is a file; the process
that has locked it holds the lease. A process that ends lets go of its lock at once. A process that
is stopped keeps its lock but no longer beats, which is to touch its file: another that has waited
for the time of the lease without seeing a beat raises the token, and locks the next file. A
maintainer writes everything with its token, which is refused where a newer one is known.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from everview.catalog import LEASE, LeaseRecord
from everview.errors import Damaged, StoreFull, Superseded
from everview.stores.base import LOADS, RUN, WORK, Leases
from everview.stores.embedded.lmdb_errors import too_many_files

if TYPE_CHECKING:
    from everview.stores.embedded.catalog import EmbeddedCatalog

BEAT_SECONDS = 0.25
_LOOK_SECONDS = 0.01
_REPORT_SECONDS = 0.5


class EmbeddedLeases(Leases):
    """The leases of one database, in its catalog and directory."""

    def __init__(self, catalog: EmbeddedCatalog, directory: str) -> None:
        self._catalog = catalog
        self._directory = Path(directory)

    @property
    def token(self) -> int:
        return self._record().token

    @property
    def is_fenced(self) -> bool:
        return self._record().fenced

    def set_fenced(self, token: int) -> None:
        self._catalog.write({LEASE: LeaseRecord(token, True)}, token)

    @contextmanager
    def hold(self, role: str, seconds: float, waiting: Callable[[str], None]) -> Iterator[int]:
        file, token = self._wait(role, seconds, waiting)
        process, end = os.getpid(), threading.Event()
        beats = threading.Thread(target=_beat, args=(file, end), name="everview lease", daemon=True)
        try:
            beats.start()
            yield token
        finally:
            end.set()
            beats.join()
            _let_go(file, process)

    @contextmanager
    def hold_if_free(self, role: str) -> Iterator[int | None]:
        token = self.token  # without beats: a process that waits for it takes it after a while
        with _file(self._path(f"{role}.{token}")) as file:
            yield token if _lock(file) and token == self.token else None

    def is_wanted(self, role: str) -> bool:
        with _file(self._wish_path(role)) as file:
            return not _lock(file)

    def _wish_path(self, role: str) -> Path:
        """The file that a process locks while it waits for the lease."""
        return self._path(f"{role}.wanted")

    def _path(self, name: str) -> Path:
        """The path of a file in the directory of the database; raises if that is gone."""
        self._catalog.environment.look()
        return self._directory / name

    def _wait(self, role: str, seconds: float, waiting: Callable[[str], None]) -> tuple[int, int]:
        with _file(self._wish_path(role)) as wish:
            return self._wait_with_wish(role, seconds, waiting, wish)

    def _wait_with_wish(
        self, role: str, seconds: float, waiting: Callable[[str], None], wish: int
    ) -> tuple[int, int]:
        last_beat, since = (0, 0), time.monotonic()
        report_after = since + _REPORT_SECONDS
        while True:
            token = self.token
            file = _open(self._path(f"{role}.{token}"))
            if _lock(file):
                if token == self.token:
                    _sign(file)
                    return file, token
                os.close(file)
                continue
            with suppress(BlockingIOError):  # someone looks whether it is wanted
                fcntl.flock(wish, fcntl.LOCK_SH | fcntl.LOCK_NB)
            beat, holder = os.fstat(file).st_mtime_ns, os.pread(file, 32, 0).decode()
            os.close(file)
            if (token, beat) != last_beat:
                last_beat, since = (token, beat), time.monotonic()
            elif time.monotonic() - since > seconds:
                self._raise(token)
            if time.monotonic() > report_after:
                waiting(holder)
            time.sleep(_LOOK_SECONDS)

    def _raise(self, token: int) -> None:
        """Take the lease from its holder, unless another process did so already."""
        with suppress(Superseded):
            self._catalog.write({LEASE: LeaseRecord(token + 1, False)}, token)
            for role in (WORK, RUN, LOADS):
                (self._directory / f"{role}.{token}").unlink(missing_ok=True)

    def _record(self) -> LeaseRecord:
        return self._catalog.get(LEASE) or LeaseRecord()


@contextmanager
def locked(path: str, patience: float = inf) -> Iterator[None]:
    """Hold the lock of a path, which one thread of one process can hold at a time.

    Raises `TimeoutError` if another holds it for `patience` seconds.
    """
    with _file(path) as file:
        deadline = time.monotonic() + patience
        while not _lock(file):
            if patience == inf:
                fcntl.flock(file, fcntl.LOCK_EX)
            elif time.monotonic() > deadline:
                raise TimeoutError(path)
            else:
                time.sleep(_LOOK_SECONDS)
        yield


@contextmanager
def _file(path: str | Path) -> Iterator[int]:
    """A file to be locked, open inside the block."""
    file, process = _open(path), os.getpid()
    try:
        yield file
    finally:
        _let_go(file, process)


def _let_go(file: int, process: int) -> None:
    """Close a file that the process may have locked.

    A child that it forked meanwhile has the file open too, and would keep the lock; if this is that
    child, the lock is not its own to release.
    """
    if os.getpid() == process:
        fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)


def _open(path: str | Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(f"{path} can't be created: {error.strerror}; make room") from error
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise too_many_files(str(path)) from error
        if error.errno == errno.ENOENT:
            raise Damaged(
                f"{os.path.dirname(path)} is missing; if it was the state of a view, load the view "
                "again with `everview verify DB --repair`"
            ) from error
        raise


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(file: int) -> None:
    """Write this process into the file as its holder, unless the disk is full."""
    with suppress(OSError):
        os.ftruncate(file, 0)
        os.pwrite(file, f"process {os.getpid()}".encode(), 0)


def _beat(file: int, end: threading.Event) -> None:
    while not end.wait(BEAT_SECONDS):
        with suppress(OSError):
            os.utime(file)
