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
import uuid
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import Ints
from everview.codec.keys import region_of
from everview.codec.point import encode_key
from everview.codec.rows import join, version_of
from everview.errors import (
    Damaged,
    DatabaseClosed,
    DatabaseError,
    InvalidSchema,
    LogError,
    ReadOnly,
    StoreFull,
    TableNotFound,
    WrongKey,
)
from everview.intake import keys_to_arrow
from everview.schema import Column, TableSchema, check_visible
from everview.stores.base import (
    BATCH_ROWS,
    DELETE,
    PUT,
    LogRange,
    Observer,
    RegionStatus,
    Snapshot,
    Store,
    WriteReport,
    change_schema,
)
from everview.stores.embedded import catalog, files, region, sampling, unsynced
from everview.stores.embedded.catalog import Catalog, Glance
from everview.stores.embedded.environment import DURABILITIES, MAP_SIZE, SYNC_FAILED, Environment
from everview.stores.embedded.files import Home
from everview.stores.embedded.layout import Layout, stored_key
from everview.stores.embedded.lease import Leases, locked
from everview.stores.embedded.observers import Observers
from everview.stores.embedded.region import Part, Region, in_pieces, located, locating
from everview.stores.embedded.registry import registry
from everview.stores.embedded.scan import Scan, merge
from everview.stores.embedded.snapshot import EmbeddedSnapshot
from everview.stores.embedded.state import DATABASES as DATABASES_OF_STATE
from everview.stores.embedded.state import Shard, lock_of
from everview.stores.embedded.work import ShardWork
from everview.stores.embedded.writer import Test, Writer, split_keys, split_lookup, split_rows

