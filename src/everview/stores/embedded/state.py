"""State of operators and views: one LMDB environment for each shard.

Databases: `rows` (values by key), `bags` (under a key any number of rows, each with a count),
`long` (rows of bags that are too long for LMDB's values under one key), `meta` (`applied`: the
last epoch applied; `outbox`: what it gave, an Arrow stream; `token`: the lease of who wrote last).
All change in one transaction, so an epoch is applied once, and asking for it again gives the
outbox.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from typing import TypeVar

import lmdb
import numpy as np
import pyarrow as pa

from everview.codec.streams import from_stream, to_stream
from everview.errors import Damaged, Superseded
from everview.stores.embedded.environment import Environment
from everview.stores.embedded.layout import DIGEST, LONGEST, PREFIX, stored_key
from everview.stores.embedded.lease import check, locked

DATABASES = ("rows", "bags", "long", "meta")
_APPLIED, _OUTBOX, _TOKEN = b"applied", b"outbox", b"token"
_NUMBER = struct.Struct("<Q")
_COUNT = struct.Struct("<I")
_NONE, _ONE = _COUNT.pack(0), _COUNT.pack(1)
_LONG_ROW = LONGEST - DIGEST - _COUNT.size
_READ = 8192
_PATIENCE = 30.0  # seconds
T = TypeVar("T")
Bag = tuple[np.ndarray, list[bytes], np.ndarray]


class ShardState:
    """The `State` of operators, inside one transaction."""

    def __init__(self, txn: lmdb.Transaction, dbs: Sequence[lmdb._Database]) -> None:
        self._txn = txn
        self._rows, self._bags, self._long, _ = dbs

    def _is_empty(self, db: lmdb._Database) -> bool:
        return int(self._txn.stat(db)["entries"]) == 0

    def get_many(self, keys: list[bytes]) -> list[bytes]:
        if self._is_empty(self._rows):
            return [b""] * len(keys)
        stored = [stored_key(key) for key in keys]
        found = dict(self._txn.cursor(self._rows).getmulti(stored))
        return [found.get(key, b"") for key in stored]

    def put_many(self, keys: list[bytes], values: list[bytes]) -> None:
        cursor = self._txn.cursor(self._rows)
        if self._is_empty(self._rows):
            items = [(stored_key(k), v) for k, v in zip(keys, values, strict=True) if v]
            cursor.putmulti(sorted(items), append=True)
            return
        for key, value in zip(keys, values, strict=True):
            if value:
                cursor.put(stored_key(key), value)
            elif cursor.set_key(stored_key(key)):
                cursor.delete()

    def get_bags(self, keys: list[bytes]) -> Bag:
        if self._is_empty(self._bags):
            return _bag([], [], [])
        stored = {stored_key(key): place for place, key in enumerate(keys)}
        found = self._txn.cursor(self._bags).getmulti(list(stored), dupdata=True)
        return self._opened(found, [stored[key] for key, _ in found])

    def change_bags(self, keys: list[bytes], rows: list[bytes], weights: list[int]) -> None:
        cursor = self._txn.cursor(self._bags)
        if self._is_empty(self._bags):
            self._fill(cursor, keys, rows, weights)
            return
        for key, row, weight in zip(keys, rows, weights, strict=True):
            key = stored_key(key)
            count = _ONE if weight == 1 or weight == -1 else _COUNT.pack(abs(weight))
            if len(row) > _LONG_ROW:
                self._merge(cursor, key, row, weight)
            elif weight > 0:
                if not cursor.put(key, row + count, dupdata=False):
                    self._merge(cursor, key, row, weight)
            elif cursor.set_key_dup(key, row + count):
                cursor.delete()
            else:
                self._merge(cursor, key, row, weight)

    def _fill(
        self, cursor: lmdb.Cursor, keys: list[bytes], rows: list[bytes], weights: list[int]
    ) -> None:
        """Rows appended to a shard that has none."""
        items = []
        for key, row, weight in zip(keys, rows, weights, strict=True):
            if weight < 0:
                raise Damaged("a row of state would be there a negative number of times")
            key = stored_key(key)
            items.append((key, self._short(key, row) + _COUNT.pack(weight)))
        cursor.putmulti(sorted(items), append=True)

    def _short(self, key: bytes, row: bytes) -> bytes:
        """The row as it lies in a bag; a long one is put aside."""
        if len(row) <= _LONG_ROW:
            return row
        short = _shortened(key, row)
        self._txn.put(blake2b(key + short).digest(), row, db=self._long)
        return short

    def count_rows(self, keys: list[bytes], rows: list[bytes]) -> list[int]:
        if self._is_empty(self._bags):
            return [0] * len(keys)
        cursor = self._txn.cursor(self._bags)
        pairs = zip(keys, rows, strict=True)
        return [sum(self._counts(cursor, stored_key(key), row)) for key, row in pairs]

    def _counts(self, cursor: lmdb.Cursor, key: bytes, row: bytes) -> Iterator[int]:
        """The counts of a row, with the cursor at each; mostly there is one."""
        short = _shortened(key, row)
        there = cursor.set_range_dup(key, short + _NONE)  # of an empty row, LMDB finds no range
        while there and (value := cursor.value()).startswith(short):
            if len(value) == len(short) + _COUNT.size:
                yield _COUNT.unpack(value[-_COUNT.size :])[0]
            there = cursor.next_dup()

    def _merge(self, cursor: lmdb.Cursor, key: bytes, row: bytes, weight: int) -> None:
        """Change how often a row is there when its count is not simply put or taken away."""
        total = weight
        for count in list(self._counts(cursor, key, row)):
            total += count
            cursor.set_key_dup(key, _shortened(key, row) + _COUNT.pack(count))
            cursor.delete()
        if total < 0:
            raise Damaged("a row of state would be there a negative number of times")
        if total:
            cursor.put(key, self._short(key, row) + _COUNT.pack(total))
        elif len(row) > _LONG_ROW:
            self._txn.delete(blake2b(key + _shortened(key, row)).digest(), db=self._long)

    def first(self, key: bytes, last: bool = False) -> bytes | None:
        """The least row under a key, or the greatest; None if there is none."""
        key = stored_key(key)
        cursor = self._txn.cursor(self._bags)
        if not cursor.set_key(key):
            return None
        if last:
            cursor.last_dup()
        value: bytes = cursor.value()
        if len(value) < LONGEST:
            return value[: -_COUNT.size]
        prefix, found = value[:_LONG_ROW], []
        step = cursor.prev_dup if last else cursor.next_dup
        more = True
        while more and (value := cursor.value()).startswith(prefix):
            found.append(self._whole(key, value))
            more = step()
        return max(found) if last else min(found)

    def scan_bags(
        self, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes, int]]:
        """(key, row, count) for keys from start to stop inclusive, in order; long keys are cut."""
        cursor = self._txn.cursor(self._bags)
        if not (cursor.set_range(start[:PREFIX]) if start else cursor.first()):
            return
        for key, value in cursor.iternext():
            if stop is not None and key[:PREFIX] > stop[:PREFIX]:
                return
            yield key, self._whole(key, value), _COUNT.unpack(value[-_COUNT.size :])[0]

    def _opened(self, found: list[tuple[bytes, bytes]], places: list[int]) -> Bag:
        counts = [value[-_COUNT.size :] for _, value in found]
        rows = [
            value[: -_COUNT.size] if len(value) < LONGEST else self._whole(key, value)
            for key, value in found
        ]
        return np.array(places, np.int64), rows, np.frombuffer(b"".join(counts), "<u4")

    def _whole(self, key: bytes, value: bytes) -> bytes:
        short = value[: -_COUNT.size]
        if len(value) < LONGEST:
            return short
        row: bytes | None = self._txn.get(blake2b(key + short).digest(), db=self._long)
        if row is None:
            raise Damaged("a long row of state is missing")
        return row


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
            meta = self._environment.dbs[-1]
            self._check(txn, token)
            if self._check_order(txn, epoch) == epoch:
                return from_stream(txn.get(_OUTBOX, db=meta))
            given = work(ShardState(txn, self._environment.dbs))
            txn.put(_OUTBOX, to_stream(given), db=meta)
            txn.put(_APPLIED, _NUMBER.pack(epoch), db=meta)
            return given

        return self._update(once)

    def load(self, epoch: int, token: int, work: Callable[[ShardState], pa.Table]) -> pa.Table:
        """Do `work` on an empty shard, which then is as of the epoch.

        May be done again, as long as no later epoch was applied.
        """

        def anew(txn: lmdb.Transaction) -> pa.Table:
            self._check(txn, token)
            self._check_order(txn, epoch)
            for db in self._environment.dbs:
                txn.drop(db, delete=False)
            self._check(txn, token)
            txn.put(_APPLIED, _NUMBER.pack(epoch), db=self._environment.dbs[-1])
            return work(ShardState(txn, self._environment.dbs))

        return self._update(anew)

    def fence(self, token: int) -> None:
        """Refuse everything that comes with an older token from now on; with the lock held."""
        self._environment.update(lambda txn: self._check(txn, token))

    def _update(self, work: Callable[[lmdb.Transaction], T]) -> T:
        path = self._environment.path
        with locked(lock_of(path)):
            try:
                return self._environment.update(work)
            except Damaged as error:
                raise Damaged(f"{error} (state in {path})") from error

    def _check(self, txn: lmdb.Transaction, token: int) -> None:
        known = self._number(txn, _TOKEN) or 0
        check(token, known)
        if token > known:
            txn.put(_TOKEN, _NUMBER.pack(token), db=self._environment.dbs[-1])

    def _check_order(self, txn: lmdb.Transaction, epoch: int) -> int | None:
        """The epoch applied last; raises `Superseded` if that is a later one."""
        applied = self._number(txn, _APPLIED)
        if applied is not None and applied > epoch:
            raise Superseded(f"epoch {epoch} comes after {applied}: another maintainer ran it")
        return applied

    def _number(self, txn: lmdb.Transaction, name: bytes) -> int | None:
        found = txn.get(name, db=self._environment.dbs[-1])
        return None if found is None else _NUMBER.unpack(found)[0]

    def get(self, key: bytes) -> bytes:
        with self._environment.reading() as txn:
            return txn.get(stored_key(key), b"", db=self._environment.dbs[0])  # type: ignore[no-any-return]

    def values(self) -> Iterator[list[bytes]]:
        """All values, in batches, as of one state of the shard."""
        with self._environment.reading() as txn:
            stream = iter(txn.cursor(self._environment.dbs[0]).iternext(keys=False))
            while batch := list(islice(stream, _READ)):
                yield batch

    def size(self) -> tuple[int, int]:
        """How many rows the state has, and its bytes on disk."""
        with self._environment.reading() as txn:
            rows = sum(int(txn.stat(db)["entries"]) for db in self._environment.dbs[:2])
        return rows, self._environment.size_on_disk()
