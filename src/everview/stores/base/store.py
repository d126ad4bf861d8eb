"""A store: tables, catalog, states, leases and pins under one address."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

from everview.stores.base.catalog import Catalog
from everview.stores.base.leases import Leases
from everview.stores.base.pins import Pins
from everview.stores.base.reader import Reader
from everview.stores.base.states import States
from everview.stores.base.tables import Tables


@dataclass(frozen=True)
class Abilities:
    """What a store can do; strategies, loads and capture of changes follow from it.

    exact_snapshots: a scan can be asked for the rows at a position of the log.
    before_images: changes carry the row that was there before.
    rising_versions: the version of a row rises with every write, also over deletes.
    pushed_filters: scans take conditions, and leave out rows that fail them.
    observers: programs can be attached to writes.
    is_remote: other machines can open it by its address.
    """

    exact_snapshots: bool
    before_images: bool
    rising_versions: bool
    pushed_filters: bool
    observers: bool
    is_remote: bool


@dataclass(frozen=True)
class Space:
    """Bytes on disk, how many of them are free and can be given back, and how many more the readers
    of each process keep."""

    bytes: int = 0
    free: int = 0
    held: dict[int, int] = field(default_factory=dict)

    def __add__(self, other: Space) -> Space:
        processes = sorted({*self.held, *other.held})
        held = {p: self.held.get(p, 0) + other.held.get(p, 0) for p in processes}
        return Space(self.bytes + other.bytes, self.free + other.free, held)


@dataclass(frozen=True)
class Compaction:
    """The space before and after, and why some parts were left as they are."""

    before: Space
    after: Space
    skipped: dict[str, str]

    @property
    def given_back(self) -> int:
        """Bytes; others may have written meanwhile."""
        return max(0, self.before.bytes - self.after.bytes)


class Store(Tables, Reader):
    """The only door to a store. Threads may share it, and a forked child may go on using it."""

    @property
    @abstractmethod
    def abilities(self) -> Abilities: ...

    @property
    @abstractmethod
    def catalog(self) -> Catalog: ...

    @property
    @abstractmethod
    def states(self) -> States: ...

    @property
    @abstractmethod
    def leases(self) -> Leases: ...

    @property
    @abstractmethod
    def pins(self) -> Pins: ...

    @abstractmethod
    def space(self) -> Space:
        """The space of the store, without parts that are damaged or were dropped meanwhile."""

    @abstractmethod
    def compact(self, watch: Callable[[str, int, int], None] | None = None) -> Compaction:
        """Give back what is free, beside readers and writers. `watch` gets the name of each part,
        how many parts are done, and how many there are."""

    @abstractmethod
    def failed_syncs(self) -> dict[str, str]:
        """Why some data can't be handed to the device, by its place."""

    @abstractmethod
    def close(self) -> None:
        """Release everything; what was written is handed to the device first."""
