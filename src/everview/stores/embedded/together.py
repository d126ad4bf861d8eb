"""Writes to shards: each in a transaction of its own, or many of a thread together.

Together they need one transaction for each environment, however many states lie in it. A process
that is killed between two commits leaves what the law of states allows: some shards have done the
epoch, others have not, and those that have answer a second time from their outbox.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import lmdb

from everview.stores.embedded.environment import Environment
from everview.stores.embedded.lease import locked

T = TypeVar("T")
_thread = threading.local()


def lock_of(path: str) -> str:
    """The file that is locked while the environment of shards in a directory is written."""
    return os.path.join(path, "write.lock")


def together(work: Callable[[], T]) -> T:
    """Do work; all that it writes to shards in this thread is committed when it ends.

    If it raises, or a write raised inside of it, nothing is committed, and this raises the same.
    It is done again if a map was full.
    """
    if _open_session() is not None:
        return work()
    while True:
        session = _thread.session = _Session()
        try:
            with session.transactions:
                result = work()
                if session.failure is not None:
                    raise session.failure
            return result
        except lmdb.MapFullError:
            if session.full is None:
                raise
        finally:
            _thread.session = None
        session.full.grow()


def update(environment: Environment, work: Callable[[lmdb.Transaction], T]) -> T:
    """Do `work` in a write transaction of an environment of shards, alone or together."""
    if (session := _open_session()) is not None:
        return session.update(environment, work)
    environment.look()  # first, as the file to lock may be gone with the rest
    with locked(lock_of(environment.path)):
        return environment.update(work)


def _open_session() -> _Session | None:
    session: _Session | None = getattr(_thread, "session", None)
    return session


class _Session:
    """Write transactions of one thread, one for each environment that it has written."""

    def __init__(self) -> None:
        self.transactions = ExitStack()
        self.full: Environment | None = None
        self.failure: BaseException | None = None
        self._open: dict[str, lmdb.Transaction] = {}

    def update(self, environment: Environment, work: Callable[[lmdb.Transaction], T]) -> T:
        if environment.path not in self._open:
            environment.look()
            self.transactions.enter_context(locked(lock_of(environment.path)))
            writing = self._writing(environment)
            self._open[environment.path] = self.transactions.enter_context(writing)
        try:
            return work(self._open[environment.path])
        except BaseException as error:  # it may have written a part
            self.failure = self.failure or error
            if isinstance(error, lmdb.MapFullError):
                self.full = environment
            raise

    @contextmanager
    def _writing(self, environment: Environment) -> Iterator[lmdb.Transaction]:
        try:
            with environment.writing() as txn:
                yield txn
        except lmdb.MapFullError:
            self.full = self.full or environment
            raise
