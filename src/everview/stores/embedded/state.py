"""State inside of one transaction: values by key, and bags of rows by key.

Every item is sealed with a checksum of its key and value. A key that changed on disk is found
where it was by whoever looks for it in vain: it is a neighbour of the place.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TypeVar

import lmdb
import numpy as np

from everview.errors import Damaged
from everview.state import Bag
from everview.stores.embedded.layout import DIGEST, LONGEST, PREFIX, stored_key
from everview.stores.embedded.sealed import (
    COUNT,
    SEAL,
    check,
    opened,
    opened_rows,
    sealed,
    sealed_rows,
)
from everview.stores.work import Tally

DATABASES = ("rows", "bags", "long", "meta")
_APPLIED, _OUTBOX, _TOKEN = b"applied", b"outbox", b"token"
_LOAD, _WORK, _ENDED = b"load", b"work", b"ended"
_NUMBER = struct.Struct("<Q")
_TAILS = (SEAL, COUNT + SEAL)  # bytes of an item of a bag beside the row
_LONG_ROW = LONGEST - DIGEST - _TAILS[1]
_READ = 8192
_PATIENCE = 30.0  # seconds
T = TypeVar("T")


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


def _bag(places: list[int], rows: list[bytes], counts: list[int]) -> Bag:
    return np.array(places, np.int64), rows, np.array(counts, np.uint32)


def _shortened(key: bytes, row: bytes) -> bytes:
    """A row of a bag: itself, or as many bytes as fit with a digest at the end."""
    if len(row) <= _LONG_ROW:
        return row
    return row[:_LONG_ROW] + blake2b(key + row, digest_size=DIGEST).digest()
