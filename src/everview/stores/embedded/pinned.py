"""A store as of one moment: read transactions that stay open, on shards and regions.

Each group is at the epoch that it had committed at that moment. What the maintainer may be writing
when they are opened is of the next epoch, and rows of views keep what they were before it. If an
epoch is committed meanwhile, they are opened again. When they reach an age that may be set, they
end, so that what they keep from being used again is free.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import lmdb
import pyarrow as pa

from everview.catalog import UNSYNCED, VIEWS, Positions
from everview.errors import (
    DatabaseError,
    EverviewError,
    NotLoaded,
    PinExpired,
    ReadOnly,
    TableNotFound,
)
from everview.stores.base import SUSPECT, PinnedCatalog, PinnedStore, StateReader
from everview.stores.embedded.environment import Environment
from everview.stores.embedded.layout import Layout
from everview.stores.embedded.reading import EmbeddedReader
from everview.stores.embedded.region import Region
from everview.stores.embedded.scan import undo
from everview.stores.embedded.shard import EmbeddedShard
from everview.stores.embedded.states import is_of_another_boot
from everview.stores.embedded.volumes import place_of

if TYPE_CHECKING:
    from everview.stores.embedded.store import EmbeddedStore

PATIENCE = 60.0


class PinnedStates(StateReader):
    """The rows of views as they were when they were pinned."""

    def __init__(
        self, environments: Mapping[tuple[str, int], HeldEnvironment], owner: object
    ) -> None:
        self._environments = environments
        self._owner = owner

    def shard(self, state: str, number: int) -> EmbeddedShard:
        directory, prefix = place_of(state)
        return EmbeddedShard(self._environments[directory, number], self._owner, prefix)

    @property
    def is_suspect(self) -> bool:
        return False  # or it would not have been pinned


class EmbeddedPin(EmbeddedReader, PinnedStore):
    """Views and tables of a store, by default all, as of its newest epochs; only reads, until it
    is closed, or is `max_age` seconds old."""

    def __init__(
        self,
        store: EmbeddedStore,
        views: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        max_age: float | None = None,
    ) -> None:
        self._store = store
        self._hold = Hold()
        deadline = time.monotonic() + PATIENCE
        while not self._open(views, tables):
            if time.monotonic() > deadline:
                raise DatabaseError(
                    f"{store.path} changed so often that no single moment could be pinned within "
                    f"{PATIENCE:.0f} seconds; pin fewer views and tables"
                )
        if max_age is not None:
            self._hold.end_after(max_age)

    def _open(self, views: Sequence[str] | None, tables: Sequence[str] | None) -> bool:
        """Open all; False if an epoch was committed, or a view or table changed, meanwhile.

        An error counts only if nothing changed: a view or table may be dropped meanwhile.
        """
        glance = records, layouts = self._store.catalog.glance(views, tables)
        if is_of_another_boot(records.get(UNSYNCED)):
            raise NotLoaded(SUSPECT)
        self._catalog = PinnedCatalog(records)
        positions = self._catalog.positions if layouts else {}
        try:
            places = {
                (place_of(view.rows)[0], number)
                for view in self._catalog.all(VIEWS).values()
                if view.is_loaded
                for number in view.shards
            }
            environments = {
                place: self._pin_environment(self._store.states.environment(*place))
                for place in places
            }
            self._states = PinnedStates(environments, self)
            self._regions_of = {
                name: self._regions_at(layout, positions) for name, layout in layouts.items()
            }
        except EverviewError:
            self._hold.close()
            if self._store.catalog.glance(views, tables) == glance:
                raise
            return False
        if self._store.catalog.glance(views, tables) == glance:
            return True
        self._hold.close()
        return False

    def _regions_at(self, layout: Layout, positions: Positions) -> list[PinnedRegion]:
        at = positions.get(layout.schema.name, {})
        return [
            PinnedRegion(
                layout,
                region.number,
                self._pin_environment(region.environment),
                at.get(region.number),
            )
            for region in self._store._all_regions(layout)
        ]

    def _pin_environment(self, environment: Environment) -> HeldEnvironment:
        return HeldEnvironment(environment, self._hold)

    @property
    def positions(self) -> dict[str, dict[int, int]]:
        return {
            first.layout.schema.name: {region.number: region.position for region in regions}
            for regions in self._regions_of.values()
            for first in regions[:1]
        }

    @property
    def address(self) -> str:
        return self._store.address

    @property
    def catalog(self) -> PinnedCatalog:
        return self._catalog

    @property
    def states(self) -> PinnedStates:
        return self._states

    def tables(self) -> list[str]:
        return self._store.tables()

    def _layout(self, table: str, to_write: bool = False) -> Layout:
        """As it was when this was pinned."""
        if to_write:
            raise ReadOnly("a pin only reads; write through the database itself")
        if pinned := self._regions_of.get(table.lower()):
            return pinned[0].layout
        return self._store._layout(table)

    def _region(self, layout: Layout, number: int) -> Region:
        try:
            return self._regions_of[layout.schema.name.lower()][number]
        except KeyError:
            raise TableNotFound(
                f"table {layout.schema.name} is not in this pin; name it in db.pin(...)"
            ) from None

    def scan(self, table: str, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        at = self.positions.get(self.describe(table).name)
        return super().scan(table, *args, **options | {"at": at})

    def times_after(self, table: str, after: Mapping[int, int]) -> dict[int, datetime]:
        return self._store.times_after(table, after)

    def close(self) -> None:
        self._hold.close()


class Hold:
    """Read transactions that are open together, with a count of their users.

    They end when they are too old, but not before their users have finished.
    """

    def __init__(self) -> None:
        self._transactions = ExitStack()
        self._lock = threading.Lock()
        self._users = 0
        self._max_age: float | None = None
        self._is_over = False
        self._timer: threading.Timer | None = None

    def begin(self, environment: Environment) -> lmdb.Transaction:
        return self._transactions.enter_context(environment.reading())

    def end_after(self, seconds: float) -> None:
        self._max_age = seconds
        self._timer = threading.Timer(seconds, _end, [weakref.ref(self)])
        self._timer.daemon = True
        self._timer.start()

    @contextmanager
    def using(self) -> Iterator[None]:
        with self._lock:
            if self._is_over:
                raise PinExpired(
                    f"this pin has reached its limit of {self._max_age:g} seconds and has ended; "
                    "open a new pin, with a larger max_age if you need it for longer"
                )
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                self._close_if_over()

    def end(self) -> None:
        with self._lock:
            self._is_over = True
            self._close_if_over()

    def _close_if_over(self) -> None:
        if self._is_over and not self._users:
            self._transactions.close()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._transactions.close()


def _end(reference: weakref.ref[Hold]) -> None:
    """End a hold that is too old, unless nobody has it any more."""
    if (hold := reference()) is not None:
        hold.end()


class HeldEnvironment(Environment):
    """An environment in a read transaction that is open already."""

    def __init__(self, environment: Environment, hold: Hold) -> None:
        self.path = environment.path
        self.file = environment.file
        self._hold = hold
        self._txn = hold.begin(environment)
        self.dbs = environment.dbs

    @contextmanager
    def reading(self) -> Iterator[lmdb.Transaction]:
        with self._hold.using():
            yield self._txn


class PinnedRegion(Region):
    """A region as it was at a position of its log, by default that of its transaction."""

    def __init__(
        self, layout: Layout, number: int, environment: HeldEnvironment, position: int | None
    ) -> None:
        super().__init__(layout, number, environment)
        with environment.reading() as txn:
            self.position = super().last(txn) if position is None else position

    @cached_property
    def _undo(self) -> dict[bytes, bytes]:
        with self.environment.reading() as txn:
            return undo(self, txn, self.position)

    def get(self, txn: lmdb.Transaction, key: bytes) -> bytes | None:
        before = self._undo.get(key)
        return super().get(txn, key) if before is None else before or None

    def get_many(self, txn: lmdb.Transaction, keys: list[bytes]) -> list[tuple[bytes, bytes]]:
        rows = dict(super().get_many(txn, keys))
        rows |= {key: self._undo[key] for key in keys if key in self._undo}
        return [(key, rows[key]) for key in keys if rows.get(key)]

    def count(self, txn: lmdb.Transaction) -> int:
        current_rows = sum(
            super(PinnedRegion, self).get(txn, key) is not None for key in self._undo
        )
        return super().count(txn) - current_rows + sum(map(bool, self._undo.values()))
