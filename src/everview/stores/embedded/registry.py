"""The LMDB environments that are open in this process, by path; and the thread that syncs them.

The number of open files of a process is limited. Before it reaches the limit, the registry closes
environments that nobody uses; the next use opens them again.
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
from everview.stores.embedded import process_locks, syncing
from everview.stores.embedded.environment import Environment
from everview.stores.embedded.files import Home
from everview.stores.embedded.lmdb_errors import FILES

# with more environments than this, maps begin small, or they would fill the address space
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
            environment = self._open.get(path)
            if environment is not None and environment.file.is_gone:
                self._open.pop(path).retire()
                environment = None
            if environment is None:
                self._make_room()
                environment = self._open[path] = Environment(
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
            elif not readonly and environment.readonly:
                environment.durability = durability
                environment.make_writable()
            elif not readonly and environment.durability != durability:
                raise DatabaseError(
                    f"{path} is open in this process with durability {environment.durability!r}; "
                    f"close that handle before opening it with {durability!r}"
                )
            environment.holders += 1
            return environment

    def wake(self, environment: Environment) -> None:
        """Open an environment that sleeps; without the lock, since that may wait for a writer."""
        with self.lock:
            self._make_room()
        environment.wake()

    def _make_room(self) -> None:
        """If the process has no room for more files, close the environments idle for longest."""
        awake = [environment for environment in self._open.values() if not environment.is_asleep]
        if len(awake) >= _most() and len(awake) >= _most_if_raised():
            awake.sort(key=lambda environment: environment.last_used)
            for environment in awake[: len(awake) // 4 + 1]:
                environment.sleep()

    def sync_soon(self) -> None:
        _syncer.wake()

    def release(self, environment: Environment) -> None:
        with self.lock:
            environment.holders -= 1
            if environment.holders == 0 and self._open.get(environment.path) is environment:
                del self._open[environment.path]
                environment.close()

    def let_go(self, environment: Environment) -> None:
        """Release an environment whose files are gone; its readers may finish."""
        with self.lock:
            environment.holders -= 1
            if environment.holders == 0:
                if self._open.get(environment.path) is environment:
                    del self._open[environment.path]
                environment.retire()

    def remove(self, directory: str) -> None:
        """Delete a directory, and let go of all environments below it."""
        prefix = os.path.join(os.path.realpath(directory), "")
        with self.lock:  # else one could be opened anew while its files go
            shutil.rmtree(directory, ignore_errors=True)
            environments = [
                self._open.pop(path) for path in list(self._open) if path.startswith(prefix)
            ]
        for environment in environments:
            environment.retire()

    def sync(self, until: float) -> bool:
        """Sync all that is due by `until`; False if some is not due yet, or failed."""
        with self.lock:
            environments = list(self._open.values())
        is_synced = True
        for environment in environments:
            try:
                is_synced &= environment.sync(until)
            except WriteError:
                is_synced = False
        return is_synced

    def after_fork(self) -> None:
        """A child opens environments anew; those its parent was using stay closed to it."""
        inherited = list(self._open.values())
        self.__init__()  # type: ignore[misc]
        for environment in inherited:
            environment.after_fork()


def _most() -> float:
    """How many environments this process may have open: they may take 3/4 of its files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return inf if soft == resource.RLIM_INFINITY else soft * 3 / 4 / FILES


def _most_if_raised() -> float:
    """As `_most`, after raising the limit of open files as far as the system allows."""
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
            time.sleep(syncing.SYNC_SECONDS)
            self._wake.clear()
            if not registry.sync(time.monotonic()):
                self._wake.set()


def _forget_parent() -> None:
    global _syncer
    process_locks.forget_locks()
    registry.after_fork()
    _syncer = _Syncer()


registry = Registry()
_syncer = _Syncer()
os.register_at_fork(after_in_child=_forget_parent)
