"""LMDB environments: opened once per process, grown when full, synced as durability asks.

LMDB forbids opening one environment twice in a process and using it across a fork, so all
environments come from one registry that knows both. Threads may share an `Environment`. To open
one for writing, LMDB waits for the write in progress; one that is only read is open at once.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import lmdb

from everview.errors import Damaged, DatabaseClosed, DatabaseError, StoreFull, WriteError

DURABILITIES = ("always", "interval", "never")
SYNC_SECONDS = 1.0
READER_CHECK_SECONDS = 1.0
MAP_SIZE = 16 << 30
# beyond so many environments maps begin small, or they would fill what can be mapped
MANY_MAPS, SMALL_MAP = 1000, 1 << 30
MAX_READERS = 1024
PATIENCE = 10.0
MANY = 100
SYNC_FAILED = "sync-failed"  # a file beside LMDB's, while what was written can't be synced
BAGS = "bags"  # a database of this name keeps any number of values under a key, in order
_NO_ROOM = ("No space left", "Input/output error", "File too large", "quota exceeded")
_UNREADABLE = (lmdb.InvalidError, lmdb.CorruptedError, lmdb.VersionMismatchError)
_BROKEN = (*_UNREADABLE, lmdb.PageNotFoundError, lmdb.PanicError, lmdb.CursorFullError)
T = TypeVar("T")


class Environment:
    """One LMDB environment with named databases.

    `reading` and `writing` give transactions; a write commits when its block ends and aborts when
    it raises. A full map raises lmdb.MapFullError, after which `grow` makes room; `update` does
    both. With `is_small` the map has its size only when that is needed. Opening one that isn't
    there raises `Damaged` unless it is to be created.
    """

    def __init__(
        self,
        path: str,
        names: tuple[str, ...],
        durability: str,
        map_size: int,
        readonly: bool,
        create: bool,
        is_small: bool = False,
    ) -> None:
        self.path = path
        self.durability = durability
        self.readonly = readonly
        self.holders = 0
        self._process = os.getpid()
        self._names = names
        self._map_size = map_size
        self._first_map = min(map_size, SMALL_MAP) if is_small else map_size
        self._create = create
        self._gate = threading.Condition()
        self._transactions: set[lmdb.Transaction] = set()
        self._active = 0
        self._changing = False
        self._retired = False
        self.patience = 0.0
        self._unsynced_since: float | None = None
        self._sync_at = 0.0
        self._sync_turn = threading.Lock()
        self._readers_checked = time.monotonic()
        self._open()

    def _open(self) -> None:
        try:
            with _doors:
                self._prepare_files()
                self.lmdb = lmdb.open(
                    self.path,
                    map_size=self._first_map,
                    max_dbs=len(self._names),
                    max_readers=MAX_READERS,
                    sync=self.durability == "always",
                    readahead=False,
                    readonly=self.readonly,
                    create=self._create,
                )
            self.lmdb.reader_check()
            self.dbs = self._databases()
            self._file = _identity(self.path)
        except (*_UNREADABLE, lmdb.NotFoundError, FileNotFoundError) as error:
            raise self._gone(error) from error
        except (lmdb.Error, OSError) as error:
            if os.strerror(errno.ENOENT) in str(error):  # it went while it was opened
                raise self._gone(error) from error
            if any(words in str(error) for words in _NO_ROOM):
                raise StoreFull(f"{self.path} can't be opened: {error}; make room") from error
            if any(os.strerror(code) in str(error) for code in (errno.EACCES, errno.EPERM)):
                raise DatabaseError(
                    f"{self.path} can't be opened: {error}; also who only reads a database writes "
                    "its lock files: get the right to write there, or read a copy"
                ) from error
            if any(os.strerror(code) in str(error) for code in (errno.EMFILE, errno.ENFILE)):
                raise too_many_files(self.path) from error
            if "already open" in str(error):
                raise DatabaseError(
                    f"{self.path} was being read or written when this process was forked, so it "
                    "can't be used here; fork before, or start a fresh process"
                ) from error
            raise DatabaseError(
                f"{self.path} can't be opened: {error}. If address space is limited here, open "
                f"the database with a smaller map_size than {self._first_map:,} bytes."
            ) from error

    def _prepare_files(self) -> None:
        if not self._create:
            if os.path.getsize(os.path.join(self.path, "data.mdb")) == 0:
                raise FileNotFoundError("data.mdb is empty")
            return
        os.makedirs(self.path, exist_ok=True)
        # LMDB maps a sparse lock file; on a full disk, touching it would be a SIGBUS.
        lock = os.path.join(self.path, "lock.mdb")
        with suppress(FileExistsError):
            file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                os.posix_fallocate(file, 0, 64 * MAX_READERS + 128)
            except OSError:
                os.unlink(lock)
                raise
            finally:
                os.close(file)

    def _databases(self) -> list[lmdb._Database]:
        def opened(txn: lmdb.Transaction | None, create: bool) -> list[lmdb._Database]:
            return [
                self.lmdb.open_db(name.encode(), txn, create=create, dupsort=name == BAGS)
                for name in self._names
            ]

        while True:
            try:
                if self.readonly:
                    return opened(None, create=False)
                with self.lmdb.begin(write=True) as txn:
                    return opened(txn, create=self._create)
            except lmdb.MapResizedError:  # another process made it grow since it was opened
                self.lmdb.set_mapsize(0)

    def make_writable(self) -> None:
        """Open anew for writing; waits for this process's reads on it to end."""
        with self._alone("opened for writing"):
            self._close()
            self.readonly = False
            self._open()

    @contextmanager
    def reading(self) -> Iterator[lmdb.Transaction]:
        """A read transaction: one committed state, never blocked by a writer."""
        txn = self._begin(write=False)
        try:
            yield txn
        except _BROKEN as error:
            raise self._damaged(error) from error
        except lmdb.Error as error:
            raise DatabaseClosed(
                f"{self.path} was closed or dropped while it was read ({error})"
            ) from error
        finally:
            self._end(txn)

    @contextmanager
    def writing(self) -> Iterator[lmdb.Transaction]:
        """The write transaction of this environment, among all processes."""
        txn = self._begin(write=True)
        try:
            yield txn
            txn.commit()
        except lmdb.MapFullError:
            raise
        except (*_BROKEN, SystemError) as error:  # the latter where a delete meets a broken page
            raise self._damaged(error) from error
        except lmdb.Error as error:
            raise self._failure(error) from error
        finally:
            self._end(txn)
        self._after_commit()

    def update(self, work: Callable[[lmdb.Transaction], T]) -> T:
        """Do `work` in a write transaction, in a larger map if it is full."""
        while True:
            try:
                with self.writing() as txn:
                    return work(txn)
            except lmdb.MapFullError:
                self.grow()

    def confirm(self) -> None:
        """Make what others have written as durable as if this process had written it."""
        if self.durability == "always":
            try:
                self.lmdb.sync(True)
            except lmdb.Error as error:
                raise self._failure(error) from error

    def _begin(self, write: bool) -> lmdb.Transaction:
        while True:
            with self._gate:
                self._gate.wait_for(lambda: not self._changing)
                self._active += 1
            try:
                txn = self.lmdb.begin(write=write)
                self._transactions.add(txn)
                return txn
            except lmdb.MapResizedError:
                self._leave()
                self._resize(0)
            except lmdb.ReadersFullError as error:
                self._leave()
                if self.lmdb.reader_check() == 0:
                    raise DatabaseError(
                        f"{self.path}: more than {MAX_READERS} readers at once; end some"
                    ) from error
            except lmdb.Error as error:
                self._leave()
                if "same thread" in str(error):
                    raise WriteError("an observer may not write to the table it observes") from None
                raise DatabaseClosed(f"{self.path} was closed or dropped: {error}") from error
            except BaseException:
                self._leave()
                raise

    def _end(self, txn: lmdb.Transaction) -> None:
        """End a transaction, unless it is one of the process that this one was forked from."""
        if self._process == os.getpid():
            txn.abort()
            self._transactions.discard(txn)
            self._leave()

    def _leave(self) -> None:
        with self._gate:
            self._active -= 1
            self._gate.notify_all()
            if self._retired and not self._active:
                self._close()

    @property
    def is_gone(self) -> bool:
        """Whether its files were removed, and perhaps others are in their place."""
        try:
            return _identity(self.path) != self._file
        except OSError:
            return True

    def retire(self) -> None:
        """Close it when the transactions of this process have ended; its files are gone then."""
        with self._gate:
            self._retired = True
            if not self._active:
                self._close()

    def _after_commit(self) -> None:
        is_due = time.monotonic() - self._readers_checked > READER_CHECK_SECONDS
        if is_due and _unforked.acquire(blocking=False):  # a sync may hold it for long
            try:  # a killed reader would keep its pages from being used again
                self._readers_checked = time.monotonic()
                self.lmdb.reader_check()
            finally:
                _unforked.release()
        if self.durability == "interval":
            now = time.monotonic()
            since = self._unsynced_since = self._unsynced_since or now
            self._sync_at = min(now, since + self.patience) + SYNC_SECONDS
            _syncer.wake()

    def _gone(self, error: Exception) -> Damaged:
        return Damaged(f"{self.path} is damaged or gone: {error}; restore it from a copy")

    def _damaged(self, error: Exception) -> Damaged:
        return Damaged(f"{self.path} is damaged: {error}")

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
        self.lmdb.reader_check()
        self._resize(max(int(self.lmdb.info()["map_size"]) * 2, self._map_size))

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

    def sync(self, until: float | None = None) -> bool:
        """Hand what was written to the device, if it is to be by then; False if it is not yet.

        What fails, with a `WriteError`, stays to be synced, and a file beside it says why. An
        environment with `patience` is synced later while it is written again and again: its pages
        are written by then, and a sync would wait for each.
        """
        with self._sync_turn:
            if self._unsynced_since is None:
                return True
            if until is not None and self._sync_at > until:
                return False
            self._unsynced_since, since = None, self._unsynced_since
            try:
                with _unforked:
                    self.lmdb.sync(True)
            except lmdb.Error as error:
                self._unsynced_since = since
                with suppress(OSError), open(os.path.join(self.path, SYNC_FAILED), "w") as note:
                    note.write(str(error))
                raise WriteError(
                    f"{self.path} could not be synced: {error}. What was written is there, but may "
                    "not survive a crash of the machine."
                ) from error
            with suppress(OSError):
                os.unlink(os.path.join(self.path, SYNC_FAILED))
            return True

    def size_on_disk(self) -> int:
        try:
            return os.stat(os.path.join(self.path, "data.mdb")).st_blocks * 512
        except FileNotFoundError as error:
            raise self._gone(error) from error

    def close(self) -> None:
        with suppress(WriteError):
            self.sync()
        with self._sync_turn:  # who comes now finds nothing to sync
            self._unsynced_since = None
            self._close()

    def _close(self) -> None:
        with _doors:
            self.lmdb.close()

    def after_fork(self) -> None:
        """In a child: close it to open it anew, or if it was in use, never touch it again.

        Ending a transaction of the parent's, even at exit, would free the parent's reader slot.
        """
        if not self._active:
            self.lmdb.close()
            return
        for inherited in (self.lmdb, *self._transactions):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


