"""The LMDB environments that are open in this process, by path; and the thread that syncs them.

A process may have so many files open. Before it meets that limit, environments that nobody uses are
closed; who uses one again opens it anew.
"""

from __future__ import annotations

import os
import resource
import shutil
import threading
import time
from contextlib import suppress
from math import inf

from everview.errors import DatabaseError, WriteError
from everview.stores.embedded import environment as environments
from everview.stores.embedded.environment import FILES, Environment
from everview.stores.embedded.files import Home

# beyond so many environments maps begin small, or they would fill what can be mapped
MANY_MAPS = 1000


class Registry:
    """The environments open in this process, by path."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._open: dict[str, Environment] = {}

    def acquire(
        self,
        home: Home,
        path: str,
        names: tuple[str, ...],
        durability: str,
        map_size: int,
        readonly: bool = False,
        create: bool = False,
    ) -> Environment:
        """The environment at a path below the directory of a database."""
        path = os.path.realpath(os.path.join(home.path, path))
        with self.lock:
            found = self._open.get(path)
            if found is not None and found.file.is_gone:
                self._open.pop(path).retire()
                found = None
            if found is None:
                self._make_room()
                found = self._open[path] = Environment(
                    self,
                    home,
                    path,
                    names,
                    durability,
                    map_size,
                    readonly,
                    create,
                    is_small=len(self._open) >= MANY_MAPS,
                )
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

    def wake(self, environment: Environment) -> None:
        """Open one that sleeps; not with the lock held, since that may wait for a writer."""
        with self.lock:
            self._make_room()
        environment.wake()

    def _make_room(self) -> None:
        """If there is none for the files of one more, close those that were idle for longest."""
        awake = [one for one in self._open.values() if not one.is_asleep]
        if len(awake) >= _most() and len(awake) >= _most_if_raised():
            awake.sort(key=lambda one: one.used)
            for one in awake[: len(awake) // 4 + 1]:
                one.sleep()

    def written(self) -> None:
        _syncer.wake()

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
            opened = list(self._open.values())
        synced = True
        for environment in opened:
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


def _most() -> float:
    """How many environments this process may have open: their files are most of those it may."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return inf if soft == resource.RLIM_INFINITY else soft * 3 / 4 / FILES


def _most_if_raised() -> float:
    """The same when the limit has been raised to where it may be."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems refuse what they said is allowed
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return _most()


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
            time.sleep(environments.SYNC_SECONDS)
            self._wake.clear()
            if not registry.sync(time.monotonic()):
                self._wake.set()


def _forget_parent() -> None:
    global _syncer
    environments.forget_locks()
    registry.after_fork()
    _syncer = _Syncer()


registry = Registry()
_syncer = _Syncer()
os.register_at_fork(after_in_child=_forget_parent)
