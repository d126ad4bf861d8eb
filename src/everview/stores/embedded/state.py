"""State of operators and views: one LMDB environment for each shard.

Databases: `rows` (values by key), `bags` (under a key any number of rows, each with a count),
`long` (rows of bags that are too long for LMDB's values under one key), `meta` (`applied`: the
last epoch applied; `outbox`: what it gave, an Arrow stream; `token`: the lease of who wrote last;
`load` and `work`: what the load and the last epochs took; `ended`: which tasks of an epoch came to
their end). All change in one transaction, so an epoch is applied once, and asking for it again
gives the outbox.

Every item is sealed with a checksum of its key and value. A key that changed on disk is found
where it was by whoever looks for it in vain: it is a neighbour of the place.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import TypeVar

import lmdb
import numpy as np
import pyarrow as pa

from everview.codec.streams import from_stream, to_stream
from everview.errors import Damaged, Superseded
from everview.stores.embedded.environment import Environment
from everview.stores.embedded.layout import DIGEST, LONGEST, PREFIX, stored_key
from everview.stores.embedded.lease import check as check_token
from everview.stores.embedded.lease import locked
from everview.stores.embedded.scan import fill
from everview.stores.embedded.sealed import (
    COUNT,
    SEAL,
    check,
    opened,
    opened_rows,
    sealed,
    sealed_rows,
)
from everview.stores.embedded.work import ShardWork, Tally, appended, records

DATABASES = ("rows", "bags", "long", "meta")
_APPLIED, _OUTBOX, _TOKEN = b"applied", b"outbox", b"token"
_LOAD, _WORK, _ENDED = b"load", b"work", b"ended"
_NUMBER = struct.Struct("<Q")
_TAILS = (SEAL, COUNT + SEAL)  # bytes of an item of a bag beside the row
_LONG_ROW = LONGEST - DIGEST - _TAILS[1]
_READ = 8192
_PATIENCE = 30.0  # seconds
T = TypeVar("T")
Bag = tuple[np.ndarray, list[bytes], np.ndarray]


class ShardState:
    """The `State` of operators, inside one transaction."""

    def __init__(self, txn: lmdb.Transaction, dbs: Sequence[lmdb._Database]) -> None:
        self._txn = txn
        self._rows, self._bags, self._long, _ = dbs
        self.tally = Tally()

    def _is_empty(self, db: lmdb._Database) -> bool:
        return int(self._txn.stat(db)["entries"]) == 0

    def _ends_before(self, db: lmdb._Database, keys: list[bytes]) -> bool:
        """Whether all that is there has lesser keys, so that nothing is in the way of items."""
        cursor = self._txn.cursor(db)
        if not cursor.last():
            return True
        check([cursor.key()], [cursor.value()])
        return bool(keys) and cursor.key() < min(keys)

    def has_bags(self) -> bool:
        return not self._is_empty(self._bags)

    def get_many(self, keys: list[bytes]) -> list[bytes]:
        self.tally.reads += len(keys)
        if self._is_empty(self._rows):
            return [b""] * len(keys)
        stored = list(map(stored_key, keys))
        found = dict(self._txn.cursor(self._rows).getmulti(stored))
        self._check_gaps(self._rows, [key for key in stored if key not in found])
        values = dict(zip(found, opened(list(found), list(found.values())), strict=True))
        return [values.get(key, b"") for key in stored]

    def put_many(self, keys: list[bytes], values: list[bytes]) -> None:
        self.tally.writes += len(keys)
        cursor = self._txn.cursor(self._rows)
        stored = list(map(stored_key, keys))
        items = list(zip(stored, values, sealed(stored, values), strict=True))
        cursor.putmulti((key, item) for key, value, item in items if value)
        for key, value, _ in items:
            if not value and cursor.set_key(key):
                cursor.delete()

    def get_bags(self, keys: list[bytes]) -> Bag:
        if not self.has_bags():
            self.tally.reads += len(keys)
            return _bag([], [], [])
        stored = {stored_key(key): place for place, key in enumerate(keys)}
        found = self._txn.cursor(self._bags).getmulti(list(stored), dupdata=True)
        there = [key for key, _ in found]
        missing = sorted(stored.keys() - there)
        self.tally.reads += len(found) + len(missing)
        self._check_gaps(self._bags, missing)
        rows, counts = opened_rows(there, [value for _, value in found])
        if max(map(len, rows), default=0) > _LONG_ROW:
            rows = list(map(self._whole, there, rows))
        return _bag([stored[key] for key in there], rows, counts)

    def change_bags(self, keys: list[bytes], rows: list[bytes], weights: list[int]) -> None:
        self.tally.writes += len(keys)
        cursor = self._txn.cursor(self._bags)
        stored = list(map(stored_key, keys))
        if self._ends_before(self._bags, stored):
            self._append(cursor, stored, rows, weights)
            return
        around = _Neighbours()
        items = sealed_rows(stored, rows, map(abs, weights))
        for key, row, weight, item in zip(stored, rows, weights, items, strict=True):
            if weight > 0:
                if len(row) > _LONG_ROW or not cursor.put(key, item, dupdata=False):
                    self._merge(cursor, key, row, weight)
                if cursor.count() == 1:
                    around.add_new(key, cursor)
            elif len(row) <= _LONG_ROW and cursor.set_key_dup(key, item):
                cursor.delete()
            else:
                self._merge(cursor, key, row, weight)
        around.check()

    def _append(
        self, cursor: lmdb.Cursor, keys: list[bytes], rows: list[bytes], weights: list[int]
    ) -> None:
        """Rows under keys that come after all others, so that pages are filled."""
        if min(weights, default=0) < 0:
            raise Damaged("a row of state would be there a negative number of times")
        if max(map(len, rows), default=0) > _LONG_ROW:
            rows = list(map(self._short, keys, rows))
        cursor.putmulti(zip(keys, sealed_rows(keys, rows, weights), strict=True))

    def _check_gaps(self, db: lmdb._Database, keys: Iterable[bytes]) -> None:
        """That there are no items under some stored keys: where they would be, others are."""
        cursor = self._txn.cursor(db)
        around = _Neighbours()
        for key in keys:
            around.add_missed(key, cursor)
        around.check()

    def _short(self, key: bytes, row: bytes) -> bytes:
        """The row as it lies in a bag; a long one is put aside."""
        if len(row) <= _LONG_ROW:
            return row
        short = _shortened(key, row)
        name = blake2b(key + short).digest()
        self._txn.put(name, sealed([name], [row])[0], db=self._long)
        return short

    def count_rows(self, keys: list[bytes], rows: list[bytes]) -> list[int]:
        self.tally.reads += len(keys)
        if not self.has_bags():
            return [0] * len(keys)
        cursor = self._txn.cursor(self._bags)
        pairs = zip(keys, rows, strict=True)
        return [sum(self._parts(cursor, stored_key(key), row).values()) for key, row in pairs]

    def _parts(self, cursor: lmdb.Cursor, key: bytes, row: bytes) -> dict[bytes, int]:
        """The items of a row, each with a part of its count; mostly there is one."""
        short = _shortened(key, row)
        found = []
        there = cursor.set_range_dup(key, short + b"\0")  # of an empty row, LMDB finds no range
        while there and (value := cursor.value()).startswith(short):
            if len(value) - len(short) in _TAILS:
                found.append(value)
            there = cursor.next_dup()
        rows, counts = opened_rows([key] * len(found), found)
        parts = zip(found, rows, counts, strict=True)
        return {item: count for item, whose, count in parts if whose == short}

    def _merge(self, cursor: lmdb.Cursor, key: bytes, row: bytes, weight: int) -> None:
        """Change how often a row is there when its count is not simply put or taken away."""
        total = weight
        for part, count in self._parts(cursor, key, row).items():
            total += count
            cursor.set_key_dup(key, part)
            cursor.delete()
        if total < 0:
            raise Damaged("a row of state would be there a negative number of times")
        if total:
            (item,) = sealed_rows([key], [self._short(key, row)], [total])
            cursor.put(key, item)
        elif len(row) > _LONG_ROW:
            self._txn.delete(blake2b(key + _shortened(key, row)).digest(), db=self._long)

    def first(self, key: bytes, last: bool = False) -> bytes | None:
        """The least row under a key, or the greatest; None if there is none."""
        self.tally.reads += 1
        key = stored_key(key)
        cursor = self._txn.cursor(self._bags)
        if not cursor.set_key(key):
            self._check_gaps(self._bags, [key])
            return None
        if last:
            cursor.last_dup()
        (row,), _ = opened_rows([key], [cursor.value()])
        if len(row) <= _LONG_ROW:
            return row
        prefix, found = row[:_LONG_ROW], []
        step = cursor.prev_dup if last else cursor.next_dup
        more = True
        while more and (value := cursor.value()).startswith(prefix):
            (row,), _ = opened_rows([key], [value])
            found.append(self._whole(key, row))
            more = step()
        return max(found) if last else min(found)

    def scan_bags(
        self, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes, int]]:
        """(key, row, count) for keys from start to stop inclusive, in order; long keys are cut."""
        cursor = self._txn.cursor(self._bags)
        if not (self._seek(cursor, start[:PREFIX]) if start else cursor.first()):
            return
        read = 0
        try:
            for read, (key, value) in enumerate(cursor.iternext(), 1):  # noqa: B007
                (row,), (count,) = opened_rows([key], [value])
                if stop is not None and key[:PREFIX] > stop[:PREFIX]:
                    return
                yield key, self._whole(key, row), count
        finally:
            self.tally.reads += read

    def _seek(self, cursor: lmdb.Cursor, start: bytes) -> bool:
        """Go to the first key from `start` on, if there is one; a changed one may mislead."""
        other = self._txn.cursor(self._bags)
        there: bool = cursor.set_range(start)
        before = other.prev_nodup() if other.set_range(start) else other.last()
        if (there and cursor.key() < start) or (before and other.key() >= start):
            raise Damaged("keys of state are not in their order")
        return there

    def _whole(self, key: bytes, short: bytes) -> bytes:
        """The row that lies in a bag, perhaps as a short one."""
        if len(short) <= _LONG_ROW:
            return short
        name = blake2b(key + short).digest()
        item: bytes | None = self._txn.get(name, db=self._long)
        if item is None:
            raise Damaged("a long row of state is missing")
        return opened([name], [item])[0]


class _Neighbours:
    """Items beside keys that were not there: one whose key has changed would be among them."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._items: list[bytes] = []
        self._in_order = True

    def add_missed(self, key: bytes, cursor: lmdb.Cursor) -> None:
        """Those of a key that is not there; the cursor is moved."""
        if cursor.set_range(key):
            self._add(cursor.key() > key, cursor)
            more = cursor.prev()
        else:
            more = cursor.last()
        if more:
            self._add(cursor.key() < key, cursor)

    def add_new(self, key: bytes, cursor: lmdb.Cursor) -> None:
        """Those of a key that was just put, where the cursor is; it is moved."""
        if cursor.next():
            self._add(cursor.key() > key, cursor)
            cursor.prev()
        else:
            cursor.last()
        if cursor.prev():
            self._add(cursor.key() < key, cursor)

    def _add(self, in_order: bool, cursor: lmdb.Cursor) -> None:
        self._in_order &= in_order
        self._keys.append(cursor.key())
        self._items.append(cursor.value())

    def check(self) -> None:
        check(self._keys, self._items)
        if not self._in_order:
            raise Damaged("keys of state are not in their order")


