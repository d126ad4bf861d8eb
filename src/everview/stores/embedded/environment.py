"""LMDB environments: opened once per process, grown when full, synced as durability asks.

LMDB forbids opening one environment twice in a process and using it across a fork, so all
environments come from one registry (registry.py) that knows both. Threads may share an
`Environment`. To open one for writing, LMDB waits for the write in progress; one that is only read
is open at once.

The data file (datafile.py) is checked before it is mapped, at the beginning of every write, and by
readers ten times a second.
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
from typing import Protocol, TypeVar

import lmdb

from everview.errors import Damaged, DatabaseClosed, DatabaseError, StoreFull, WriteError
from everview.stores.embedded.datafile import DataFile
from everview.stores.embedded.files import Home

DURABILITIES = ("always", "interval", "never")
SYNC_SECONDS = 1.0
READER_CHECK_SECONDS = 1.0
MAP_SIZE = 16 << 30
SMALL_MAP = 1 << 30
MAX_READERS = 1024
PATIENCE = 10.0
LOOK_SECONDS = 0.1  # between looks of readers whether the file is still there, and whole
FILES = 3  # that an environment has open
SYNC_FAILED = "sync-failed"  # a file beside LMDB's, while data can't be synced
BAGS = "bags"  # a database of this name keeps any number of values under a key, in order
_NO_ROOM = ("No space left", "Input/output error", "File too large", "quota exceeded")
_UNREADABLE = (lmdb.InvalidError, lmdb.CorruptedError, lmdb.VersionMismatchError)
_BROKEN = (*_UNREADABLE, lmdb.PageNotFoundError, lmdb.PanicError, lmdb.CursorFullError)
T = TypeVar("T")


class Keeper(Protocol):
    """The registry of the environments of this process."""

    def wake(self, environment: Environment) -> None:
        """Open an environment that sleeps."""

    def sync_soon(self) -> None:
        """Sync what was written, about a second later."""


class Environment:
    """One LMDB environment with named databases, in the directory of a database.

    `reading` and `writing` give transactions; a write commits when its block ends and aborts when
    it raises. A full map raises lmdb.MapFullError, after which `grow` makes room; `update` does
    both. With `is_small` the map is small at first and grows when needed.

    Opening an environment that is missing or was cut raises `Damaged`, unless it is to be created.
    If its file was deleted or replaced since it was opened, a write raises `Damaged`, or
    `DatabaseClosed` if the whole database was; so does a read, but perhaps a while later.

    An environment that nobody uses may `sleep`, without open files, until it is used again. So
    `dbs` are valid only inside of a transaction.
    """

    def __init__(
        self,
        keeper: Keeper,
        home: Home,
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
        self.last_used = time.monotonic()
        self._keeper = keeper
        self.file = DataFile(home, path)
        self._next_look = 0.0
        self._process = os.getpid()
        self._names = names
        self._map_size = map_size
        self._first_map = min(map_size, SMALL_MAP) if is_small else map_size
        self._create = create
        self._gate = threading.Condition()
        self._transactions: set[lmdb.Transaction] = set()
        self._active = 0
        self._watches = 0
        self._asleep = False
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
            with _open_lock:
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
            try:
                self.file.remember()
            except DatabaseError:
                self._close()
                raise
            self._asleep = False
        except (*_UNREADABLE, lmdb.NotFoundError, FileNotFoundError) as error:
            raise self.file.unusable_error(error) from error
        except (lmdb.Error, OSError) as error:
            if os.strerror(errno.ENOENT) in str(error):  # it went while it was opened
                raise self.file.unusable_error(error) from error
            if any(words in str(error) for words in _NO_ROOM):
                raise StoreFull(f"{self.path} can't be opened: {error}; make room") from error
            if any(os.strerror(code) in str(error) for code in (errno.EACCES, errno.EPERM)):
                raise DatabaseError(
                    f"{self.path} can't be opened: {error}; also a reader writes the lock files of "
                    "a database: get the right to write there, or read a copy"
                ) from error
            if os.strerror(errno.EROFS) in str(error):
                raise DatabaseError(
                    f"{self.path} can't be opened to write: {error}; open it with readonly=True"
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
        if not self._create or self.file.has_content:
            self.file.check()
        if not self._create:
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
        def open_all(txn: lmdb.Transaction | None, create: bool) -> list[lmdb._Database]:
            return [
                self.lmdb.open_db(name.encode(), txn, create=create, dupsort=name == BAGS)
                for name in self._names
            ]

        while True:
            try:
                if self.readonly:
                    return open_all(None, create=False)
                with self.lmdb.begin(write=True) as txn:
                    return open_all(txn, create=self._create)
            except lmdb.MapResizedError:  # another process made it grow since it was opened
                self.lmdb.set_mapsize(0)

    def make_writable(self) -> None:
        """Open anew for writing; waits for this process's reads on it to end."""
        with self._without_transactions("opened for writing"):
            self.look()
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
            raise self._damage_error(error) from error
        except lmdb.Error as error:
            raise DatabaseClosed(
                f"{self.path} was closed or dropped while it was read ({error})"
            ) from error
        finally:
            self._end(txn)

    @contextmanager
    def writing(self) -> Iterator[lmdb.Transaction]:
        """The write transaction of this environment, among all processes."""
        with self.awake():
            yield from self._writing()

    def _writing(self) -> Iterator[lmdb.Transaction]:
        txn = self._begin(write=True)
        try:
            yield txn
            txn.commit()
        except lmdb.MapFullError:
            raise
        except (*_BROKEN, SystemError) as error:  # the latter where a delete meets a broken page
            raise self._damage_error(error) from error
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
            self._enter()
            try:
                if write or self.last_used > self._next_look:
                    self.look()
                txn = self.lmdb.begin(write=write)
                if write:
                    self._look_inside(txn)
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
                if self.file.is_homeless:
                    raise self.file.replaced_error() from error
                raise DatabaseClosed(f"{self.path} was closed or dropped: {error}") from error
            except BaseException:
                self._leave()
                raise

    def _enter(self) -> None:
        """Count a transaction that begins; wakes the environment first if it sleeps."""
        while True:
            with self._gate:
                self._gate.wait_for(lambda: not self._changing)
                if not self._asleep:
                    self._active += 1
                    self.last_used = time.monotonic()
                    return
            self._keeper.wake(self)

    def look(self) -> None:
        """Raises if the file was deleted, replaced or cut since it was opened."""
        if self._retired and not self.file.is_homeless:
            raise DatabaseClosed(f"{self.path} was dropped")
        self.file.look()
        self._next_look = self.last_used + LOOK_SECONDS

    def _look_inside(self, txn: lmdb.Transaction) -> None:
        """Look after the write may have waited for others; ends the transaction if it raises."""
        try:
            self.look()
        except BaseException:
            txn.abort()
            raise

    @contextmanager
    def awake(self) -> Iterator[None]:
        """The environment does not fall asleep inside the block."""
        while True:
            with self._gate:
                if not self._asleep:
                    self._watches += 1
                    break
            self._keeper.wake(self)
        try:
            yield
        finally:
            with self._gate:
                self._watches -= 1

    def sleep(self) -> None:
        """Close its files until it is used again; does nothing if it is in use."""
        if self._gate.acquire(blocking=False):
            try:
                if not (self._active or self._watches or self._retired or self._asleep):
                    self._close()
                    self._asleep = True
            finally:
                self._gate.release()

    def wake(self) -> None:
        with self._gate:
            self._gate.wait_for(lambda: not self._changing)
            if self._asleep:
                self.look()
                self._open()

    @property
    def is_asleep(self) -> bool:
        return self._asleep

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

    def retire(self) -> None:
        """Close it when the transactions of this process have ended; its files were deleted."""
        with self._gate:
            self._retired = True
            if not self._active:
                self._close()

    def _after_commit(self) -> None:
        is_due = time.monotonic() - self._readers_checked > READER_CHECK_SECONDS
        if is_due and _fork_lock.acquire(blocking=False):  # a sync may hold it for long
            try:  # a killed reader would keep its pages from being used again
                self._readers_checked = time.monotonic()
                self.lmdb.reader_check()
            finally:
                _fork_lock.release()
        if self.durability == "interval":
            now = time.monotonic()
            since = self._unsynced_since = self._unsynced_since or now
            self._sync_at = min(now, since + self.patience) + SYNC_SECONDS
            self._keeper.sync_soon()

    def _damage_error(self, error: Exception) -> Damaged:
        return Damaged(f"{self.path} is damaged: {error}")

    def _failure(self, error: lmdb.Error) -> WriteError:
        if any(words in str(error) for words in _NO_ROOM):
            free = shutil.disk_usage(os.path.dirname(self.path)).free
            return StoreFull(
                f"{self.path} could not be written and is as it was before: {error} "
                f"({free >> 20:,} MiB free there); make room and write again"
            )
        return WriteError(f"{self.path} could not be written and is as it was before: {error}")

    def grow(self) -> None:
        """Double the map; waits for this process's transactions on it to end."""
        with self.awake():
            self.lmdb.reader_check()
            self._resize(max(int(self.lmdb.info()["map_size"]) * 2, self._map_size))

    def _resize(self, size: int) -> None:
        with self._without_transactions("grown, although it is full,"):
            self.look()
            self.file.check()
            try:
                self.lmdb.set_mapsize(size)
            except lmdb.Error as error:
                raise StoreFull(
                    f"the map of {self.path} can't grow to {size:,} bytes: {error}"
                ) from error

    @contextmanager
    def _without_transactions(self, purpose: str) -> Iterator[None]:
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
        """Hand what was written to the device, if that is due; False if it is not due by `until`.

        After a `WriteError` it stays to be synced, and a file beside it says why. An environment
        with `patience` is synced later while it is written again and again: by then its pages are
        written, else a sync would wait for each.
        """
        with self._sync_turn:
            if self._unsynced_since is None:
                return True
            if until is not None and self._sync_at > until:
                return False
            self._unsynced_since, since = None, self._unsynced_since
            try:
                with _fork_lock:
                    self._hand_over()
            except (lmdb.Error, OSError) as error:
                self._unsynced_since = since
                with suppress(OSError), open(os.path.join(self.path, SYNC_FAILED), "w") as note:
                    note.write(str(error))
                raise WriteError(
                    f"{self.path} could not be synced: {error}. The data is written, but may not "
                    "survive a crash of the machine."
                ) from error
            with suppress(OSError):
                os.unlink(os.path.join(self.path, SYNC_FAILED))
            return True

    def _hand_over(self) -> None:
        """Sync the file, which any process may have open, or none."""
        with self._gate:
            asleep = self._asleep
            self._watches += not asleep
        if asleep:
            with suppress(FileNotFoundError):
                sync_file(self.file.path)
            return
        try:
            self.lmdb.sync(True)
        finally:
            with self._gate:
                self._watches -= 1

    def close(self) -> None:
        with suppress(WriteError):
            self.sync()
        with self._sync_turn:  # a later sync finds nothing to do
            self._unsynced_since = None
            self._close()

    def _close(self) -> None:
        with _open_lock:
            self.lmdb.close()

    def after_fork(self) -> None:
        """In a child: close it to open it anew or, if it was in use, never touch it again.

        Ending a transaction of the parent, even at exit, would free the parent's reader slot.
        """
        if not self._active:
            self.lmdb.close()
            return
        for inherited in (self.lmdb, *self._transactions):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


def sync_file(path: str) -> None:
    """Hand a file, or a directory, to the device."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def too_many_files(path: str) -> DatabaseError:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DatabaseError(
        f"{path} can't be opened: this process may have {soft:,} files open, and a region of a "
        f"table or a shard of a view takes {FILES}; allow it more, for example with ulimit -n"
    )


# no fork happens while it is held: a child could not close what LMDB is busy with in another thread
_fork_lock = threading.RLock()
# one environment is opened or closed at a time: LMDB for Python knows open environments by the
# numbers of their files, and a new file may get the number of a deleted one before LMDB forgets it
# reentrant, as a store that nobody closed may be collected, and so closed, while another opens
_open_lock = threading.RLock()


def forget_locks() -> None:
    """Make new locks in a forked child: threads of the parent may hold the old ones."""
    global _fork_lock, _open_lock
    _fork_lock, _open_lock = threading.RLock(), threading.RLock()


os.register_at_fork(
    before=lambda: _fork_lock.acquire(), after_in_parent=lambda: _fork_lock.release()
)
