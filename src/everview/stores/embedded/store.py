"""The embedded store: the Store contract over LMDB environments, one for each region.

Durable: a write that returned is in the operating system's hands, so it survives a crash of the
process. Of a crash of the machine, "always" syncs before returning; "interval" syncs a second
later, "never" leaves it to the system: both may lose the last writes, and rely on the file system
to keep the order of writes for what came before.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

import lmdb
import pyarrow as pa

from everview.codec.rows import version_of
from everview.errors import (
    Damaged,
    DatabaseClosed,
    DatabaseError,
    InvalidSchema,
    LogError,
    TableNotFound,
    WrongKey,
)
from everview.schema import Column, TableSchema, check_visible
from everview.stores.base import (
    Abilities,
    Compaction,
    Observer,
    Snapshot,
    Space,
    Store,
    WriteReport,
)
from everview.stores.embedded import catalog, compaction, files
from everview.stores.embedded.catalog import EmbeddedCatalog
from everview.stores.embedded.environment import DURABILITIES, MAP_SIZE, Environment
from everview.stores.embedded.files import Home
from everview.stores.embedded.layout import Layout
from everview.stores.embedded.lease import EmbeddedLeases
from everview.stores.embedded.observers import Observers
from everview.stores.embedded.pins import EmbeddedPins
from everview.stores.embedded.reading import EmbeddedReader
from everview.stores.embedded.region import DATABASES, Part, Region
from everview.stores.embedded.registry import registry
from everview.stores.embedded.snapshot import EmbeddedSnapshot
from everview.stores.embedded.states import EmbeddedStates
from everview.stores.embedded.syncing import SYNC_FAILED
from everview.stores.embedded.writer import Test, Writer, split_keys, split_rows

SCHEME = "embedded"
ABILITIES = Abilities(
    exact_snapshots=True,
    before_images=True,
    rising_versions=True,
    pushed_filters=True,
    observers=True,
    is_remote=False,
)
SMALLEST_MAP = 1 << 16
_LOOK_SECONDS = 10.0  # between checks whether open files were deleted


class EmbeddedStore(EmbeddedReader, Store):
    """Tables in a directory. Threads may share it, and a forked child may go on using it."""

    def __init__(
        self,
        path: str,
        create: bool = False,
        durability: str = "interval",
        map_size: int | None = None,
        readonly: bool = False,
    ) -> None:
        if durability not in DURABILITIES:
            raise DatabaseError(f"durability must be one of {DURABILITIES}, not {durability!r}")
        if create and readonly:
            raise DatabaseError("a database can't be created with readonly=True; leave one out")
        if map_size is not None and map_size < SMALLEST_MAP:
            raise DatabaseError(
                f"map_size must be at least {SMALLEST_MAP:,} bytes, not {map_size:,}"
            )
        self.path = os.path.abspath(path)
        self.durability = durability
        self._map_size = map_size or MAP_SIZE
        self._readonly = readonly
        self._closed = False
        self.settles = False  # whether closing it is to sync the state of views
        self._observers = Observers()
        self._home = Home(os.path.realpath(self.path), None)
        lock = files.open_directory(self.path, create, readonly, self._make_catalog)
        self._unlock = weakref.finalize(self, os.close, lock)
        self._home = Home(self._home.path, files.identity_of(lock))
        self._connect()

    def _make_catalog(self) -> None:
        registry.release(self._acquire("catalog", catalog.DATABASES, create=True))

    def _connect(self) -> None:
        """Open the catalog in this process; regions follow when they are used."""
        self._lock = threading.RLock()
        self._next_look = time.monotonic() + _LOOK_SECONDS
        self._regions: dict[str, Environment] = {}
        environment = self._acquire("catalog", catalog.DATABASES)
        self._open_catalog = EmbeddedCatalog(environment, self.path, self._readonly)
        self._process = os.getpid()
        # closes the files of a store that nobody closed
        self._let_go = weakref.finalize(self, _release, environment, self._regions)
        self._let_go.atexit = False

    def _acquire(self, path: str, names: tuple[str, ...], create: bool = False) -> Environment:
        readonly = self._readonly and not create
        return registry.acquire(
            self._home, path, names, self.durability, self._map_size, readonly, create
        )

    @property
    def address(self) -> str:
        return f"{SCHEME}+{self.durability}:{self.path}"

    @property
    def abilities(self) -> Abilities:
        return ABILITIES

    @property
    def catalog(self) -> EmbeddedCatalog:
        self._check_process()
        return self._open_catalog

    @property
    def states(self) -> EmbeddedStates:
        return EmbeddedStates(self)

    @property
    def leases(self) -> EmbeddedLeases:
        return EmbeddedLeases(self.catalog.to_write, self.path)

    @property
    def pins(self) -> EmbeddedPins:
        return EmbeddedPins(self)

    def _check_process(self) -> None:
        """Raises if the store was closed; in a forked child, opens everything anew."""
        if self._closed:
            raise DatabaseClosed(f"{self.path} was closed; open it again with everview.open")
        if self._process != os.getpid():
            with registry.lock:
                if self._process != os.getpid():
                    self._connect()
        if time.monotonic() > self._next_look:
            self._let_go_of_dropped()

    def _layout(self, table: str, to_write: bool = False) -> Layout:
        try:
            return (self.catalog.to_write if to_write else self.catalog).layout(table)
        except TableNotFound:
            self._let_go_of_dropped()
            raise

    def _let_go_of_dropped(self) -> None:
        """Close regions and states whose files another process removed, so that their space is
        free."""
        if not self._lock.acquire(blocking=False):  # one is being opened, which may take long
            return
        try:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            for path in [
                path for path, environment in self._regions.items() if environment.file.is_gone
            ]:
                registry.let_go(self._regions.pop(path))
        finally:
            self._lock.release()

    def _region(self, layout: Layout, number: int) -> Region:
        if not 0 <= number < layout.schema.regions:
            raise LogError(
                f"table {layout.schema.name} has no region {number}; it has 0 to "
                f"{layout.schema.regions - 1}"
            )
        path = os.path.join(layout.directory, str(number))
        return Region(layout, number, self.environment(path, DATABASES))

    def create_table(self, schema: TableSchema) -> None:
        check_visible("table", schema.name)
        _check_columns(schema.columns)
        self._observers.load(schema)
        self.catalog.to_write.create(schema, self._create_regions)

    def _create_regions(self, layout: Layout) -> None:
        for number in range(layout.schema.regions):
            path = os.path.join(layout.directory, str(number))
            registry.release(self._acquire(path, DATABASES, create=True))

    def drop_table(self, table: str) -> None:
        self._layout(table, to_write=True)
        self.catalog.drop(table)
        self._observers.forget(table)
        self._let_go_of_dropped()

    def add_columns(self, table: str, columns: Sequence[Column]) -> None:
        _check_columns(columns)
        self.catalog.to_write.change(table, lambda schema: schema.with_columns(columns))

    def tables(self) -> list[str]:
        return self.catalog.tables()

    def put(self, table: str, rows: pa.Table) -> WriteReport:
        layout = self._layout(table, to_write=True)
        return self._write(layout, split_rows(layout, layout.current(rows).combine_chunks()))

    def delete(self, table: str, keys: pa.Table) -> WriteReport:
        layout = self._layout(table, to_write=True)
        layout.check_made_for(keys, layout.schema.key_arrow)
        return self._write(layout, split_keys(layout, layout.encode_keys(keys)))

    def test_and_set(
        self,
        table: str,
        key: pa.Table,
        row: pa.Table | None,
        *,
        expected: pa.Table | None = None,
        version: int | None = None,
    ) -> int | None:
        layout = self._layout(table, to_write=True)
        row, expected = (None if rows is None else layout.current(rows) for rows in (row, expected))
        keys = layout.encode_keys(key)
        if row is not None and layout.encode_keys(row) != keys:
            raise WrongKey(f"table {layout.schema.name}: the row to set has another key")
        part = (split_keys(layout, keys) if row is None else split_rows(layout, row))[0]
        place = part.pieces[0][0][0]
        expected_row = None if expected is None else layout.encode_row(expected)

        def passes(txn: lmdb.Transaction, region: Region) -> bool:
            stored_row = region.get_checked(txn, place)
            if version is not None:
                return version_of(stored_row) == version
            if stored_row is None or expected_row is None:
                return stored_row is expected_row
            return layout.rows.are_equal(stored_row, expected_row)

        return next(iter(self._write(layout, [part], passes).sequences.values()), None)

    def _write(self, layout: Layout, parts: list[Part], test: Test | None = None) -> WriteReport:
        observers = self._observers.of(layout.schema)
        try:
            return Writer(layout, self._region, observers, test).write(parts)
        except Damaged:
            self._layout(layout.schema.name)  # says so if it was dropped meanwhile
            raise

    def snapshot(self, table: str, seconds: float = 3600) -> Snapshot:
        layout = self._layout(table, to_write=True)
        return EmbeddedSnapshot(self, layout, self._all_regions(layout), seconds)

    def is_current(self, layout: Layout) -> bool:
        """Whether the table is still the one with this layout, not dropped or made anew."""
        return self._layout(layout.schema.name).directory == layout.directory

    def register(self, table: str, consumer: str, after: Mapping[int, int] | None = None) -> None:
        for region in self._all_regions(self._layout(table, to_write=True)):
            position = (after or {}).get(region.number)
            region.environment.update(
                partial(region.add_consumer, name=consumer, position=position)
            )

    def acknowledge(self, table: str, consumer: str, upto: Mapping[int, int]) -> None:
        layout = self._layout(table, to_write=True)
        for number, position in upto.items():
            region = self._region(layout, number)
            region.environment.update(
                partial(region.move_consumer, name=consumer, position=position)
            )

    def unregister(self, table: str, consumer: str) -> None:
        for region in self._all_regions(self._layout(table, to_write=True)):
            region.environment.update(partial(region.drop_consumer, name=consumer))

    def trim(self, table: str, upto: Mapping[int, int] | None = None, older: float = -inf) -> int:
        removed = 0
        for region in self._all_regions(self._layout(table, to_write=True)):
            if upto is None or region.number in upto:
                limit = None if upto is None else upto[region.number]
                removed += region.environment.update(partial(region.trim, upto=limit, older=older))
        return removed

    def attach(self, table: str, observer: Observer | str) -> None:
        schema = self.describe(table)
        if isinstance(observer, Observer):
            self._observers.attach(table, observer)
        elif not isinstance(observer, str):
            raise InvalidSchema(
                f"table {schema.name}: {observer!r} is no observer; attach an object of a class "
                "derived from everview.Observer, or its name as 'module:Class'"
            )
        else:
            self._observers.load(replace(schema, observers=(observer,)))
            self.catalog.to_write.change(
                table,
                lambda now: replace(
                    now, observers=tuple(dict.fromkeys((*now.observers, observer)))
                ),
            )

    def detach(self, table: str, observer: Observer | str) -> None:
        self.describe(table)
        if isinstance(observer, Observer):
            self._observers.detach(table, observer)
        else:
            self.catalog.to_write.change(
                table,
                lambda now: replace(
                    now, observers=tuple(name for name in now.observers if name != observer)
                ),
            )

    def environment(self, path: str, names: tuple[str, ...], create: bool = False) -> Environment:
        """The environment of a region or a shard, open as long as the store is."""
        self._check_process()
        environment = self._regions.get(path)
        if environment is None:
            with self._lock:
                if path not in self._regions:
                    self._regions[path] = self._acquire(path, names, create)
                environment = self._regions[path]
        return environment

    def environment_to_read(self, path: str, names: tuple[str, ...]) -> Environment:
        """The environment of a shard, only to be read; the caller releases it."""
        return registry.acquire(
            self._home, path, names, self.durability, self._map_size, readonly=True
        )

    def remove(self, directory: str) -> None:
        """Delete a directory with its environments; their readers may finish."""
        registry.remove(os.path.join(self.path, directory))
        with self._lock:
            for path in [path for path in self._regions if path.startswith(f"{directory}/")]:
                del self._regions[path]

    def space(self) -> Space:
        return compaction.space(self)

    def compact(self, watch: Callable[[str, int, int], None] | None = None) -> Compaction:
        return compaction.compact(self, watch)

    def failed_syncs(self) -> dict[str, str]:
        reasons = {}
        for pattern in ("catalog", "tables/*/*", "state/*", "state/*/*"):
            for note in Path(self.path).glob(f"{pattern}/{SYNC_FAILED}"):
                with suppress(FileNotFoundError):
                    reasons[str(note.parent)] = note.read_text()
        return reasons

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            if self._process == os.getpid() and self.settles:
                self.states.settle_at_close()
            self._closed = True
            if self._process == os.getpid():
                self._let_go()
            self._unlock()


def _check_columns(columns: Iterable[Column]) -> None:
    for column in columns:
        check_visible("column", column.name)


def _release(catalog: Environment, regions: dict[str, Environment]) -> None:
    for environment in (catalog, *regions.values()):
        registry.release(environment)
