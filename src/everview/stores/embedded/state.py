"""State inside of one transaction: values by key, and bags of rows by key.

Several states may lie in one environment: the keys of each begin with its own prefix.

Every item is sealed with a checksum of its key and value. An item whose key changed on disk stays
at its old place. Who looks up the old key in vain checks the neighbours, and so finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

import lmdb
import numpy as np
import pyarrow as pa

from everview.errors import Damaged
from everview.state import Bag
from everview.stores.embedded.layout import DIGEST, LONGEST, PREFIX, stored_key
from everview.stores.embedded.sealed import (
    COUNT,
    SEAL,
    check,
    seal,
    seal_rows,
    unseal,
    unseal_rows,
)
from everview.stores.work import Tally

MADE = b"made"  # what is stored of a state that is there, behind its prefix
PREFIX_BYTES = 6
_TAILS = (SEAL, COUNT + SEAL)  # bytes of an item of a bag beside the row
_LONG_ROW = LONGEST - DIGEST - _TAILS[1]


class ShardState:
    """The `State` of operators, inside one transaction."""

    def __init__(
        self, txn: lmdb.Transaction, dbs: Sequence[lmdb._Database], prefix: bytes = b""
    ) -> None:
        self._txn = txn
        self._rows, self._bags, self._long, self._meta = dbs
        self._prefix = prefix
        self.tally = Tally()
        self.log: pa.Table | None = None

    def _stored(self, keys: Sequence[bytes]) -> list[bytes]:
        """The keys as LMDB has them."""
        prefix = self._prefix
        whole = [prefix + key for key in keys] if prefix else list(keys)
        is_short = max(map(len, whole), default=0) <= PREFIX
        return whole if is_short else list(map(stored_key, whole))

    def _has_from(self, db: lmdb._Database, key: bytes) -> bool:
        """Whether this state has items from a stored key on."""
        cursor = self._txn.cursor(db)
        if not (cursor.set_range(key) if key else cursor.first()):
            return False
        if not cursor.key().startswith(self._prefix):
            self._check_other(cursor.key(), cursor.value())
            return False
        return True

    def is_of_another(self, key: bytes) -> bool:
        """Whether a stored key is of another state that is there; its damage is not of this one."""
        if key.startswith(self._prefix):
            return False
        return self._txn.get(key[:PREFIX_BYTES] + MADE, db=self._meta) is not None

    def _check_other(self, key: bytes, item: bytes) -> None:
        """Raises `Damaged` if an item that is not of this state may have been of it."""
        if not self.is_of_another(key):
            check([key], [item])

    def _is_empty(self, db: lmdb._Database) -> bool:
        if not self._prefix:
            return int(self._txn.stat(db)["entries"]) == 0
        if self._has_from(db, self._prefix):
            return False
        self._check_gaps(db, [self._prefix])
        return True

    def _ends_before(self, db: lmdb._Database, keys: list[bytes]) -> bool:
        """Whether all stored keys are less than these."""
        if not keys:
            return self._is_empty(db)
        first = min(keys)
        if self._has_from(db, first):
            return False
        before = self._txn.cursor(db)
        if before.prev() if before.set_range(first) else before.last():
            self._check_other(before.key(), before.value())
            return bool(before.key() < first)
        return True

    def has_bags(self) -> bool:
        return not self._is_empty(self._bags)

    def get_many(self, keys: list[bytes]) -> list[bytes]:
        self.tally.reads += len(keys)
        if self._is_empty(self._rows):
            return [b""] * len(keys)
        stored_keys = self._stored(keys)
        items = dict(self._txn.cursor(self._rows).getmulti(stored_keys))
        self._check_gaps(self._rows, [key for key in stored_keys if key not in items])
        values = dict(zip(items, unseal(list(items), list(items.values())), strict=True))
        return [values.get(key, b"") for key in stored_keys]

    def scan_values(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """The stored keys that begin with a prefix, and their items."""
        return self._items(self._rows, (self._prefix + prefix)[:PREFIX])

    def _items(self, db: lmdb._Database, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All items whose stored keys begin with a prefix. Raises `Damaged` if a neighbour's key
        may have changed."""
        cursor = self._txn.cursor(db)
        has_item = cursor.set_range(prefix) if prefix else cursor.first()
        if prefix and not (has_item and cursor.key() == prefix):
            self._check_gaps(db, [prefix])
        if has_item:
            yield from self._from(cursor, prefix)

    def _from(self, cursor: lmdb.Cursor, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The items from where a cursor is, as long as their keys begin with a prefix."""
        for key, item in cursor.iternext():
            if not key.startswith(prefix):
                self._check_other(key, item)
                return
            yield key, item

    def put_many(self, keys: list[bytes], values: list[bytes]) -> None:
        self.tally.writes += len(keys)
        cursor = self._txn.cursor(self._rows)
        stored_keys = self._stored(keys)
        removed = [key for key, value in zip(stored_keys, values, strict=True) if not value]
        if removed:
            places = [place for place, value in enumerate(values) if value]
            stored_keys = [stored_keys[place] for place in places]
            values = [values[place] for place in places]
        cursor.putmulti(zip(stored_keys, seal(stored_keys, values), strict=True))
        for key in removed:
            if cursor.set_key(key):
                cursor.delete()

    def get_bags(self, keys: list[bytes]) -> Bag:
        if not self.has_bags():
            self.tally.reads += len(keys)
            return _bag([], [], [])
        places = {key: place for place, key in enumerate(self._stored(keys))}
        items = self._txn.cursor(self._bags).getmulti(list(places), dupdata=True)
        item_keys = [key for key, _ in items]
        missing = sorted(places.keys() - item_keys)
        self.tally.reads += len(items) + len(missing)
        self._check_gaps(self._bags, missing)
        rows, counts = unseal_rows(item_keys, [value for _, value in items])
        if max(map(len, rows), default=0) > _LONG_ROW:
            rows = list(map(self._whole, item_keys, rows))
        return _bag([places[key] for key in item_keys], rows, counts)

    def change_bags(self, keys: list[bytes], rows: list[bytes], weights: list[int]) -> None:
        self.tally.writes += len(keys)
        cursor = self._txn.cursor(self._bags)
        stored_keys = self._stored(keys)
        if self._ends_before(self._bags, stored_keys):
            self._append(cursor, stored_keys, rows, weights)
            return
        neighbours = _Neighbours(self)
        items = seal_rows(stored_keys, rows, map(abs, weights))
        for key, row, weight, item in zip(stored_keys, rows, weights, items, strict=True):
            if weight > 0:
                if len(row) > _LONG_ROW or not cursor.put(key, item, dupdata=False):
                    self._merge(cursor, key, row, weight)
                if cursor.count() == 1:
                    neighbours.add_new(key, cursor)
            elif len(row) <= _LONG_ROW and cursor.set_key_dup(key, item):
                cursor.delete()
            else:
                self._merge(cursor, key, row, weight)
        neighbours.check()

    def _append(
        self, cursor: lmdb.Cursor, keys: list[bytes], rows: list[bytes], weights: list[int]
    ) -> None:
        """Rows under keys that come after all others, so that pages are filled."""
        if min(weights, default=0) < 0:
            raise Damaged("a row of state would be there a negative number of times")
        if max(map(len, rows), default=0) > _LONG_ROW:
            rows = list(map(self._short, keys, rows))
        cursor.putmulti(zip(keys, seal_rows(keys, rows, weights), strict=True))

    def _check_gaps(self, db: lmdb._Database, keys: Iterable[bytes]) -> None:
        """Raises `Damaged` if an item of missing keys is there under a changed key."""
        cursor = self._txn.cursor(db)
        neighbours = _Neighbours(self)
        for key in keys:
            neighbours.add_missing(key, cursor)
        neighbours.check()

    def _short(self, key: bytes, row: bytes) -> bytes:
        """The row as a bag stores it; a long row goes to its own database."""
        if len(row) <= _LONG_ROW:
            return row
        short = _shorten(key, row)
        name = self._name_of_long(key, short)
        self._txn.put(name, seal([name], [row])[0], db=self._long)
        return short

    def count_rows(self, keys: list[bytes], rows: list[bytes]) -> list[int]:
        self.tally.reads += len(keys)
        if not self.has_bags():
            return [0] * len(keys)
        cursor = self._txn.cursor(self._bags)
        pairs = zip(self._stored(keys), rows, strict=True)
        return [sum(self._parts(cursor, key, row).values()) for key, row in pairs]

    def _name_of_long(self, key: bytes, short: bytes) -> bytes:
        """Where a long row is that is stored short under a key."""
        return self._prefix + blake2b(key + short).digest()

    def _parts(self, cursor: lmdb.Cursor, key: bytes, row: bytes) -> dict[bytes, int]:
        """The items of a row, each with a part of its count; mostly there is one."""
        short = _shorten(key, row)
        items = []
        has_item = cursor.set_range_dup(key, short + b"\0")  # of an empty row, LMDB finds no range
        while has_item and (value := cursor.value()).startswith(short):
            if len(value) - len(short) in _TAILS:
                items.append(value)
            has_item = cursor.next_dup()
        rows, counts = unseal_rows([key] * len(items), items)
        parts = zip(items, rows, counts, strict=True)
        return {item: count for item, stored_row, count in parts if stored_row == short}

    def _merge(self, cursor: lmdb.Cursor, key: bytes, row: bytes, weight: int) -> None:
        """Change the count of a row that a bag may have already."""
        total = weight
        for part, count in self._parts(cursor, key, row).items():
            total += count
            cursor.set_key_dup(key, part)
            cursor.delete()
        if total < 0:
            raise Damaged("a row of state would be there a negative number of times")
        if total:
            (item,) = seal_rows([key], [self._short(key, row)], [total])
            cursor.put(key, item)
        elif len(row) > _LONG_ROW:
            self._txn.delete(self._name_of_long(key, _shorten(key, row)), db=self._long)

    def first(self, key: bytes, last: bool = False) -> bytes | None:
        """The least row under a key, or the greatest; None if there is none."""
        self.tally.reads += 1
        (key,) = self._stored([key])
        cursor = self._txn.cursor(self._bags)
        if not cursor.set_key(key):
            self._check_gaps(self._bags, [key])
            return None
        if last:
            cursor.last_dup()
        (row,), _ = unseal_rows([key], [cursor.value()])
        if len(row) <= _LONG_ROW:
            return row
        prefix, rows = row[:_LONG_ROW], []
        step = cursor.prev_dup if last else cursor.next_dup
        has_item = True
        while has_item and (value := cursor.value()).startswith(prefix):
            (row,), _ = unseal_rows([key], [value])
            rows.append(self._whole(key, row))
            has_item = step()
        return max(rows) if last else min(rows)

    def scan_bags(
        self, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes, int]]:
        """(key, row, count) for keys from start to stop inclusive, in order; long keys are cut."""
        prefix, cut = self._prefix, LONGEST - DIGEST - len(self._prefix)
        cursor, read = self._txn.cursor(self._bags), 0
        if start and not self._seek(cursor, prefix + start[:cut]):
            return
        items = self._from(cursor, prefix) if start else self._items(self._bags, prefix)
        try:
            for read, (stored, value) in enumerate(items, 1):  # noqa: B007
                (row,), (count,) = unseal_rows([stored], [value])
                key = stored[len(prefix) :]
                if stop is not None and key[:cut] > stop[:cut]:
                    return
                yield key, self._whole(stored, row), count
        finally:
            self.tally.reads += read

    def _seek(self, cursor: lmdb.Cursor, start: bytes) -> bool:
        """Go to the first key from `start` on; False if there is none. Raises if order is lost."""
        neighbour = self._txn.cursor(self._bags)
        has_key: bool = cursor.set_range(start)
        has_neighbour = neighbour.prev_nodup() if neighbour.set_range(start) else neighbour.last()
        if (has_key and cursor.key() < start) or (has_neighbour and neighbour.key() >= start):
            raise Damaged("keys of state are not in their order")
        return has_key

    def _whole(self, key: bytes, short: bytes) -> bytes:
        """The whole row, of one that may be stored short."""
        if len(short) <= _LONG_ROW:
            return short
        name = self._name_of_long(key, short)
        item: bytes | None = self._txn.get(name, db=self._long)
        if item is None:
            raise Damaged("a long row of state is missing")
        return unseal([name], [item])[0]


class _Neighbours:
    """Neighbours of missing keys: an item whose key changed on disk would be among them. Those of
    many keys in one gap are read once: they may be long."""

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._keys: list[bytes] = []
        self._items: list[bytes] = []
        self._gaps: set[tuple[bytes, bytes]] = set()
        self._in_order = True

    def add_missing(self, key: bytes, cursor: lmdb.Cursor) -> None:
        """Add the neighbours of a key that is missing; moves the cursor."""
        has_next = cursor.set_range(key)
        next_key = cursor.key() if has_next else b""
        has_previous = cursor.prev() if has_next else cursor.last()
        gap = (cursor.key() if has_previous else b""), next_key
        self._in_order &= gap[0] < key and (not has_next or key < next_key)
        if gap not in self._gaps:
            self._gaps.add(gap)
            if has_previous:
                self._add(cursor)
            if has_next and cursor.set_range(key):
                self._add(cursor)

    def add_new(self, key: bytes, cursor: lmdb.Cursor) -> None:
        """Add the neighbours of a key that was just put, where the cursor is; moves the cursor."""
        if cursor.next():
            self._in_order &= cursor.key() > key
            self._add(cursor)
            cursor.prev()
        else:
            cursor.last()
        if cursor.prev():
            self._in_order &= cursor.key() < key
            self._add(cursor)

    def _add(self, cursor: lmdb.Cursor) -> None:
        key = cursor.key()
        if not self._state.is_of_another(key):
            self._keys.append(key)
            self._items.append(cursor.value())

    def check(self) -> None:
        check(self._keys, self._items)
        if not self._in_order:
            raise Damaged("keys of state are not in their order")


def _bag(places: list[int], rows: list[bytes], counts: list[int]) -> Bag:
    return np.array(places, np.int64), rows, np.array(counts, np.uint32)


def _shorten(key: bytes, row: bytes) -> bytes:
    """The row, or if it is long, as many of its bytes as fit and a digest."""
    if len(row) <= _LONG_ROW:
        return row
    return row[:_LONG_ROW] + blake2b(key + row, digest_size=DIGEST).digest()
