"""The states of operators and views: a directory for each, with an environment for each shard.

State is synced late, unless durability is "always": it can be made again. While some of it is not
on the device, the record `unsynced` names the boot of the machine in which it was written; that
record itself is synced before. Who finds the name of another boot knows that state may be lost.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb

from everview.catalog import UNSYNCED, Unsynced
from everview.errors import EverviewError, StoreFull, WriteError
from everview.stores.base import WORK, States
from everview.stores.embedded.lease import locked
from everview.stores.embedded.registry import registry
from everview.stores.embedded.shard import DATABASES, EmbeddedShard, lock_of
from everview.stores.embedded.syncing import SYNC_FAILED, sync_file

if TYPE_CHECKING:
    from everview.stores.embedded.store import EmbeddedStore

_DIRECTORY = "state"
_FENCE_PATIENCE = 1.0


class EmbeddedStates(States):
    """The states of a store; it keeps the store open as long as it is used."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store

    def shard(self, state: str, number: int) -> EmbeddedShard:
        store = self._store
        return EmbeddedShard(store.environment(path_of(state, number), DATABASES), store)

    def create(self, state: str, shards: Sequence[int]) -> None:
        for number in shards:
            self._store.environment(path_of(state, number), DATABASES, create=True)

    def names(self) -> list[str]:
        directory = os.path.join(self._store.path, _DIRECTORY)
        return os.listdir(directory) if os.path.isdir(directory) else []

    def shards(self, state: str) -> list[int]:
        """The shards of a state that there are."""
        try:
            names = os.listdir(os.path.join(self._store.path, _DIRECTORY, state))
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in names if name.isdigit())

    def drop(self, state: str) -> None:
        self._store.remove(os.path.join(_DIRECTORY, state))

    def fence(self, state: str, shards: Sequence[int], token: int) -> str:
        """A maintainer that was stopped in the middle of a write keeps LMDB's lock. Then a copy
        takes the place of the state, and what the other still writes is lost with the original."""
        try:
            for number in shards:
                path = os.path.join(self._store.path, path_of(state, number))
                with locked(lock_of(path), _FENCE_PATIENCE):
                    self.shard(state, number).fence(token)
            return state
        except TimeoutError:
            copy = uuid.uuid4().hex[:12]
            try:
                for number in shards:
                    self._copy(state, copy, number)
                    self.shard(copy, number).fence(token)
            except BaseException:
                self.drop(copy)
                raise
            return copy

    def _copy(self, state: str, copy: str, number: int) -> None:
        path, target = path_of(state, number), os.path.join(self._store.path, path_of(copy, number))
        environment = self._store.environment_to_copy(path, DATABASES)
        try:
            os.makedirs(target)
            with environment.awake():
                environment.lmdb.copy(target, compact=True)  # else it would wait for the writer
        except (lmdb.Error, OSError) as error:
            raise StoreFull(f"{path} can't be copied: {error}; make room") from error
        finally:
            registry.release(environment)

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
            for state in self.names():
                hand_over(os.path.join(store.path, _DIRECTORY, state))
            hand_over(os.path.join(store.path, "catalog"))
            store.catalog.write({UNSYNCED: None}, token)

    def settle_at_close(self) -> None:
        """As `settle`, if nobody maintains views now; if it fails, the record stays."""
        with suppress(EverviewError), self._store.leases.hold_if_free(WORK) as token:
            if token is not None:
                self.settle(token)


def path_of(state: str, number: int) -> str:
    """The directory of a shard, in that of the database."""
    return os.path.join(_DIRECTORY, state, str(number))


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
