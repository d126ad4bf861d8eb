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
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, TypeVar

import lmdb

from everview.errors import DatabaseClosed, DatabaseError, StoreFull, WriteError
from everview.stores.embedded import opening, process_locks
from everview.stores.embedded.datafile import DataFile
from everview.stores.embedded.files import Home
from everview.stores.embedded.gate import Gate
from everview.stores.embedded.lmdb_errors import BROKEN, damage_error, opening_error, write_error
from everview.stores.embedded.opening import open_databases, open_lmdb
from everview.stores.embedded.syncing import SyncSchedule, sync_file

DURABILITIES = ("always", "interval", "never")
READER_CHECK_SECONDS = 1.0
MAP_SIZE = 16 << 30
SMALL_MAP = 1 << 30
LOOK_SECONDS = 0.1  # between looks of readers whether the file is still there, and whole
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
    `dbs` are valid only inside of a transaction. One with `patience` is synced later while it is
    written again and again.
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
        self._keeper = keeper
        self.file = DataFile(home, path)
        self._next_look = 0.0
        self._process = os.getpid()
        self._names = names
        self._map_size = map_size
        self._first_map = min(map_size, SMALL_MAP) if is_small else map_size
        self._create = create
        self.patience = 0.0
        self._sync_schedule = SyncSchedule(path)
        self._gate = Gate()
        self._transactions: set[lmdb.Transaction] = set()
        self._readers_checked = time.monotonic()
        self._open()

    def _open(self) -> None:
        try:
            self.lmdb = open_lmdb(
                self.path,
                self.file,
                max_dbs=len(self._names),
                map_size=self._first_map,
                sync=self.durability == "always",
                readonly=self.readonly,
                create=self._create,
            )
            self.lmdb.reader_check()
            self.dbs = open_databases(self.lmdb, self._names, self.readonly, self._create)
            try:
                self.file.remember()
            except DatabaseError:
                self._close()
                raise
            self._gate.is_asleep = False
        except (lmdb.Error, OSError) as error:
            raise opening_error(error, self.path, self.file, self._first_map) from error

    def make_writable(self) -> None:
        """Open anew for writing; waits for this process's reads on it to end."""
        with self._gate.without_transactions(self.path, "opened for writing"):
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
        except BROKEN as error:
            raise damage_error(error, self.path) from error
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
        except (*BROKEN, SystemError) as error:  # the latter where a delete meets a broken page
            raise damage_error(error, self.path) from error
        except lmdb.Error as error:
            raise write_error(error, self.path) from error
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
                raise write_error(error, self.path) from error

    def _begin(self, write: bool) -> lmdb.Transaction:
        while True:
            while not self._gate.enter():
                self._keeper.wake(self)
            try:
                if write or self.last_used > self._next_look:
                    self.look()
                txn = self.lmdb.begin(write=write)
                if write:
                    self._look_inside(txn)
                self._transactions.add(txn)
                return txn
            except lmdb.MapResizedError:
                self._gate.leave(self._close)
                self._resize(0)
            except lmdb.ReadersFullError as error:
                self._gate.leave(self._close)
                if self.lmdb.reader_check() == 0:
                    raise DatabaseError(
                        f"{self.path}: more than {opening.MAX_READERS} readers at once; end some"
                    ) from error
            except lmdb.Error as error:
                self._gate.leave(self._close)
                if "same thread" in str(error):
                    raise WriteError("an observer may not write to the table it observes") from None
                if self.file.is_homeless:
                    raise self.file.replaced_error() from error
                raise DatabaseClosed(f"{self.path} was closed or dropped: {error}") from error
            except BaseException:
                self._gate.leave(self._close)
                raise

    def look(self) -> None:
        """Raises if the file was deleted, replaced or cut since it was opened."""
        if self._gate.is_retired and not self.file.is_homeless:
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
            with self._gate.watch() as is_awake:
                if is_awake:
                    yield
                    return
            self._keeper.wake(self)

    def sleep(self) -> None:
        """Close its files until it is used again; does nothing if it is in use."""
        self._gate.sleep(self._close)

    def wake(self) -> None:
        self._gate.wake(self._open_again)

    def _open_again(self) -> None:
        self.look()
        self._open()

    @property
    def is_asleep(self) -> bool:
        return self._gate.is_asleep

    @property
    def last_used(self) -> float:
        return self._gate.last_used

    def _end(self, txn: lmdb.Transaction) -> None:
        """End a transaction, unless it is one of the process that this one was forked from."""
        if self._process == os.getpid():
            txn.abort()
            self._transactions.discard(txn)
            self._gate.leave(self._close)

    def retire(self) -> None:
        """Close it when the transactions of this process have ended; its files were deleted."""
        self._gate.retire(self._close)

    def _after_commit(self) -> None:
        is_due = time.monotonic() - self._readers_checked > READER_CHECK_SECONDS
        fork_lock = process_locks.fork_lock
        if is_due and fork_lock.acquire(blocking=False):  # a sync may hold it for long
            try:  # a killed reader would keep its pages from being used again
                self._readers_checked = time.monotonic()
                self.lmdb.reader_check()
            finally:
                fork_lock.release()
        if self.durability == "interval":
            self._sync_schedule.add_write(self.patience)
            self._keeper.sync_soon()

    def grow(self) -> None:
        """Double the map; waits for this process's transactions on it to end."""
        with self.awake():
            self.lmdb.reader_check()
            self._resize(max(int(self.lmdb.info()["map_size"]) * 2, self._map_size))

    def _resize(self, size: int) -> None:
        with self._gate.without_transactions(self.path, "grown, although it is full,"):
            self.look()
            self.file.check()
            try:
                self.lmdb.set_mapsize(size)
            except lmdb.Error as error:
                raise StoreFull(
                    f"the map of {self.path} can't grow to {size:,} bytes: {error}"
                ) from error

    def sync(self, until: float | None = None) -> bool:
        """As `SyncSchedule.sync`."""
        return self._sync_schedule.sync(self._hand_over, until)

    def _hand_over(self) -> None:
        """Sync the file, which any process may have open, or none."""
        with self._gate.watch() as is_awake:
            if is_awake:
                self.lmdb.sync(True)
                return
        with suppress(FileNotFoundError):
            sync_file(self.file.path)

    def close(self) -> None:
        with suppress(WriteError):
            self.sync()
        self._sync_schedule.end(self._close)

    def _close(self) -> None:
        with process_locks.open_lock:
            self.lmdb.close()

    def after_fork(self) -> None:
        """In a child: close it to open it anew or, if it was in use, never touch it again.

        Ending a transaction of the parent, even at exit, would free the parent's reader slot.
        """
        if not self._gate.is_in_use:
            self.lmdb.close()
            return
        for inherited in (self.lmdb, *self._transactions):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))
