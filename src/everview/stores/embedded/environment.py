"""LMDB environments: opened once per process, grown when full, synced as durability asks.

LMDB forbids opening one environment twice in a process and using it across a fork, so all
environments come from one registry that knows both. Threads may share an `Environment`. To open
one for writing, LMDB waits for the write in progress; one that is only read is open at once.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import lmdb

from everview.errors import DatabaseError, StoreFull, WriteError

DURABILITIES = ("always", "interval", "never")
SYNC_SECONDS = 1.0
MAP_SIZE = 16 << 30
MAX_READERS = 1024
PATIENCE = 10.0
_NO_ROOM = ("No space left", "Input/output error", "File too large", "quota exceeded")


class Environment:
    """One LMDB environment with named databases.

    `reading` and `writing` give transactions; a write commits when its block ends and aborts when
    it raises. A full map raises `MapFull`, after which `grow` makes room.
    """

    def __init__(
        self, path: str, names: tuple[str, ...], durability: str, map_size: int, readonly: bool
    ) -> None:
        self.path = path
        self.durability = durability
        self.readonly = readonly
        self.holders = 0
        self._names = names
        self._map_size = map_size
        self._gate = threading.Condition()
        self._active = 0
        self._changing = False
        self._unsynced = False
        self._open()

    def _open(self) -> None:
        if not self.readonly:
            os.makedirs(self.path, exist_ok=True)
        try:
            self.lmdb = lmdb.open(
                self.path,
                map_size=self._map_size,
                max_dbs=len(self._names),
                max_readers=MAX_READERS,
                max_spare_txns=1,
                sync=self.durability == "always",
                readahead=False,
                readonly=self.readonly,
            )
            self.lmdb.reader_check()
            self.dbs = self._databases()
        except lmdb.Error as error:
            raise DatabaseError(
                f"{self.path} can't be opened: {error}. If address space is limited here, open "
                f"the database with a smaller map_size than {self._map_size:,} bytes."
            ) from error

    def _databases(self) -> list[lmdb._Database]:
        names = [name.encode() for name in self._names]
        if self.readonly:
            return [self.lmdb.open_db(name, create=False) for name in names]
        with self.lmdb.begin(write=True) as txn:
            return [self.lmdb.open_db(name, txn) for name in names]

    def make_writable(self) -> None:
        """Open anew for writing; waits for this process's reads on it to end."""
        with self._alone("opened for writing"):
            self.lmdb.close()
            self.readonly = False
            self._open()

    @contextmanager
    def reading(self) -> Iterator[lmdb.Transaction]:
        """A read transaction: one committed state, never blocked by a writer."""
        txn = self._begin(write=False)
        try:
            yield txn
        finally:
            txn.abort()
            self._leave()

    @contextmanager
    def writing(self) -> Iterator[lmdb.Transaction]:
        """The write transaction of this environment, among all processes."""
        txn = self._begin(write=True)
        try:
            yield txn
            txn.commit()
        except BaseException as error:
            txn.abort()
            if isinstance(error, lmdb.Error) and not isinstance(error, lmdb.MapFullError):
                raise self._failure(error) from error
            raise
        finally:
            self._leave()
        if self.durability == "interval":
            self._unsynced = True
            _syncer.wake()

    def _begin(self, write: bool) -> lmdb.Transaction:
        while True:
            with self._gate:
                self._gate.wait_for(lambda: not self._changing)
                self._active += 1
            try:
                return self.lmdb.begin(write=write)
            except lmdb.MapResizedError:
                self._leave()
                self._resize(0)
            except lmdb.ReadersFullError as error:
                self._leave()
                if self.lmdb.reader_check() == 0:
                    raise DatabaseError(
                        f"{self.path}: more than {MAX_READERS} readers at once; end some"
                    ) from error
            except BaseException:
                self._leave()
                raise

    def _leave(self) -> None:
        with self._gate:
            self._active -= 1
            self._gate.notify_all()

    def _failure(self, error: lmdb.Error) -> WriteError:
        free = shutil.disk_usage(self.path).free
        if any(words in str(error) for words in _NO_ROOM):
            return StoreFull(
                f"{self.path} could not be written: {error} ({free >> 20:,} MiB free there). "
                "Nothing of this write remains; make room and write again."
            )
        return WriteError(f"{self.path} could not be written: {error}. Nothing of it remains.")

    def grow(self) -> None:
        """Double the map; waits for this process's transactions on it to end."""
        self._resize(int(self.lmdb.info()["map_size"]) * 2)

    def _resize(self, size: int) -> None:
        with self._alone("grown, although it is full,"):
            try:
                self.lmdb.set_mapsize(size)
            except lmdb.Error as error:
                raise StoreFull(
                    f"the map of {self.path} can't grow to {size:,} bytes: {error}"
                ) from error

    @contextmanager
    def _alone(self, purpose: str) -> Iterator[None]:
        """No transaction of this process runs on the environment inside the block."""
        with self._gate:
            self._gate.wait_for(lambda: not self._changing)
            self._changing = True
            try:
                if not self._gate.wait_for(lambda: self._active == 0, PATIENCE):
                    raise StoreFull(
                        f"{self.path} can't be {purpose} while this process reads it; finish "
                        "open scans, or open the database with a larger map_size"
                    )
                yield
            finally:
                self._changing = False
                self._gate.notify_all()

    def sync(self) -> None:
        """Hand what was written to the device."""
        if self._unsynced:
            self._unsynced = False
            self.lmdb.sync(True)

    def size_on_disk(self) -> int:
        return os.stat(os.path.join(self.path, "data.mdb")).st_blocks * 512

    def close(self) -> None:
        self.sync()
        self.lmdb.close()


class _Registry:
    """The environments open in this process, by path."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open: dict[str, Environment] = {}

    def acquire(
        self, path: str, names: tuple[str, ...], durability: str, map_size: int, readonly: bool
    ) -> Environment:
        path = os.path.realpath(path)
        with self._lock:
            found = self._open.get(path)
            if found is None:
                found = Environment(path, names, durability, map_size, readonly)
                self._open[path] = found
            elif not readonly and found.readonly:
                found.durability = durability
                found.make_writable()
            elif not readonly and found.durability != durability:
                raise DatabaseError(
                    f"{path} is open in this process with durability {found.durability!r}; "
                    f"close that handle before opening it with {durability!r}"
                )
            found.holders += 1
            return found

    def release(self, environment: Environment) -> None:
        with self._lock:
            environment.holders -= 1
            if environment.holders == 0 and self._open.get(environment.path) is environment:
                del self._open[environment.path]
                environment.close()

    def sync(self) -> None:
        with self._lock:
            environments = list(self._open.values())
        for environment in environments:
            with suppress(lmdb.Error):
                environment.sync()

    def after_fork(self) -> None:
        """A child must not touch its parent's environments, nor close them."""
        self.__init__()  # type: ignore[misc]


class _Syncer:
    """A thread that syncs what durability "interval" has left, a second after it was written."""

    def __init__(self) -> None:
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="everview-sync", daemon=True)
            self._thread.start()
        self._wake.set()

    def _run(self) -> None:
        while self._wake.wait():
            time.sleep(SYNC_SECONDS)
            self._wake.clear()
            registry.sync()


def _forget_parent() -> None:
    global _syncer
    registry.after_fork()
    _syncer = _Syncer()


registry = _Registry()
_syncer = _Syncer()
os.register_at_fork(after_in_child=_forget_parent)
