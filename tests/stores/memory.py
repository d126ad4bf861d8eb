"""A store in the memory of one process: small, and only for tests.

It keeps every contract in another way than the embedded store does. Most of all the law of states:
a shard has a version of its state for each epoch, work reads the newest below its epoch and writes
its own; so it needs neither a transaction nor an outbox, and a task that runs again computes the
same again.
"""

from __future__ import annotations

import copy
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from math import inf
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from everview.catalog import LEASE, NAMED, REPLACEMENTS, VIEWS, Key, Kind, LeaseRecord
from everview.check.verify import in_one_order
from everview.codec import KeyCodec
from everview.codec.keys import region_of
from everview.errors import (
    AppendOnly,
    Conflict,
    Damaged,
    DatabaseClosed,
    InUse,
    InvalidSchema,
    LogError,
    LogTrimmed,
    Outdated,
    Superseded,
    TableExists,
    TableNotFound,
    UnknownConsumer,
    WriteRejected,
    WrongKey,
    suggestion,
)
from everview.intake import keys_to_arrow
from everview.operators.base import MemoryState
from everview.schema import Column, TableSchema
from everview.stores import add_scheme
from everview.stores.base import (
    BATCH_ROWS,
    DELETE,
    PUT,
    Abilities,
    Catalog,
    Compaction,
    Leases,
    LogRange,
    Observer,
    PinnedCatalog,
    PinnedStore,
    PinNote,
    Pins,
    Reader,
    RecordChanges,
    RegionStatus,
    Shard,
    Snapshot,
    Space,
    StateReader,
    States,
    Store,
    Write,
    WriteReport,
    change_schema,
)
from everview.stores.embedded.observers import Observers, ask, tell
from everview.stores.work import (
    KEPT_EPOCHS,
    ShardWork,
    Tally,
    append_record,
    counted,
    records,
)

Row = dict[str, Any]
_STORES: dict[str, MemoryStore] = {}


@dataclass(frozen=True)
class Change:
    sequence: int
    time: int
    before: Row | None
    after: Row | None


