"""Calls of the store that fail: the n-th write, sync or read, once or for good."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import lmdb
import pytest

from everview.errors import DatabaseError, WriteError
from everview.stores.embedded.environment import Environment
from everview.stores.embedded.registry import Registry
from everview.stores.embedded.state import ShardState


class Calls:
    """Counts calls, and says which are to fail: the step-th, or all from there on; 0 is none."""

    def __init__(self, step: int = 0, for_good: bool = False) -> None:
        self.fail_at(step, for_good)

    def fail_at(self, step: int, for_good: bool = False) -> None:
        """Count anew."""
        self._numbers = count(1)
        self._step = step
        self._for_good = for_good
        self.made = 0

    def is_due(self) -> bool:
        self.made = next(self._numbers)
        return self.made == self._step or (self._for_good and self.made > self._step > 0)


class FailingSync:
    """An LMDB environment whose syncs only count, and fail when it is their turn."""

    def __init__(self, environment: lmdb.Environment, calls: Calls) -> None:
        self.environment = environment
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self.environment, name)

    def sync(self, force: bool) -> None:
        if self._calls.is_due():
            raise lmdb.DiskError(f"sync {self._calls.made} fails")


def fail_at_write(patch: pytest.MonkeyPatch, calls: Calls) -> None:
    update = Environment.update

    def at(self: Environment, work: Callable[[Any], Any]) -> Any:
        if calls.is_due():
            raise WriteError(f"write {calls.made} of {self.path} fails")
        return update(self, work)

    patch.setattr(Environment, "update", at)


def fail_at_sync(patch: pytest.MonkeyPatch, calls: Calls) -> None:
    """Every write is synced at once; one whose sync fails is there, but not acknowledged."""
    patch.setattr(Registry, "sync", lambda registry, until: True)
    update = Environment.update

    def at(self: Environment, work: Callable[[Any], Any]) -> Any:
        done = update(self, work)
        if not isinstance(self.lmdb, FailingSync):
            self.lmdb = FailingSync(self.lmdb, calls)
        self.sync()
        return done

    patch.setattr(Environment, "update", at)


def fail_at_read(patch: pytest.MonkeyPatch, calls: Calls) -> None:
    """Reads of definitions, logs and tables are transactions; those of state are in a write's."""
    reading = Environment.reading

    def check(what: str) -> None:
        if calls.is_due():
            raise DatabaseError(f"read {calls.made} of {what} fails")

    @contextmanager
    def read(self: Environment) -> Iterator[Any]:
        check(self.path)
        with reading(self) as txn:
            yield txn

    def checked(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            check("state")
            return method(*arguments, **named)

        return call

    patch.setattr(Environment, "reading", read)
    for name in ("get_many", "get_bags", "count_rows", "first"):
        patch.setattr(ShardState, name, checked(getattr(ShardState, name)))