def lock_of(path: str) -> str:
    """The file that is locked while the shard in a directory is written."""
    return os.path.join(path, "write.lock")


def _bag(places: list[int], rows: list[bytes], counts: list[int]) -> Bag:
    return np.array(places, np.int64), rows, np.array(counts, np.uint32)


def _shortened(key: bytes, row: bytes) -> bytes:
    """A row of a bag: itself, or as many bytes as fit with a digest at the end."""
    if len(row) <= _LONG_ROW:
        return row
    return row[:_LONG_ROW] + blake2b(key + row, digest_size=DIGEST).digest()


class Shard:
    """One shard of an operator or a view; as long as it is used, so is the store it is of."""

    def __init__(self, environment: Environment, store: object) -> None:
        self._environment = environment
        self._store = store
        environment.patience = _PATIENCE

    def apply(self, epoch: int, token: int, work: Callable[[ShardState], pa.Table]) -> pa.Table:
        """Do `work` once for the epoch; when it is done already, give what it gave.

        Raises `Superseded` if the shard was written, or fenced, with a newer token.
        """

        def once(txn: lmdb.Transaction) -> pa.Table:
            self._check(txn, token)
            if self._check_order(txn, epoch) == epoch:
                return from_stream(self._noted(txn, _OUTBOX))
            state = ShardState(txn, self._environment.dbs)
            given = work(state)
            begun = time.perf_counter_ns()
            self._note(txn, _OUTBOX, to_stream(given))
            self._note(txn, _APPLIED, _NUMBER.pack(epoch))
            state.tally.nanoseconds += time.perf_counter_ns() - begun
            ring = self._noted(txn, _WORK)
            self._note(txn, _WORK, appended(ring, state.tally.record(epoch)))
            return given

        return self._update(once)

    def load(self, epoch: int, token: int, work: Callable[[ShardState], pa.Table]) -> pa.Table:
        """Do `work` on an empty shard, which then is as of the epoch.

        May be done again, as long as no later epoch was applied.
        """

        def anew(txn: lmdb.Transaction) -> pa.Table:
            self._check(txn, token)
            self._check_order(txn, epoch)
            ended = self._noted(txn, _ENDED)
            for db in self._environment.dbs:
                txn.drop(db, delete=False)
            self._check(txn, token)
            self._note(txn, _ENDED, ended)
            self._note(txn, _APPLIED, _NUMBER.pack(epoch))
            state = ShardState(txn, self._environment.dbs)
            given = work(state)
            self._note(txn, _LOAD, state.tally.record(epoch))
            return given

        return self._update(anew)

    def hand(self, epoch: int, token: int, given: pa.Table) -> None:
        """Keep nothing but what an operator gave when it was loaded, for those who read it."""

        def once(txn: lmdb.Transaction) -> None:
            self._check(txn, token)
            self._note(txn, _OUTBOX, to_stream(given))
            self._note(txn, _APPLIED, _NUMBER.pack(epoch))

        self._update(once)

    def given(self, epoch: int) -> pa.Table | None:
        """What was given in an epoch, as long as it is the last; None if that was nothing."""
        with self._environment.reading() as txn, self._told_of():
            if self._check_order(txn, epoch) != epoch:
                return None
            return from_stream(self._noted(txn, _OUTBOX))

    def note_end(self, epoch: int, token: int, task: int) -> None:
        """Note that a task of the operator came to its end in an epoch, whatever shards it had.

        The first shard of an operator has these notes. To note a task again changes nothing.
        """

        def noted(txn: lmdb.Transaction) -> None:
            self._check(txn, token)
            tasks = self._tasks(txn, epoch, token)
            if task not in tasks:
                self._note(txn, _ENDED, np.array([epoch, token, *tasks, task], "<i8").tobytes())

        self._update(noted)

    def ended(self, epoch: int, token: int) -> int:
        """How many tasks came to their end in an epoch, for the maintainer with this token."""
        with self._environment.reading() as txn, self._told_of():
            return len(self._tasks(txn, epoch, token))

    def _tasks(self, txn: lmdb.Transaction, epoch: int, token: int) -> list[int]:
        numbers: list[int] = np.frombuffer(self._noted(txn, _ENDED), "<i8").tolist()
        return numbers[2:] if numbers[:2] == [epoch, token] else []

    def fence(self, token: int) -> None:
        """Refuse everything that comes with an older token from now on; with the lock held."""
        self._environment.update(lambda txn: self._check(txn, token))

    def _update(self, work: Callable[[lmdb.Transaction], T]) -> T:
        with self._told_of():
            self._environment.look()  # the file that is locked is beside what may be gone
            with locked(lock_of(self._environment.path)):
                return self._environment.update(work)

    @contextmanager
    def _told_of(self) -> Iterator[None]:
        """Damage names its place."""
        try:
            yield
        except Damaged as error:
            raise Damaged(f"{error} (state in {self._environment.path})") from error

    def _check(self, txn: lmdb.Transaction, token: int) -> None:
        known = self._number(txn, _TOKEN) or 0
        check_token(token, known)
        if token > known:
            self._note(txn, _TOKEN, _NUMBER.pack(token))

    def _check_order(self, txn: lmdb.Transaction, epoch: int) -> int | None:
        """The epoch applied last; raises `Superseded` if that is a later one."""
        applied = self._number(txn, _APPLIED)
        if applied is not None and applied > epoch:
            raise Superseded(
                f"epoch {epoch} is refused, since the shard has applied epoch {applied}: another "
                "maintainer took over"
            )
        return applied

    def _number(self, txn: lmdb.Transaction, name: bytes) -> int | None:
        found = self._noted(txn, name)
        return None if not found else _NUMBER.unpack(found)[0]

    def _note(self, txn: lmdb.Transaction, name: bytes, value: bytes) -> None:
        txn.put(name, sealed([name], [value])[0], db=self._environment.dbs[-1])

    def _noted(self, txn: lmdb.Transaction, name: bytes) -> bytes:
        item = txn.get(name, db=self._environment.dbs[-1])
        return b"" if item is None else opened([name], [item])[0]

    def get(self, key: bytes) -> bytes:
        with self._environment.reading() as txn, self._told_of():
            return ShardState(txn, self._environment.dbs).get_many([key])[0]

    def values(self) -> Iterator[list[bytes]]:
        """All values, in batches, as of one state of the shard."""
        with self._environment.reading() as txn, self._told_of():
            stream = txn.cursor(self._environment.dbs[0]).iternext()
            while batch := fill(stream, _READ, lambda item: len(item[1])):
                keys, values = zip(*batch, strict=True)
                yield opened(keys, values)

    def bags(self) -> Iterator[tuple[list[bytes], list[int]]]:
        """All rows of bags and how often each is there, in batches, as of one state."""
        with self._environment.reading() as txn, self._told_of():
            stream = ShardState(txn, self._environment.dbs).scan_bags()
            while batch := fill(stream, _READ, lambda item: len(item[1])):
                _, rows, counts = zip(*batch, strict=True)
                yield list(rows), list(counts)

    def work(self) -> ShardWork:
        """What its load and its last epochs took, also epochs that are not committed yet."""
        with self._environment.reading() as txn, self._told_of():
            load = records(self._noted(txn, _LOAD))
            return ShardWork(load[0] if load else None, records(self._noted(txn, _WORK)))

    def size(self) -> tuple[int, int]:
        """How many rows the state has, and its bytes on disk."""
        with self._environment.reading() as txn:
            rows = sum(int(txn.stat(db)["entries"]) for db in self._environment.dbs[:2])
        return rows, self._environment.file.size_on_disk