@dataclass
class Region:
    rows: dict[bytes, tuple[Row, int]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    last: int = 0
    consumers: dict[str, int] = field(default_factory=dict)

    @property
    def log(self) -> LogRange:
        return LogRange(self.last - len(self.changes) + 1, self.last)

    def after(self, sequence: int) -> list[Change]:
        if sequence < self.log.first - 1:
            raise LogTrimmed("these changes were trimmed; register a consumer to keep them")
        return [change for change in self.changes if change.sequence > sequence]


@dataclass
class Data:
    schema: TableSchema
    regions: list[Region]

    @property
    def keys(self) -> KeyCodec:
        return KeyCodec(self.schema.key_columns)

    def encoded(self, rows: pa.Table) -> list[bytes]:
        columns = [rows[name].combine_chunks() for name in self.schema.key]
        return [bytes(key) for key in self.keys.encode(columns).to_pylist()]

    def region(self, key: bytes) -> int:
        return region_of(key, self.schema.regions)

    def batch(self, rows: list[Row], columns: Sequence[str] | None) -> pa.RecordBatch:
        fields = [self.schema.arrow.field(i) for i in self.schema.positions(columns)]
        found = [{f.name: row.get(f.name) for f in fields} for row in rows]
        return pa.RecordBatch.from_pylist(found, pa.schema(fields))

    def whole(self, row: Row | None) -> Row | None:
        return None if row is None else {name: row.get(name) for name in self.schema.names}


class MemoryReader(Reader):
    """Reads over tables that those who derive from it have."""

    def _data(self, table: str) -> Data:
        raise NotImplementedError

    def describe(self, table: str) -> TableSchema:
        return self._data(table).schema

    def status(self, table: str) -> list[RegionStatus]:
        regions = enumerate(self._data(table).regions)
        return [RegionStatus(n, len(r.rows), r.log, 0, dict(r.consumers)) for n, r in regions]

    def get(
        self, table: str, keys: pa.Table, columns: Sequence[str] | None = None
    ) -> tuple[pa.Table, pa.Array]:
        data = self._data(table)
        found = [(i, self._row(data, key)) for i, key in enumerate(data.encoded(keys))]
        there = [(i, row) for i, row in found if row is not None]
        batch = data.batch([row for _, row in there], columns)
        return pa.Table.from_batches([batch]), pa.array([i for i, _ in there], pa.int64())

    def _row(self, data: Data, key: bytes) -> Row | None:
        return data.regions[data.region(key)].rows.get(key, (None, 0))[0]

    def get_row(self, table: str, key: Any, columns: Sequence[str] | None = None) -> Row | None:
        found, _ = self.get(table, keys_to_arrow(self.describe(table), [key]), columns)
        return next(iter(found.to_pylist()), None)

    def version(self, table: str, key: pa.Table) -> int:
        data = self._data(table)
        (encoded,) = data.encoded(key)
        return data.regions[data.region(encoded)].rows.get(encoded, (None, 0))[1]

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
        data = self._data(table)
        data = Data(data.schema, data.regions)  # with the columns that it has now
        data.schema.positions(columns)
        numbers = range(data.schema.regions) if region is None else [region]
        places = None if at is None else dict(at)
        bounds = [None if b is None else _bound(data.schema, b) for b in (start, stop)]
        names = data.schema.names if columns is None else list(columns)

        def read(together: Sequence[int]) -> Iterator[pa.RecordBatch]:
            rows: dict[bytes, Row] = {}
            for n in together:
                rows |= _rows_at(data.regions[n], None if places is None else places[n], data)
            low, high = bounds
            wanted = [
                rows[key]
                for key in sorted(rows)
                if (low is None or key >= low) and (high is None or key < high)
            ]
            whole = pa.Table.from_batches([data.batch(wanted, None)])
            if where is not None:
                whole = whole.filter(where)
            shown = whole.select([data.schema.column(name).name for name in names])
            yield from shown.combine_chunks().to_batches(max_chunksize=batch_rows)

        parts = [list(numbers)] if ordered else [[n] for n in numbers]
        return chain.from_iterable(map(read, parts))

    def sample(self, table: str, columns: Sequence[str]) -> pa.Table:
        return pa.Table.from_batches(self.scan(table, columns), self._arrow(table, columns))

    def _arrow(self, table: str, columns: Sequence[str]) -> pa.Schema:
        schema = self.describe(table)
        return pa.schema([schema.arrow.field(i) for i in schema.positions(columns)])

    def log(self, table: str) -> dict[int, LogRange]:
        return {n: region.log for n, region in enumerate(self._data(table).regions)}

    def positions_at(self, table: str, time: int) -> dict[int, int]:
        return {
            n: max([r.log.first - 1, *(c.sequence for c in r.changes if c.time <= time)])
            for n, r in enumerate(self._data(table).regions)
        }

    def times_after(self, table: str, after: Mapping[int, int]) -> dict[int, datetime]:
        found = {}
        for n, region in enumerate(self._data(table).regions):
            later = [c for c in region.changes if c.sequence > after.get(n, 0)]
            if later:
                since = timedelta(microseconds=later[0].time)
                found[n] = datetime(1970, 1, 1, tzinfo=UTC) + since
        return found

    def bytes_of_changes(self, table: str, region: int, after: int, upto: int) -> float:
        return 100.0

    def changes(
        self,
        table: str,
        region: int,
        after: int = 0,
        upto: int | None = None,
        columns: Sequence[str] | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        data = self._data(table)
        schema = change_schema(data.schema, columns)
        if region >= data.schema.regions:
            raise LogError(f"table {table} has no region {region}")
        found = [c for c in data.regions[region].after(after) if upto is None or c.sequence <= upto]
        for at in range(0, len(found), batch_rows):
            part = found[at : at + batch_rows]
            values = {
                "region": [region] * len(part),
                "sequence": [c.sequence for c in part],
                "time": [c.time for c in part],
                "op": [DELETE if c.after is None else PUT for c in part],
                "before": [_image(schema.field("before").type, c.before) for c in part],
                "after": [_image(schema.field("after").type, c.after) for c in part],
            }
            arrays = [pa.array(values[one.name], one.type) for one in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class MemoryCatalog(Catalog):
    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.records: dict[Key[Any], Any] = {}

    def get(self, key: Key[Any]) -> Any:
        return self.records.get(key)

    def all(self, kind: Kind[Any]) -> dict[Key[Any], Any]:
        keys = sorted((key for key in self.records if key.kind == kind), key=lambda key: key.text)
        return {key: self.records[key] for key in keys}

    def write(
        self,
        changes: RecordChanges,
        token: int | None = None,
        *,
        expected: RecordChanges | None = None,
        tables: Mapping[str, bool] | None = None,
    ) -> None:
        with self._store.lock:
            newest = (self.get(LEASE) or LeaseRecord()).token
            if token is not None and token < newest:
                raise Superseded("another maintainer took over")
            for table, is_there in (tables or {}).items():
                if is_there:
                    self._store.describe(table)
                elif table.lower() in map(str.lower, self._store.tables()):
                    raise TableExists(f"there is a table {table}")
            for key, record in (expected or {}).items():
                if self.get(key) != record:
                    raise Conflict(f"{key.text} changed meanwhile")
            for key, record in changes.items():
                if record is None:
                    self.records.pop(key, None)
                else:
                    parsed = type(record).from_document(record.to_document())
                    assert parsed == record, "the same after a round trip"
                    self.records[key] = record


class CountedState(MemoryState):
    def __init__(self) -> None:
        super().__init__()
        self.tally = Tally()
        self.log: pa.Table | None = None


class MemoryShard(Shard):
    def __init__(self) -> None:
        self.versions: dict[int, tuple[CountedState, pa.Table]] = {}
        self.token = 0
        self.tasks: tuple[int, int, set[int]] = (0, 0, set())
        self.took: dict[int, bytes] = {}
        self.loaded = b""
        self.logged: dict[int, pa.Table] = {}
        self.rows_read: dict[str, int] = {}
        self.lock = threading.RLock()
        self.rows_of_slots: tuple[int, ...] = ()
        # of an epoch that dealt slots out, by first slot: outputs, rows and nanoseconds
        self.parts: dict[int, tuple[pa.Table, int, int]] = {}

    def _check(self, epoch: int, token: int) -> None:
        if token < self.token or any(known > epoch for known in self.versions):
            raise Superseded(f"epoch {epoch} with token {token} comes too late")
        self.token = token

    def apply(
        self,
        epoch: int,
        token: int,
        work: Callable[[Any], pa.Table],
        log_after: int | None = None,
        slots: tuple[int, ...] | None = None,
    ) -> pa.Table:
        with self.lock:
            self._check(epoch, token)
            if slots is None or epoch not in self.versions:
                self.parts = {}
            elif slots[0] in self.parts:
                return self.parts[slots[0]][0]
            below = [known for known in self.versions if known < epoch or self.parts]
            state = copy.deepcopy(self.versions[max(below)][0]) if below else CountedState()
            state.tally, state.log = Tally(), None
            output = work(state)
            first = epoch if log_after is None else log_after
            self.logged = {known: log for known, log in self.logged.items() if known > first}
            if log_after is not None and state.log is not None:
                logs = [self.logged[epoch]] if self.parts and epoch in self.logged else []
                self.logged[epoch] = pa.concat_tables([*logs, state.log])
            kept = {known: self.versions[known] for known in sorted(below)[-1:] if known < epoch}
            self.versions = {**kept, epoch: (state, output)}
            took = self.took.get(epoch, b"") if self.parts else b""
            self.took[epoch] = append_record(took, state.tally.record(epoch))
            if slots is not None:
                self.parts[slots[0]] = output, state.tally.rows_in, state.tally.nanoseconds
            if (rows := state.tally.rows_of_slots) is not None:
                self.rows_of_slots = counted(self.rows_of_slots, rows, slots)
            return output

    def load(self, epoch: int, token: int, work: Callable[[Any], pa.Table]) -> pa.Table:
        with self.lock:
            self._check(epoch, token)
            state = CountedState()
            output = work(state)
            self.versions, self.took, self.logged = {epoch: (state, output)}, {}, {}
            self.loaded = state.tally.record(epoch)
            return output

    def hand(self, epoch: int, token: int, output: pa.Table) -> None:
        with self.lock:
            self._check(epoch, token)
            self.versions = {epoch: (CountedState(), output)}

    def output(self, epoch: int, slots: tuple[int, ...] | None = None) -> pa.Table | None:
        if any(known > epoch for known in self.versions):
            raise Superseded(f"a later epoch than {epoch} was applied")
        if epoch not in self.versions:
            return None
        if slots is None:
            return self.versions[epoch][1]
        return self.parts[slots[0]][0] if slots[0] in self.parts else None

    def log(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table]]:
        for epoch in sorted(self.logged):
            if after < epoch <= upto:
                yield epoch, self.logged[epoch]

    def note_end(self, epoch: int, token: int, task: int) -> None:
        with self.lock:
            if self.tasks[:2] != (epoch, token):
                self.tasks = epoch, token, set()
            self.tasks[2].add(task)

    def ended_tasks(self, epoch: int, token: int) -> int:
        return len(self.tasks[2]) if self.tasks[:2] == (epoch, token) else 0

    def is_at(self, epoch: int) -> bool:
        return max(self.versions, default=0) == epoch

    def note_rows(self, token: int, name: str, rows: int) -> None:
        with self.lock:
            self._check(max(self.versions, default=0), token)
            self.rows_read[name] = rows

    def noted_rows(self) -> dict[str, int]:
        return dict(self.rows_read)

    def _newest(self) -> CountedState:
        return self.versions[max(self.versions)][0] if self.versions else CountedState()

    def get(self, key: bytes) -> bytes:
        return self._newest().get_many([key])[0]

    def values(self, prefix: bytes = b"") -> Iterator[list[bytes]]:
        items = self._newest().values.items()
        if values := [value for key, value in items if key.startswith(prefix)]:
            yield values

    def bags(self) -> Iterator[tuple[list[bytes], list[int]]]:
        if found := list(self._newest().scan_bags()):
            yield [row for _, row, _ in found], [count for _, _, count in found]

    def work(self) -> ShardWork:
        took = b"".join(self.took[epoch] for epoch in sorted(self.took)[-KEPT_EPOCHS:])
        load = records(self.loaded)[0] if self.loaded else None
        parts = tuple((first, rows, took_by) for first, (_, rows, took_by) in self.parts.items())
        return ShardWork(load, records(took), self.rows_of_slots, parts)

    def size(self) -> tuple[int, int]:
        return len(self._newest()), 0


class MemoryStates(States):
    def __init__(self) -> None:
        self.shards: dict[str, dict[int, MemoryShard]] = {}

    def shard(self, state: str, number: int) -> MemoryShard:
        try:
            return self.shards[state][number]
        except KeyError:
            raise Damaged(f"the state {state} is gone") from None

    def create(self, state: str, shards: Sequence[int]) -> None:
        made = self.shards.setdefault(state, {})
        for number in shards:
            made.setdefault(number, MemoryShard())

    def names(self) -> list[str]:
        return list(self.shards)

    @property
    def volume(self) -> str:
        return "views"

    def renew(self, states: Collection[str]) -> None:
        return None

    def drop(self, *states: str, used: Collection[str] = ()) -> None:
        for state in states:
            self.shards.pop(state, None)

    def fence(self, states: Collection[str], token: int) -> dict[str, str]:
        for shard in [shard for state in states for shard in self.shards[state].values()]:
            if token < shard.token:
                raise Superseded("a newer maintainer is known")
            shard.token = token
        return {state: state for state in states}

    @property
    def is_suspect(self) -> bool:
        return False

    def begin(self, token: int) -> None:
        return None

    def settle(self, token: int) -> None:
        return None


class MemoryLeases(Leases):
    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._locks: dict[str, threading.Lock] = {}
        self._waiting: dict[str, int] = {}

    @property
    def token(self) -> int:
        return (self._store.catalog.get(LEASE) or LeaseRecord()).token

    @property
    def is_fenced(self) -> bool:
        return (self._store.catalog.get(LEASE) or LeaseRecord()).fenced

    def set_fenced(self, token: int) -> None:
        self._store.catalog.write({LEASE: LeaseRecord(token, True)}, token)

    @contextmanager
    def hold(self, role: str, seconds: float, waiting: Callable[[str], None]) -> Iterator[int]:
        lock = self._locks.setdefault(role, threading.Lock())
        self._waiting[role] = self._waiting.get(role, 0) + 1
        try:
            while not lock.acquire(timeout=0.1):
                waiting("another thread")
        finally:
            self._waiting[role] -= 1
        try:
            yield self.token
        finally:
            lock.release()

    @contextmanager
    def hold_if_free(self, role: str) -> Iterator[int | None]:
        lock = self._locks.setdefault(role, threading.Lock())
        is_mine = lock.acquire(blocking=False)
        try:
            yield self.token if is_mine else None
        finally:
            if is_mine:
                lock.release()

    def is_wanted(self, role: str) -> bool:
        return self._waiting.get(role, 0) > 0


class MemoryPin(MemoryReader, PinnedStore):
    """Copies of all that is pinned."""

    def __init__(
        self, store: MemoryStore, views: Sequence[str] | None, tables: Sequence[str] | None
    ) -> None:
        self._address = store.address
        self._names = store.tables()
        with store.lock:
            wanted = None if views is None else {VIEWS[name] for name in views}
            for name in views or ():
                if (named := store.catalog.get(NAMED[name])) is not None and wanted is not None:
                    wanted.add(VIEWS[named.family])
            kept = {
                key: record
                for key, record in store.catalog.records.items()
                if key.kind != VIEWS or wanted is None or key in wanted
            }
            self._catalog = PinnedCatalog(kept)
            self._tables = {}
            for name in self._names if tables is None else tables:
                data = store._data(name)
                at = self._catalog.positions.get(data.schema.name)
                self._tables[name.lower()] = _pinned(data, at)
            views_ = [record for key, record in kept.items() if key.kind == VIEWS]
            self._shards = {
                (view.rows, number): _copied(store.states.shard(view.rows, number))
                for view in views_
                if view.is_loaded
                for number in view.shards
            }

    @property
    def address(self) -> str:
        return self._address

    @property
    def positions(self) -> Mapping[str, Mapping[int, int]]:
        return {
            data.schema.name: {n: region.last for n, region in enumerate(data.regions)}
            for data in self._tables.values()
        }

    @property
    def catalog(self) -> PinnedCatalog:
        return self._catalog

    @property
    def states(self) -> StateReader:
        return _Shards(self._shards)

    def tables(self) -> list[str]:
        return self._names

    def _data(self, table: str) -> Data:
        try:
            return self._tables[table.lower()]
        except KeyError:
            raise TableNotFound(f"table {table} is not in this pin") from None

    def close(self) -> None:
        self._tables = {}


class _Shards(StateReader):
    is_suspect = False

    def __init__(self, shards: Mapping[tuple[str, int], MemoryShard]) -> None:
        self._shards = shards

    def shard(self, state: str, number: int) -> MemoryShard:
        return self._shards[state, number]


class MemoryPins(Pins):
    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._notes: list[PinNote] = []

    def pin(
        self,
        views: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        max_age: float | None = None,
    ) -> PinnedStore:
        return MemoryPin(self._store, views, tables)

    def note(self, epoch: int, max_age: float | None) -> Callable[[], None]:
        note = PinNote(0, epoch, time.time(), max_age)
        self._notes.append(note)
        return lambda: self._notes.remove(note)

    def notes(self) -> list[PinNote]:
        return sorted(self._notes, key=lambda note: note.since)


class MemorySnapshot(Snapshot):
    def __init__(self, store: MemoryStore, table: str) -> None:
        self._store, self._table, self._name = store, table, f"snapshot {uuid.uuid4()}"
        self._columns = store.describe(table).names
        self.positions = {n: log.last for n, log in store.log(table).items()}
        self._open = True
        store.register(table, self._name, self.positions)

    def scan(self, columns: Sequence[str] | None = None, *args: Any, **options: Any) -> Any:
        if not self._open:
            raise LogTrimmed("this snapshot was closed")
        shown = self._columns if columns is None else columns
        return self._store.scan(self._table, shown, *args, **options, at=self.positions)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._store.unregister(self._table, self._name)


class MemoryStore(MemoryReader, Store):
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._name = uuid.uuid4().hex
        self._tables: dict[str, Data] = {}
        self._catalog = MemoryCatalog(self)
        self._states = MemoryStates()
        self._leases = MemoryLeases(self)
        self._pins = MemoryPins(self)
        self._observers = Observers()
        self._is_observed = threading.local()
        self._time = 0
        _STORES[self.address] = self

    @property
    def address(self) -> str:
        return f"memory:{self._name}"

    @property
    def abilities(self) -> Abilities:
        return Abilities(True, True, True, True, True, False)

    @property
    def catalog(self) -> MemoryCatalog:
        return self._catalog

    @property
    def states(self) -> MemoryStates:
        return self._states

    @property
    def leases(self) -> MemoryLeases:
        return self._leases

    @property
    def pins(self) -> MemoryPins:
        return self._pins

    def _data(self, table: str) -> Data:
        data = self._tables.get(table.lower())
        if data is None:
            names = self.tables()
            raise TableNotFound(f"there is no table {table}; {suggestion(table, names)}")
        return data

    def tables(self) -> list[str]:
        return sorted(data.schema.name for data in self._tables.values())

    def create_table(self, schema: TableSchema) -> None:
        with self.lock:
            if schema.name.lower() in self._tables:
                raise TableExists(f"table {schema.name} exists already")
            if self.catalog.get(VIEWS[schema.name]) or self.catalog.get(NAMED[schema.name]):
                raise TableExists(f"there is a view {schema.name}")
            self._observers.load(schema)
            regions = [Region() for _ in range(schema.regions)]
            self._tables[schema.name.lower()] = Data(schema, regions)

    def drop_table(self, table: str) -> None:
        with self.lock:
            self._data(table)
            views = [*self.catalog.all(VIEWS).values()]
            views += [one.view for one in self.catalog.all(REPLACEMENTS).values()]
            if readers := [v.name for v in views if table.lower() in map(str.lower, v.tables)]:
                raise InUse(f"table {table} is read by view {', '.join(readers)}")
            del self._tables[table.lower()]
            self._observers.forget(table)

    def add_columns(self, table: str, columns: Sequence[Column]) -> None:
        with self.lock:
            data = self._data(table)
            data.schema = data.schema.with_columns(columns)

    def put(self, table: str, rows: pa.Table) -> WriteReport:
        return self._write(table, rows, rows.to_pylist())

    def delete(self, table: str, keys: pa.Table) -> WriteReport:
        return self._write(table, keys, [None] * keys.num_rows)

    def test_and_set(
        self,
        table: str,
        key: pa.Table,
        row: pa.Table | None,
        *,
        expected: pa.Table | None = None,
        version: int | None = None,
    ) -> int | None:
        data = self._data(table)
        if row is not None and data.encoded(row) != data.encoded(key):
            raise WrongKey("the row to set has another key")
        with self.lock:
            self._check_columns(data, row, expected)
            (encoded,) = data.encoded(key)
            stored, is_at = data.regions[data.region(encoded)].rows.get(encoded, (None, 0))
            if version is not None:
                passes = is_at == version
            else:
                wanted = None if expected is None else expected.to_pylist()[0]
                passes = _same(data.whole(stored), data.whole(wanted))
            if not passes:
                return None
            rows = [None] if row is None else row.to_pylist()
            report = self._write(table, key if row is None else row, rows, always=True)
            return next(iter(report.sequences.values()), None)

    def _check_columns(self, data: Data, *tables: pa.Table | None) -> None:
        for table in tables:
            names = () if table is None else tuple(table.column_names)
            versions = [data.schema.names[:width] for width in data.schema.widths]
            if table is not None and names not in (data.schema.key, *versions, data.schema.names):
                raise Outdated(f"table {data.schema.name} has other columns by now; write again")

    def _write(
        self, table: str, keys: pa.Table, rows: list[Row | None], always: bool = False
    ) -> WriteReport:
        if getattr(self._is_observed, "now", False):
            raise WriteRejected(f"an observer may not write to the table it observes: {table}")
        observers = self._observers.of(self._data(table).schema)
        with self.lock:
            data = self._data(table)
            self._check_columns(data, keys)
            wanted = dict(zip(data.encoded(keys), rows, strict=True))
            changed: dict[int, list[tuple[bytes, Row | None, Row | None]]] = {}
            unchanged: dict[int, list[Row]] = {}
            for key, row in wanted.items():
                number = data.region(key)
                before = data.whole(data.regions[number].rows.get(key, (None, 0))[0])
                after = data.whole(row)
                if _same(before, after) and not (always and after is not None):
                    if after is not None:
                        unchanged.setdefault(number, []).append(after)
                    continue
                if data.schema.append_only and before is not None:
                    named = (f"{name} = {before[name]!r}" for name in data.schema.key)
                    what = "deleted" if after is None else "changed"
                    raise AppendOnly(
                        f"table {table} is append-only: {', '.join(named)} can't be {what}"
                    )
                changed.setdefault(number, []).append((key, before, after))
            writes = [
                self._seen(data, n, changed.get(n, []), unchanged.get(n, []), rows)
                for n in sorted({*changed, *unchanged})
            ]
            self._is_observed.now = True
            try:
                for write in writes:
                    ask(observers, write)
            finally:
                self._is_observed.now = False
            self._time = max(self._time + 1, time.time_ns() // 1000)
            for number, parts in changed.items():
                region = data.regions[number]
                for key, before, after in parts:
                    region.last += 1
                    region.changes.append(Change(region.last, self._time, before, after))
                    if after is None:
                        del region.rows[key]
                    else:
                        region.rows[key] = after, region.last
            report = WriteReport(
                sum(map(len, changed.values())),
                {n: data.regions[n].last for n in changed},
                sum(map(len, unchanged.values())),
            )
        tell(observers, writes)
        return report

    def _seen(
        self,
        data: Data,
        number: int,
        parts: list[tuple[bytes, Row | None, Row | None]],
        unchanged: list[Row],
        rows: list[Row | None],
    ) -> Write:
        image = change_schema(data.schema).field("after").type
        last = data.regions[number].last
        return Write(
            data.schema,
            number,
            DELETE if rows and rows[0] is None else PUT,
            range(last + 1, last + 1 + len(parts)),
            lambda: pa.array([before for _, before, _ in parts], image),
            lambda: pa.array([after for _, _, after in parts], image),
            lambda: pa.array(unchanged, image),
            len(unchanged),
        )

    def snapshot(self, table: str, seconds: float = 3600) -> Snapshot:
        return MemorySnapshot(self, self.describe(table).name)

    def register(self, table: str, consumer: str, after: Mapping[int, int] | None = None) -> None:
        for n, region in enumerate(self._data(table).regions):
            region.consumers.setdefault(consumer, (after or {}).get(n, region.log.first - 1))

    def acknowledge(self, table: str, consumer: str, upto: Mapping[int, int]) -> None:
        regions = self._data(table).regions
        for n, position in upto.items():
            if consumer not in regions[n].consumers:
                raise UnknownConsumer(f"{consumer} is not registered")
            if position > regions[n].last:
                raise LogError(f"region {n}: the newest is {regions[n].last}")
            now = regions[n].consumers[consumer]
            regions[n].consumers[consumer] = max(now, position)

    def unregister(self, table: str, consumer: str) -> None:
        for region in self._data(table).regions:
            region.consumers.pop(consumer, None)

    def trim(self, table: str, upto: Mapping[int, int] | None = None, older: float = -inf) -> int:
        removed, limit = 0, time.time_ns() // 1000 - (0 if older == -inf else older * 1e6)
        with self.lock:
            for n, region in enumerate(self._data(table).regions):
                if upto is not None and n not in upto:
                    continue
                last = min([inf if upto is None else upto[n], *region.consumers.values()])
                goes = [
                    c
                    for c in region.changes
                    if c.sequence <= last and (older == -inf or c.time <= limit)
                ]
                region.changes = region.changes[len(goes) :]
                removed += len(goes)
        return removed

    def attach(self, table: str, observer: Observer | str) -> None:
        data = self._data(table)
        if isinstance(observer, Observer):
            self._observers.attach(table, observer)
            return
        if not isinstance(observer, str):
            raise InvalidSchema(f"{observer!r} is no observer")
        names = tuple(dict.fromkeys((*data.schema.observers, observer)))
        self._observers.load(replace(data.schema, observers=(observer,)))
        data.schema = replace(data.schema, observers=names)

    def detach(self, table: str, observer: Observer | str) -> None:
        data = self._data(table)
        if isinstance(observer, Observer):
            self._observers.detach(table, observer)
        else:
            left = tuple(name for name in data.schema.observers if name != observer)
            data.schema = replace(data.schema, observers=left)

    def space(self) -> Space:
        return Space()

    def compact(self, watch: Callable[[str, int, int], None] | None = None) -> Compaction:
        return Compaction(Space(), Space(), {})

    def failed_syncs(self) -> dict[str, str]:
        return {}

    def close(self) -> None:
        return None


def _at(address: str) -> Store:
    if address not in _STORES:
        raise DatabaseClosed(f"{address} is of another process")
    return _STORES[address]


add_scheme("memory", _at)


def _rows_at(region: Region, position: int | None, data: Data) -> dict[bytes, Row]:
    rows = {key: row for key, (row, _) in region.rows.items()}
    if position is None:
        return rows
    for change in reversed(region.after(position)):
        row = change.after or change.before
        assert row is not None
        table = pa.Table.from_batches([data.batch([row], data.schema.key)])
        (key,) = data.encoded(table)
        if change.before is None:
            rows.pop(key, None)
        else:
            rows[key] = change.before
    return rows


def _pinned(data: Data, at: Mapping[int, int] | None) -> Data:
    regions = []
    for n, region in enumerate(data.regions):
        position = region.last if at is None else at[n]
        rows = _rows_at(region, position, data)
        changes = [change for change in region.changes if change.sequence <= position]
        versions = {key: (row, region.rows.get(key, (None, 0))[1]) for key, row in rows.items()}
        regions.append(Region(versions, changes, position, dict(region.consumers)))
    return Data(data.schema, regions)


def _copied(shard: MemoryShard) -> MemoryShard:
    twin = MemoryShard()
    twin.versions, twin.token = dict(shard.versions), shard.token
    twin.logged = dict(shard.logged)
    return twin


def _bound(schema: TableSchema, bound: tuple[Any, ...]) -> bytes:
    columns = schema.key_columns[: len(bound)]
    arrays = [pa.array([value], column.type) for column, value in zip(columns, bound, strict=True)]
    return bytes(KeyCodec(columns).encode(arrays)[0].as_py())


def _image(type_: pa.DataType, row: Row | None) -> Row | None:
    return None if row is None else {one.name: row.get(one.name) for one in type_}


def _same(one: Row | None, other: Row | None) -> bool:
    return repr(in_one_order(one)) == repr(in_one_order(other))
