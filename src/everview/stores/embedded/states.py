"""The states of operators and views, in volumes: a directory for each, with an environment for each
shard. A state that is in no volume has a directory for itself.

State is synced late, unless durability is "always": it can be made again. While some of it is not
on the device, the record `unsynced` names the boot of the machine in which it was written; that
record itself is synced before. Who finds the name of another boot knows that state may be lost.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import lmdb

from everview.catalog import UNSYNCED, Unsynced
from everview.errors import Damaged, EverviewError, StoreFull, WriteError
from everview.stores.base import WORK, States
from everview.stores.embedded.environment import Environment
from everview.stores.embedded.lease import locked
from everview.stores.embedded.registry import registry
from everview.stores.embedded.shard import DATABASES, EmbeddedShard, prefixes_in, sweep
from everview.stores.embedded.syncing import SYNC_FAILED, sync_file
from everview.stores.embedded.together import lock_of, together
from everview.stores.embedded.volumes import (
    directory_of,
    is_volume,
    numbered,
    numbers_of,
    place_of,
    state_at,
)

if TYPE_CHECKING:
    from everview.stores.embedded.store import EmbeddedStore

_DIRECTORY = "state"
_FENCE_PATIENCE = 1.0
T = TypeVar("T")


class EmbeddedStates(States):
    """The states of a store; it keeps the store open as long as it is used."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store

    def shard(self, state: str, number: int) -> EmbeddedShard:
        directory, prefix = place_of(state)
        return EmbeddedShard(self.environment(directory, number), self._store, prefix)

    def environment(self, directory: str, number: int, create: bool = False) -> Environment:
        """The environment of the shards with a number of a volume, or of a state."""
        return self._store.environment(path_of(directory, number), DATABASES, create)

    @contextmanager
    def _reading(self, directory: str, number: int) -> Iterator[Environment]:
        """An environment, only to be read: who opens one to write waits for a write in progress,
        perhaps of a maintainer that was stopped."""
        path = path_of(directory, number)
        environment = self._store.environment_to_read(path, DATABASES)
        try:
            yield environment
        finally:
            registry.release(environment)

    def together(self, work: Callable[[], T]) -> T:
        return together(work)

    @property
    def volume(self) -> str:
        """The newest of the volumes that are numbered, or the next one if its files are damaged."""
        name = self._newest()
        directory = directory_of(name)
        try:
            for number in self.shards(directory):
                self.environment(directory, number).look()
        except Damaged:
            self._make_next()
            return self.volume
        return name

    def _newest(self) -> str:
        return numbered(max(numbers_of(self.directories()), default=0))

    def renew(self, states: Collection[str]) -> None:
        if directory_of(self._newest()) in {place_of(state)[0] for state in states}:
            self._make_next()

    def _make_next(self) -> None:
        directory = directory_of(numbered(max(numbers_of(self.directories()), default=0) + 1))
        os.makedirs(os.path.join(self._store.path, _DIRECTORY, directory))

    def create(self, state: str, shards: Sequence[int]) -> None:
        directory, prefix = place_of(state)
        for number in shards:
            environment = self.environment(directory, number, create=True)
            if prefix:
                EmbeddedShard(environment, self._store, prefix).make()

    def directories(self) -> list[str]:
        """The directories of volumes, and of states that have one for themselves."""
        directory = os.path.join(self._store.path, _DIRECTORY)
        return sorted(os.listdir(directory)) if os.path.isdir(directory) else []

    def names(self) -> list[str]:
        names = []
        for directory in self.directories():
            if not is_volume(directory):
                names.append(directory)
            elif shards := self.shards(directory):
                with suppress(Damaged), self._reading(directory, shards[0]) as environment:
                    prefixes = prefixes_in(environment)
                    names += [state_at(directory, prefix) for prefix in prefixes]
        return names

    def shards(self, directory: str) -> list[int]:
        """The shards of a volume, or of a state that has a directory for itself."""
        try:
            names = os.listdir(os.path.join(self._store.path, _DIRECTORY, directory))
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in names if name.isdigit())

    def drop(self, *states: str, used: Collection[str] = ()) -> None:
        # the newest volume stays, or another would come to be at its path
        stays = {directory_of(self._newest()), *(place_of(state)[0] for state in used)}
        for directory in {place_of(state)[0] for state in states} - stays:
            self._store.remove(os.path.join(_DIRECTORY, directory))
        for state in states:
            directory, prefix = place_of(state)
            if prefix and directory in stays:
                # the first shard last, since it says which states there are
                for number in reversed(self.shards(directory)):
                    with suppress(Damaged):
                        self.shard(state, number).delete()

    def sweep(self) -> bool:
        is_more_left = False
        for directory in filter(is_volume, self.directories()):
            for number in self.shards(directory):
                with suppress(Damaged):
                    is_more_left |= sweep(self.environment(directory, number))
        return is_more_left

    def fence(self, states: Collection[str], token: int) -> dict[str, str]:
        """A maintainer that was stopped in the middle of a write keeps LMDB's lock. Then a copy
        takes the place of the files, and what the other still writes is lost with them."""
        moved = {}
        for directory in {place_of(state)[0] for state in states}:
            with suppress(Damaged):  # a view that needs it stops
                moved[directory] = self._fenced(directory, token)
        names = {}
        for state in states:
            directory, prefix = place_of(state)
            names[state] = state_at(moved.get(directory, directory), prefix)
        return names

    def _fenced(self, directory: str, token: int) -> str:
        try:
            for number in self.shards(directory):
                path = os.path.join(self._store.path, path_of(directory, number))
                with locked(lock_of(path), _FENCE_PATIENCE):
                    self._fence(directory, number, token)
            return directory
        except TimeoutError:
            copy = self._name_of_copy(directory)
            try:
                for number in self.shards(directory):
                    self._copy(directory, copy, number)
                    self._fence(copy, number, token)
            except BaseException:
                self._store.remove(os.path.join(_DIRECTORY, copy))
                raise
            return copy

    def _fence(self, directory: str, number: int, token: int) -> None:
        EmbeddedShard(self.environment(directory, number), self._store).fence(token)

    def _name_of_copy(self, directory: str) -> str:
        if numbers_of([directory]):
            return directory_of(numbered(max(numbers_of(self.directories())) + 1))
        name = uuid.uuid4().hex[:12]
        return directory_of(name) if is_volume(directory) else name

    def _copy(self, directory: str, copy: str, number: int) -> None:
        path = path_of(directory, number)
        target = os.path.join(self._store.path, path_of(copy, number))
        with self._reading(directory, number) as environment:
            try:
                os.makedirs(target)
                with environment.awake():
                    environment.lmdb.copy(target, compact=True)
            except (lmdb.Error, OSError) as error:
                raise StoreFull(f"{path} can't be copied: {error}; make room") from error

    @property
    def is_suspect(self) -> bool:
        return is_of_another_boot(self._store.catalog.get(UNSYNCED))

    def begin(self, token: int) -> None:
        store = self._store
        store.settles = True
        if store.durability != "always" and store.catalog.get(UNSYNCED) is None:
            store.catalog.write({UNSYNCED: Unsynced(boot_id())}, token)
            hand_over(os.path.join(store.path, "catalog"))

    def settle(self, token: int) -> None:
        store = self._store
        if store.catalog.get(UNSYNCED) == Unsynced(boot_id()):
            for directory in self.directories():
                hand_over(os.path.join(store.path, _DIRECTORY, directory))
            hand_over(os.path.join(store.path, "catalog"))
            store.catalog.write({UNSYNCED: None}, token)

    def settle_at_close(self) -> None:
        """As `settle`, if nobody maintains views now; if it fails, the record stays."""
        with suppress(EverviewError), self._store.leases.hold_if_free(WORK) as token:
            if token is not None:
                self.settle(token)


def path_of(directory: str, number: int) -> str:
    """The path of an environment with shards, in the directory of the database."""
    return os.path.join(_DIRECTORY, directory, str(number))


@cache
def boot_id() -> str:
    """A name for the current boot of the machine; empty where the system has none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def is_of_another_boot(record: Unsynced | None) -> bool:
    return record is not None and record != Unsynced(boot_id())


def hand_over(path: str) -> None:
    """Hand to the device what any process has written in LMDB environments below a directory."""
    for directory, _, names in os.walk(path):
        parts = [os.path.join(directory, "data.mdb")] if "data.mdb" in names else []
        note = os.path.join(directory, SYNC_FAILED)
        try:
            for part in (*parts, directory):
                sync_file(part)
        except OSError as error:
            with suppress(OSError):
                Path(note).write_text(str(error))
            raise WriteError(
                f"{directory} could not be synced: {error}. The data is written, but may not "
                "survive a crash of the machine."
            ) from error
        with suppress(OSError):
            os.unlink(note)