class _Registry:
    """The environments open in this process, by path."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._open: dict[str, Environment] = {}

    def acquire(
        self,
        path: str,
        names: tuple[str, ...],
        durability: str,
        map_size: int,
        readonly: bool = False,
        create: bool = False,
    ) -> Environment:
        path = os.path.realpath(path)
        with self.lock:
            found = self._open.get(path)
            if found is not None and found.is_gone:
                self._open.pop(path).retire()
                found = None
            if found is None:
                if len(self._open) == MANY:
                    _raise_limit()
                is_small = len(self._open) >= MANY_MAPS
                found = Environment(path, names, durability, map_size, readonly, create, is_small)
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
        with self.lock:
            environment.holders -= 1
            if environment.holders == 0 and self._open.get(environment.path) is environment:
                del self._open[environment.path]
                environment.close()

    def let_go(self, environment: Environment) -> None:
        """As `release`, of one whose files are gone; who reads it may end."""
        with self.lock:
            environment.holders -= 1
            if environment.holders == 0:
                if self._open.get(environment.path) is environment:
                    del self._open[environment.path]
                environment.retire()

    def remove(self, directory: str) -> None:
        """Delete a directory, and let go of all environments below it."""
        below = os.path.join(os.path.realpath(directory), "")
        with self.lock:  # else one could be opened anew while its files go
            shutil.rmtree(directory, ignore_errors=True)
            gone = [self._open.pop(path) for path in list(self._open) if path.startswith(below)]
        for environment in gone:
            environment.retire()

    def sync(self, until: float) -> bool:
        """Sync what is due by then; False if some is not yet, or could not be."""
        with self.lock:
            environments = list(self._open.values())
        synced = True
        for environment in environments:
            try:
                synced &= environment.sync(until)
            except WriteError:
                synced = False
        return synced

    def after_fork(self) -> None:
        """A child opens environments anew; those its parent was using stay closed to it."""
        inherited = list(self._open.values())
        self.__init__()  # type: ignore[misc]
        for environment in inherited:
            environment.after_fork()


def _identity(path: str) -> tuple[int, int]:
    """What tells the files of an environment from others that are made in their place."""
    found = os.stat(os.path.join(path, "data.mdb"))
    return found.st_dev, found.st_ino


def too_many_files(path: str) -> DatabaseError:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DatabaseError(
        f"{path} can't be opened: this process may have {soft:,} files open, and a region of a "
        "table or a shard of a view takes four; allow it more, for example with ulimit -n"
    )


def _raise_limit() -> None:
    """Let this process open as many files as it may; each environment has three or four."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _Syncer:
    """A thread that syncs what durability "interval" has left, about a second later."""

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
            if not registry.sync(time.monotonic()):
                self._wake.set()


def _forget_parent() -> None:
    global _syncer, _unforked, _doors
    _unforked, _doors = threading.RLock(), threading.Lock()
    registry.after_fork()
    _syncer = _Syncer()


registry = _Registry()
_syncer = _Syncer()
# no fork happens while it is held: a child could not close what LMDB is busy with in another thread
_unforked = threading.RLock()
# one environment is opened or closed at a time: LMDB for Python knows open ones by the numbers of
# their files, which a file that was closed, and is gone, has passed on before it is told
_doors = threading.Lock()
os.register_at_fork(
    before=lambda: _unforked.acquire(),
    after_in_parent=lambda: _unforked.release(),
    after_in_child=_forget_parent,
)
