"""A store as of one committed epoch: read transactions that stay open, on shards and regions.

What the maintainer may be writing when they are opened is of the next epoch, and rows of views
keep what they were before it. If an epoch is committed meanwhile, they are opened again. When they
reach an age that may be set, they end, so that what they keep from being used again is free.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import cached_property
from typing import Any

import lmdb
import pyarrow as pa

from everview.errors import (
    DatabaseError,
    EverviewError,
    NotLoaded,
    PinExpired,
    ReadOnly,
    TableNotFound,
)
from everview.stores.embedded import unsynced
from everview.stores.embedded.catalog import Catalog
from everview.stores.embedded.environment import Environment
from everview.stores.embedded.layout import Layout
from everview.stores.embedded.region import Region
from everview.stores.embedded.scan import undo
from everview.stores.embedded.state import Shard
from everview.stores.embedded.store import EmbeddedStore

PATIENCE = 60.0
Documents = dict[str, dict[str, Any]]


def is_loaded(view: Mapping[str, Any]) -> bool:
    """Whether a view's document says that there are rows of it to read."""
    return view["status"] == "live" or bool(view.get("stopped_at"))


class PinnedStore(EmbeddedStore):
    """Views and tables of a store, by default all, as of its newest epoch; only reads, until it is
    closed, or is `max_age` seconds old."""

    def __init__(
        self,
        store: EmbeddedStore,
        views: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        max_age: float | None = None,
    ) -> None:
        self.path = store.path
        self.durability = store.durability
        self._store = store
        self._hold = Hold()
        deadline = time.monotonic() + PATIENCE
        while not self._open(views, tables):
            if time.monotonic() > deadline:
                raise DatabaseError(
                    f"{self.path} changed so often that no single epoch could be pinned within "
                    f"{PATIENCE:.0f} seconds; pin fewer views and tables"
                )
        if max_age is not None:
            self._hold.end_after(max_age)

    def _open(self, views: Sequence[str] | None, tables: Sequence[str] | None) -> bool:
        """False if an epoch was committed, or a view or table changed, before all was open.

        What was found may be gone by then: whatever fails because of that is no one's error.
        """
        found = self._documents, layouts = self._store.glance(views, tables)
        if unsynced.is_suspect(self._documents.get(unsynced.DOCUMENT)):
            raise NotLoaded(unsynced.SUSPECT)
        try:
            self._shards = {
                (state, number): self._held(self._store.shard(state, number)._environment)
                for name, document in self._documents.items()
                if name.startswith("view/") and is_loaded(document)
                for state in [document["states"]["view"]]
                for number in document["shards"]
            }
            self._regions_of = {name: self._regions_at(layout) for name, layout in layouts.items()}
        except EverviewError:
            self._hold.close()
            if self._store.glance(views, tables) == found:
                raise
            return False
        if self._store.glance(views, tables) == found:
            return True
        self._hold.close()
        return False

    def _regions_at(self, layout: Layout) -> list[PinnedRegion]:
        positions = self._documents.get("epoch", {"positions": {}})["positions"]
        at = positions.get(layout.schema.name, {})
        return [
            PinnedRegion(layout, one.number, self._held(one.environment), at.get(str(one.number)))
            for one in self._store._all_regions(layout)
        ]

    def _held(self, environment: Environment) -> HeldEnvironment:
        return HeldEnvironment(environment, self._hold)

    @property
    def positions(self) -> dict[str, dict[int, int]]:
        """The pinned position in the log of each region of each table."""
        return {
            one.layout.schema.name: {region.number: region.position for region in regions}
            for regions in self._regions_of.values()
            for one in regions[:1]
        }

    @property
    def _catalog(self) -> Catalog:
        return self._store._catalog

    @property
    def _catalog_to_write(self) -> Catalog:
        raise ReadOnly("a pin only reads; write through the database itself")

    def _layout(self, table: str, to_write: bool = False) -> Layout:
        """As it was when this was pinned."""
        if not to_write and (pinned := self._regions_of.get(table.lower())):
            return pinned[0].layout
        return super()._layout(table, to_write)

    def _check_process(self) -> None:
        self._store._check_process()

    def _let_go_of_dropped(self) -> None:
        self._store._let_go_of_dropped()

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

    def document(self, name: str) -> dict[str, Any] | None:
        return self._documents.get(name)

    def documents(self, prefix: str) -> Documents:
        return {n: document for n, document in self._documents.items() if n.startswith(prefix)}

    def shard(self, state: str, number: int, create: bool = False) -> Shard:
        return Shard(self._shards[state, number], self)

    def times_after(self, table: str, after: Mapping[int, int]) -> dict[int, datetime]:
        return self._store.times_after(table, after)

    def close(self) -> None:
        self._hold.close()


class Hold:
    """Read transactions that are open together; those who use them are counted.

    When they are too old they end, but not under who uses one: that may finish.
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
    """At the end of its time; a pin that nobody has any more has ended itself."""
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
        found = self._undo.get(key)
        return super().get(txn, key) if found is None else found or None

    def get_many(self, txn: lmdb.Transaction, keys: list[bytes]) -> list[tuple[bytes, bytes]]:
        found = dict(super().get_many(txn, keys))
        found |= {key: self._undo[key] for key in keys if key in self._undo}
        return [(key, found[key]) for key in keys if found.get(key)]

    def count(self, txn: lmdb.Transaction) -> int:
        now = sum(super(PinnedRegion, self).get(txn, key) is not None for key in self._undo)
        return super().count(txn) - now + sum(map(bool, self._undo.values()))