_OPS = pa.array([DELETE, PUT])
SMALLEST_MAP = 1 << 16
_FENCE_PATIENCE = 1.0
_LOOK_SECONDS = 10.0  # between looks whether what is open is still there
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class EmbeddedStore(Store):
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
        lock = files.open_directory(self.path, create, self._make_catalog)
        self._unlock = weakref.finalize(self, os.close, lock)
        self._home = Home(self._home.path, files.identity_of(lock))
        self._connect()

    def _make_catalog(self) -> None:
        registry.release(self._acquire("catalog", catalog.DATABASES, create=True))

    def _connect(self) -> None:
        """Open the catalog in this process; regions follow when they are used."""
        self._lock = threading.RLock()
        self._look_at = time.monotonic() + _LOOK_SECONDS
        self._regions: dict[str, Environment] = {}
        environment = self._acquire("catalog", catalog.DATABASES)
        self._open_catalog = Catalog(environment, os.path.join(self.path, "tables"))
        self._process = os.getpid()
        # also of a store that nobody closed, the files are
        self._let_go = weakref.finalize(self, _release, environment, self._regions)
        self._let_go.atexit = False

    def _acquire(self, path: str, names: tuple[str, ...], create: bool = False) -> Environment:
        readonly = self._readonly and not create
        return registry.acquire(
            self._home, path, names, self.durability, self._map_size, readonly, create
        )

    @property
    def _catalog(self) -> Catalog:
        self._check_process()
        return self._open_catalog

    def _check_process(self) -> None:
        """In a forked child, everything is opened anew."""
        if self._closed:
            raise DatabaseClosed(f"{self.path} was closed; open it again with everview.open")
        if self._process != os.getpid():
            with registry.lock:
                if self._process != os.getpid():
                    self._connect()
        if time.monotonic() > self._look_at:
            self._let_go_of_dropped()

    @property
    def _catalog_to_write(self) -> Catalog:
        if self._readonly:
            raise ReadOnly(f"{self.path} was opened with readonly=True; open it without to write")
        return self._catalog

    def _layout(self, table: str, to_write: bool = False) -> Layout:
        try:
            return (self._catalog_to_write if to_write else self._catalog).layout(table)
        except TableNotFound:
            self._let_go_of_dropped()
            raise

    def _let_go_of_dropped(self) -> None:
        """Close regions and states whose files another process removed, so that their space is
        free."""
        if not self._lock.acquire(blocking=False):  # one is being opened, which may take long
            return
        try:
            self._look_at = time.monotonic() + _LOOK_SECONDS
            for path in [path for path, one in self._regions.items() if one.file.is_gone]:
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
        environment = self._regions.get(path)
        if environment is None:
            with self._lock:
                if path not in self._regions:
                    self._regions[path] = self._acquire(path, region.DATABASES)
                environment = self._regions[path]
        return Region(layout, number, environment)

    def _all_regions(self, layout: Layout) -> list[Region]:
        return [self._region(layout, number) for number in range(layout.schema.regions)]

    def create_table(self, schema: TableSchema) -> None:
        check_visible("table", schema.name)
        _check_columns(schema.columns)
        self._observers.load(schema)
        self._catalog_to_write.create(schema, self._create_regions)

    def _create_regions(self, layout: Layout) -> None:
        for number in range(layout.schema.regions):
            path = os.path.join(layout.directory, str(number))
            registry.release(self._acquire(path, region.DATABASES, create=True))

    def drop_table(self, table: str) -> None:
        self._layout(table, to_write=True)
        self._catalog.drop(table)
        self._observers.forget(table)
        self._let_go_of_dropped()

    def add_columns(self, table: str, columns: Sequence[Column]) -> None:
        _check_columns(columns)
        self._catalog_to_write.change(table, lambda schema: schema.with_columns(columns))

    def describe(self, table: str) -> TableSchema:
        return self._layout(table).schema

    def tables(self) -> list[str]:
        return self._catalog.tables()

    def status(self, table: str) -> list[RegionStatus]:
        return [_status(one) for one in self._all_regions(self._layout(table))]

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
        row, expected = (
            None if given is None else layout.current(given) for given in (row, expected)
        )
        keys = layout.encode_keys(key)
        if row is not None and layout.encode_keys(row) != keys:
            raise WrongKey(f"table {layout.schema.name}: the row to set has another key")
        part = (split_keys(layout, keys) if row is None else split_rows(layout, row))[0]
        place = part.pieces[0][0][0]
        wanted = None if expected is None else layout.encode_row(expected)

        def passes(txn: lmdb.Transaction, one: Region) -> bool:
            stored = one.get_checked(txn, place)
            if version is not None:
                return version_of(stored) == version
            if stored is None or wanted is None:
                return stored is wanted
            return layout.rows.are_equal(stored, wanted)

        return next(iter(self._write(layout, [part], passes).sequences.values()), None)

    def _write(self, layout: Layout, parts: list[Part], test: Test | None = None) -> WriteReport:
        observers = self._observers.of(layout.schema)
        try:
            return Writer(layout, self._region, observers, test).write(parts)
        except Damaged:
            self._layout(layout.schema.name)  # says so if it was dropped meanwhile
            raise

    def get(
        self, table: str, keys: pa.Table, columns: Sequence[str] | None = None
    ) -> tuple[pa.Table, pa.Array]:
        layout = self._layout(table)
        positions = layout.schema.positions(columns)
        batches, places = [], [np.zeros(0, np.int64)]
        for number, stored, asked in split_lookup(layout, layout.encode_keys(keys)):
            one = self._region(layout, number)
            with one.environment.reading() as txn:
                found = one.get_many(txn, stored)
            if found:
                for piece in in_pieces(found):
                    with locating(one):
                        arrays = layout.rows.decode(*join([row for _, row in piece]), positions)
                    batches.append(layout.batch(arrays, positions))
                places.append(_found(stored, asked, found))
        rows = pa.Table.from_batches(batches, layout.arrow(positions))
        order = np.concatenate(places)
        back = np.argsort(order, kind="stable")
        return rows.take(pa.array(back)), pa.array(order[back])

    def get_row(
        self, table: str, key: Any, columns: Sequence[str] | None = None
    ) -> dict[str, Any] | None:
        layout = self._layout(table)
        positions = layout.schema.positions(columns)
        encoded = encode_key(layout.schema.key_columns, key if isinstance(key, tuple) else (key,))
        if encoded is None:
            encoded = layout.encode_keys(keys_to_arrow(layout.schema, [key]))[0].as_py()
        one = self._region(layout, region_of(encoded, layout.schema.regions))
        with one.environment.reading() as txn:
            row = one.get(txn, stored_key(encoded))
        if row is None:
            return None
        with locating(one):
            found = layout.rows.decode_row(row, sorted({*positions, *layout.key_positions}))
        if encode_key(layout.schema.key_columns, [found[k] for k in layout.schema.key]) != encoded:
            one.check_keys([(stored_key(encoded), row)])
        names = layout.schema.names
        return {names[position]: found[names[position]] for position in positions}

    def version(self, table: str, key: pa.Table) -> int:
        layout = self._layout(table)
        encoded = layout.encode_keys(key)[0].as_py()
        one = self._region(layout, region_of(encoded, layout.schema.regions))
        with one.environment.reading() as txn:
            return version_of(one.get_checked(txn, stored_key(encoded)))

    def scan(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        start: tuple[Any, ...] | None = None,
        stop: tuple[Any, ...] | None = None,
        region: int | None = None,
        batch_rows: int = BATCH_ROWS,
        ordered: bool = True,
        at: Mapping[int, int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        layout = self._layout(table)
        regions = self._all_regions(layout) if region is None else [self._region(layout, region)]
        ordered = ordered and len(regions) > 1
        bounds = layout.bound(start), layout.bound(stop)
        scan = Scan(layout, columns, where, *bounds, batch_rows, keyed=ordered)
        layout.schema.positions(columns)
        streams = [scan.region(one, None if at is None else at[one.number]) for one in regions]
        return merge(streams, batch_rows) if ordered else chain.from_iterable(streams)

    def sample(self, table: str, columns: Sequence[str]) -> pa.Table:
        """Some rows of a table, as `sampling.sample` has them."""
        return sampling.sample(self._all_regions(self._layout(table)), columns)

    def snapshot(self, table: str, seconds: float = 3600) -> Snapshot:
        layout = self._layout(table, to_write=True)
        return EmbeddedSnapshot(self, layout, self._all_regions(layout), seconds)

    def is_current(self, layout: Layout) -> bool:
        """Whether the table is still the one with this layout, not dropped or made anew."""
        return self._layout(layout.schema.name).directory == layout.directory

    def log(self, table: str) -> dict[int, LogRange]:
        found = {}
        for one in self._all_regions(self._layout(table)):
            with one.environment.reading() as txn:
                found[one.number] = one.log_range(txn)
        return found

    def positions_at(self, table: str, time: int) -> dict[int, int]:
        found = {}
        for one in self._all_regions(self._layout(table)):
            with one.environment.reading() as txn:
                found[one.number] = one.last_at(txn, time)
        return found

    def bytes_of_changes(self, table: str, region: int, after: int, upto: int) -> float:
        """About how many bytes each of some changes has."""
        one = self._region(self._layout(table), region)
        with one.environment.reading() as txn:
            return one.mean_bytes(txn, after, upto)

    def times_after(self, table: str, after: Mapping[int, int]) -> dict[int, datetime]:
        times = {}
        for one in self._all_regions(self._layout(table)):
            with one.environment.reading() as txn:
                time = one.time_after(txn, after.get(one.number, 0))
            if time is not None:
                times[one.number] = _EPOCH + timedelta(microseconds=time)
        return times

    def changes(
        self,
        table: str,
        region: int,
        after: int = 0,
        upto: int | None = None,
        columns: Sequence[str] | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        layout = self._layout(table)
        one, positions = self._region(layout, region), layout.schema.positions(columns)
        schema = change_schema(layout.schema, columns)
        with one.environment.reading() as txn:
            for images in located(one, one.changes(txn, after, upto, batch_rows)):
                arrays = [
                    pa.array(np.full(len(images), region, np.int32)),
                    pa.array(images.sequences),
                    pa.array(images.times).cast(schema.field("time").type),
                    _OPS.take(pa.array((images.after_lengths > 0).astype(np.int8))),
                    images.before(layout.rows, positions),
                    images.after(layout.rows, positions),
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def register(self, table: str, consumer: str, after: Mapping[int, int] | None = None) -> None:
        for one in self._all_regions(self._layout(table, to_write=True)):
            position = (after or {}).get(one.number)
            one.environment.update(partial(one.add_consumer, name=consumer, position=position))

    def acknowledge(self, table: str, consumer: str, upto: Mapping[int, int]) -> None:
        layout = self._layout(table, to_write=True)
        for number, position in upto.items():
            one = self._region(layout, number)
            one.environment.update(partial(one.move_consumer, name=consumer, position=position))

    def unregister(self, table: str, consumer: str) -> None:
        for one in self._all_regions(self._layout(table, to_write=True)):
            one.environment.update(partial(one.drop_consumer, name=consumer))

    def trim(self, table: str, upto: Mapping[int, int] | None = None, older: float = -inf) -> int:
        removed = 0
        for one in self._all_regions(self._layout(table, to_write=True)):
            if upto is None or one.number in upto:
                limit = None if upto is None else upto[one.number]
                removed += one.environment.update(partial(one.trim, upto=limit, older=older))
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
            self._catalog_to_write.change(
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
            self._catalog_to_write.change(
                table,
                lambda now: replace(
                    now, observers=tuple(name for name in now.observers if name != observer)
                ),
            )

    def document(self, name: str) -> dict[str, Any] | None:
        return self._catalog.document(name)

    def documents(self, prefix: str) -> dict[str, dict[str, Any]]:
        return self._catalog.documents(prefix)

    def glance(self, views: Sequence[str] | None, tables: Sequence[str] | None) -> Glance:
        """The epoch, views and tables (None: all) at one moment, as `Catalog.glance` has them."""
        return self._catalog.glance(views, tables)

    def store_documents(
        self, changes: Mapping[str, dict[str, Any] | None], token: int | None = None
    ) -> None:
        self._catalog_to_write.store_documents(changes, token)

    def store_views(
        self,
        changes: Mapping[str, dict[str, Any] | None],
        token: int | None = None,
        created: str | None = None,
    ) -> None:
        """Views that were just planned, as `Catalog.store_views` has them."""
        self._catalog_to_write.store_views(changes, token, created)

    @property
    def leases(self) -> Leases:
        return Leases(self._catalog_to_write, self.path)

    def shard(self, state: str, number: int, create: bool = False) -> Shard:
        """A shard of an operator's or a view's state, by a path of its own."""
        path = os.path.join("state", state, str(number))
        self._check_process()
        with self._lock:
            if path not in self._regions:
                self._regions[path] = self._acquire(path, DATABASES_OF_STATE, create)
            return Shard(self._regions[path], self)

    def work(self, state: str, numbers: Iterable[int]) -> dict[int, ShardWork]:
        """What the load and the last epochs took of shards of a state, by shard."""
        return {number: self.shard(state, number).work() for number in numbers}

    def fence(self, state: str, numbers: Iterable[int], token: int) -> str:
        """Shut older maintainers out of a state; returns its name from now on.

        One that was stopped in the middle of a write has LMDB's lock, which can't be had. Then the
        state goes on as a copy, and what the other may still write is lost with the original.
        """
        try:
            for number in numbers:
                path = os.path.join("state", state, str(number))
                with locked(lock_of(os.path.join(self.path, path)), _FENCE_PATIENCE):
                    self.shard(state, number).fence(token)
            return state
        except TimeoutError:
            copy = uuid.uuid4().hex[:12]
            try:
                for number in numbers:
                    self._copy_shard(state, copy, number)
                    self.shard(copy, number).fence(token)
            except BaseException:
                self.drop_state(copy)
                raise
            return copy

    def _copy_shard(self, state: str, copy: str, number: int) -> None:
        path = os.path.join("state", state, str(number))
        target = os.path.join(self.path, "state", copy, str(number))
        environment = registry.acquire(
            self._home, path, DATABASES_OF_STATE, self.durability, self._map_size, readonly=True
        )
        try:
            os.makedirs(target)
            with environment.awake():
                environment.lmdb.copy(target, compact=True)  # else it would wait for the writer
        except (lmdb.Error, OSError) as error:
            raise StoreFull(f"{path} can't be copied: {error}; make room") from error
        finally:
            registry.release(environment)

    def states(self) -> list[str]:
        """The states there are, also those that no view knows."""
        directory = os.path.join(self.path, "state")
        return os.listdir(directory) if os.path.isdir(directory) else []

    def shards(self, state: str) -> list[int]:
        """The shards of a state that there are."""
        try:
            names = os.listdir(os.path.join(self.path, "state", state))
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in names if name.isdigit())

    def failed_syncs(self) -> dict[str, str]:
        """Why what was written in some directories can't be synced, as any process found."""
        found = {}
        for pattern in ("catalog", "tables/*/*", "state/*", "state/*/*"):
            for note in Path(self.path).glob(f"{pattern}/{SYNC_FAILED}"):
                with suppress(FileNotFoundError):
                    found[str(note.parent)] = note.read_text()
        return found

    def drop_state(self, state: str) -> None:
        """Delete a state; those who are reading it may end."""
        registry.remove(os.path.join(self.path, "state", state))
        with self._lock:
            for path in [path for path in self._regions if path.startswith(f"state/{state}/")]:
                del self._regions[path]

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            if self._process == os.getpid() and self.settles:
                unsynced.settle_if_free(self)
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


def _status(one: Region) -> RegionStatus:
    with one.environment.reading() as txn:
        return RegionStatus(
            region=one.number,
            rows=one.count(txn),
            log=one.log_range(txn),
            bytes=one.environment.file.size_on_disk,
            consumers=one.consumers(txn),
        )


def _found(stored: list[bytes], places: Ints, found: list[tuple[bytes, bytes]]) -> Ints:
    """The places of the keys that were found."""
    if len(found) == len(stored):
        return places
    there = {key for key, _ in found}
    return places[np.fromiter((key in there for key in stored), np.bool_, len(stored))]
