"""One region of a table: rows, change log and meta in one LMDB environment.

All methods take a transaction of the region's environment; what a write does in it appears at
once or not at all. Keys are stored keys (layout.py), values are encoded rows (codec/rows.py).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import lmdb
import numpy as np
import pyarrow as pa

from everview.codec.point import encode_key
from everview.codec.rows import EncodedRows, join
from everview.errors import AppendOnly, Damaged, LogError, LogTrimmed, UnknownConsumer, WriteError
from everview.stores.base import LogRange, Write
from everview.stores.embedded import log
from everview.stores.embedded.environment import Environment
from everview.stores.embedded.layout import LONGEST, Layout, stored_key

DATABASES = ("rows", "log", "meta")
_NUMBER = struct.Struct("<Q")
_CONSUMER = struct.Struct("<Qq")
_LAST, _CONSUMERS = b"last", b"consumer/"
_FEW, _SOME = 4, 64
PIECE_BYTES = 256 << 20
Item = tuple[bytes, bytes]
T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """The part of a write for one region, in pieces that are not too large.

    A piece has ascending stored keys and, for a put, their encoded rows. No key comes twice.
    """

    op: str
    region: int
    pieces: list[tuple[list[bytes], EncodedRows | None]]


class Region:
    """Reads and writes one region inside given transactions."""

    def __init__(self, layout: Layout, number: int, environment: Environment) -> None:
        self.layout = layout
        self.number = number
        self.environment = environment

    @property
    def rows(self) -> lmdb._Database:
        return self.environment.dbs[0]

    @property
    def _log(self) -> lmdb._Database:
        return self.environment.dbs[1]

    @property
    def _meta(self) -> lmdb._Database:
        return self.environment.dbs[2]

    def last(self, txn: lmdb.Transaction) -> int:
        """The sequence of the newest change."""
        value = txn.get(_LAST, db=self._meta)
        return 0 if value is None else int(_NUMBER.unpack(value)[0])

    def write(self, txn: lmdb.Transaction, part: Part, equal_too: bool = False) -> Iterator[Write]:
        """Apply a part, piece by piece, and yield each piece as a `Write`.

        Rows that equal the stored ones are written only if `equal_too`. Raises `AppendOnly`.
        """
        append_only = self.layout.schema.append_only
        for keys, after in part.pieces:
            before, unchanged = self._existing(txn, keys), list[bytes]()
            if any(before):
                if after is not None and (append_only or not equal_too):
                    keys, before, after, unchanged = self._without_equal(keys, before, after)
                self._check_existing(keys, before)
                if append_only and any(before):
                    self._refuse(next(filter(None, before)), after is not None)
            if after is None:
                keys = [key for key, old in zip(keys, before, strict=True) if old]
                before = [old for old in before if old]
            if not keys and not unchanged:
                continue
            first = self.last(txn) + 1
            if keys:
                self._apply(txn, first, keys, before, after)
            yield Write(
                self.layout.schema,
                self.number,
                part.op,
                range(first, first + len(keys)),
                partial(self._decode, before),
                partial(self._decode_after, len(keys), after),
                partial(self._decode, unchanged),
                len(unchanged),
            )

    def _without_equal(
        self, keys: list[bytes], before: list[bytes], after: EncodedRows
    ) -> tuple[list[bytes], list[bytes], EncodedRows, list[bytes]]:
        """The keys and rows that are left to put, and the stored rows that equal theirs.

        Equal rows need no other check: with its checksum, such a row has the key it is under.
        """
        with locating(self):
            equal = self.layout.rows.equal_rows(before, after)
        if not equal.any():
            return keys, before, after, []
        places = np.flatnonzero(~equal)
        return (
            [keys[place] for place in places.tolist()],
            [before[place] for place in places.tolist()],
            after.choose(places),
            [before[place] for place in np.flatnonzero(equal).tolist()] if len(places) else before,
        )

    def _check_existing(self, keys: list[bytes], before: list[bytes]) -> None:
        """A damaged row must not get into the log as if it were right."""
        self.check_keys([item for item in zip(keys, before, strict=True) if item[1]])

    def _apply(
        self,
        txn: lmdb.Transaction,
        first: int,
        keys: list[bytes],
        before: list[bytes],
        after: EncodedRows | None,
    ) -> None:
        """Write rows, or delete them, and their changes, which have sequences first, ..."""
        if after is None:
            for key in keys:
                txn.delete(key, db=self.rows)
        else:
            after.stamp(first)
            self._put(txn, keys, after.rows.to_pylist())
        log.append(txn, self._log, self.layout.schema.version, first, before, after)
        txn.put(_LAST, _NUMBER.pack(first + len(keys) - 1), db=self._meta)

    def _refuse(self, row: bytes, is_put: bool) -> None:
        schema, values = self.layout.schema, self._decode([row])[0].as_py()
        key = ", ".join(f"{name} = {values[name]!r}" for name in schema.key)
        raise AppendOnly(
            f"table {schema.name} is append-only: its row with {key} can't be "
            f"{'changed' if is_put else 'deleted'}, and nothing was written. Put rows with new "
            "keys; for rows that change, create a table without append_only and copy them there"
        )

    def _decode_after(self, count: int, after: EncodedRows | None) -> pa.StructArray:
        return self._decode([b""] * count if after is None else after.rows.to_pylist())

    def _decode(self, images: list[bytes]) -> pa.StructArray:
        data, starts = join(images)
        lengths = np.fromiter(map(len, images), np.int64, len(images))
        return log.image(self.layout.rows, self.layout.all_columns, data, starts, lengths)

    def _existing(self, txn: lmdb.Transaction, keys: list[bytes]) -> list[bytes]:
        """The rows stored under sorted keys, not checked yet; b"" where there is none."""
        cursor = txn.cursor(self.rows)
        if not cursor.last():
            return [b""] * len(keys)
        if cursor.key() < keys[0]:
            self.check_keys([cursor.item()])
            return [b""] * len(keys)
        items: list[Item] = cursor.getmulti(keys)
        if len(items) == len(keys):
            return [row for _, row in items]
        rows = dict(items)
        if len(keys) - len(items) <= _SOME:  # of many, it would take as long as to write them
            self.check_keys(self._neighbours(txn, [key for key in keys if key not in rows]))
        return [rows.get(key, b"") for key in keys]

    def _put(self, txn: lmdb.Transaction, keys: list[bytes], values: list[bytes]) -> None:
        cursor = txn.cursor(self.rows)
        is_append = not cursor.last() or cursor.key() < keys[0]
        _, stored_count = cursor.putmulti(zip(keys, values, strict=True), append=is_append)
        if stored_count != len(keys):
            raise WriteError(
                f"{self.environment.path}: {stored_count} of {len(keys)} rows were taken"
            )

    def get(self, txn: lmdb.Transaction, key: bytes) -> bytes | None:
        """The row under a key; None if there is none. Raises `Damaged` if it is missing and a
        neighbour is stored under a wrong key."""
        row: bytes | None = txn.get(key, db=self.rows)
        if row is None:
            self.check_keys(self._neighbours(txn, [key]))
        return row

    def get_checked(self, txn: lmdb.Transaction, key: bytes) -> bytes | None:
        """As `get`; raises `Damaged` if the row fails its checksum, or is not that of the key."""
        row = self.get(txn, key)
        if row is not None:
            self.check_keys([(key, row)])
        return row

    def get_many(self, txn: lmdb.Transaction, keys: list[bytes]) -> list[tuple[bytes, bytes]]:
        """The stored keys and rows of those sorted keys that exist; checks each row's key."""
        items: list[Item] = txn.cursor(self.rows).getmulti(keys)
        self.check_keys(items)
        if len(items) < len(keys):
            stored_keys = {key for key, _ in items}
            self.check_keys(self._neighbours(txn, [key for key in keys if key not in stored_keys]))
        return items

    def _neighbours(self, txn: lmdb.Transaction, keys: list[bytes]) -> list[Item]:
        """The neighbours of sorted keys that are missing: if a key changed on disk, its row is
        still at its old place."""
        cursor = txn.cursor(self.rows)
        items: list[Item] = []
        next_key = b""
        for key in keys:
            if key < next_key:  # it has the same neighbours as the key before
                continue
            if cursor.set_range(key):
                next_key = cursor.key()
                items.append(cursor.item())
                has_item = cursor.prev()
            else:
                next_key = b"\xff" * (LONGEST + 1)
                has_item = cursor.last()
            if has_item:
                items.append(cursor.item())
        return items

    def check_keys(self, items: list[Item]) -> None:
        """Raises `Damaged` if rows fail their checksums, or lie under keys that are not theirs."""
        with locating(self):
            if len(items) <= _FEW and all(map(self._is_own, items)):
                return
            for piece in in_pieces(items):
                data, starts = join([row for _, row in piece])
                columns = self.layout.rows.decode(data, starts, self.layout.key_positions)
                stored_keys = pa.array([key for key, _ in piece], pa.binary())
                self.layout.check_stored_keys(self.layout.keys.encode(columns), stored_keys)

    def _is_own(self, item: Item) -> bool:
        """Whether a row is plainly that of its key."""
        values = self.layout.rows.decode_row(item[1], self.layout.key_positions)
        key = encode_key(self.layout.schema.key_columns, tuple(values.values()))
        return key is not None and stored_key(key) == item[0]

    def count(self, txn: lmdb.Transaction) -> int:
        return int(txn.stat(self.rows)["entries"])

    def log_range(self, txn: lmdb.Transaction) -> LogRange:
        return LogRange(*log.bounds(txn, self._log, self.last(txn)))

    def changes(
        self, txn: lmdb.Transaction, after: int, upto: int | None, rows: int
    ) -> Iterator[log.Images]:
        log_range = self.log_range(txn)
        if after + 1 < log_range.first and after < log_range.last:
            raise LogTrimmed(
                f"table {self.layout.schema.name}, region {self.number}: changes after sequence "
                f"{after} were trimmed, the log begins at {log_range.first}. Read the table itself "
                "first, and register a consumer to keep changes that you still need."
            )
        if after > log_range.last:
            raise LogError(
                f"table {self.layout.schema.name}, region {self.number} has no sequence {after} "
                f"yet, its newest is {log_range.last}; was the table dropped and created again?"
            )
        upto = log_range.last if upto is None else min(upto, log_range.last)
        return log.read(txn, self._log, after, upto, rows)

    def time_after(self, txn: lmdb.Transaction, after: int) -> int | None:
        """When the first change after a sequence was made, of those the log still has."""
        log_range = self.log_range(txn)
        sequence = max(after + 1, log_range.first)
        return log.time_of(txn, self._log, sequence) if sequence <= log_range.last else None

    def last_at(self, txn: lmdb.Transaction, time: int) -> int:
        """The sequence of the newest change at a time in µs, as far as the log tells."""
        log_range = self.log_range(txn)
        return log.last_at(txn, self._log, log_range.first, log_range.last, time)

    def mean_bytes(self, txn: lmdb.Transaction, after: int, upto: int) -> float:
        """About how many bytes a change with after < sequence <= upto has."""
        return log.mean_bytes(txn, self._log, after, upto)

    def add_consumer(self, txn: lmdb.Transaction, name: str, position: int | None) -> None:
        """Keep changes after `position`, or all; a registered consumer keeps its position."""
        if name not in self.consumers(txn):
            first = self.log_range(txn).first - 1
            self._set_consumer(txn, name, first if position is None else position, 0)

    def hold(self, txn: lmdb.Transaction, name: str, expires: int) -> int:
        """Keep changes from now on until a time in µs; returns the position."""
        last = self.last(txn)
        self._set_consumer(txn, name, last, expires)
        return last

    def _set_consumer(self, txn: lmdb.Transaction, name: str, position: int, expires: int) -> None:
        txn.put(_CONSUMERS + name.encode(), _CONSUMER.pack(position, expires), db=self._meta)

    def drop_consumer(self, txn: lmdb.Transaction, name: str) -> None:
        txn.delete(_CONSUMERS + name.encode(), db=self._meta)

    def move_consumer(self, txn: lmdb.Transaction, name: str, position: int) -> None:
        """Let go of changes up to `position`; never moves backwards."""
        value = txn.get(_CONSUMERS + name.encode(), db=self._meta)
        if value is None:
            raise UnknownConsumer(
                f"table {self.layout.schema.name} has no consumer {name!r}; register it first. "
                f"Registered: {', '.join(sorted(self.consumers(txn))) or 'none'}"
            )
        if position > self.last(txn):
            raise LogError(
                f"table {self.layout.schema.name}, region {self.number}: {name!r} can't "
                f"acknowledge sequence {position}, the newest is {self.last(txn)}"
            )
        if position > _CONSUMER.unpack(value)[0]:
            self._set_consumer(txn, name, position, 0)

    def consumers(self, txn: lmdb.Transaction) -> dict[str, int]:
        """Positions of all consumers, and of snapshots that have not expired."""
        cursor = txn.cursor(self._meta)
        positions, now = {}, time.time_ns() // 1000
        has_item = cursor.set_range(_CONSUMERS)
        while has_item and cursor.key().startswith(_CONSUMERS):
            position, expires = _CONSUMER.unpack(cursor.value())
            if expires == 0 or expires > now:
                positions[cursor.key()[len(_CONSUMERS) :].decode()] = position
            has_item = cursor.next()
        return positions

    def trim(self, txn: lmdb.Transaction, upto: int | None, older: float) -> int:
        """Remove changes up to `upto` that no consumer needs and that are so many seconds old."""
        limits = [self.last(txn) if upto is None else upto, *self.consumers(txn).values()]
        return log.trim(txn, self._log, min(limits), (time.time() - older) * 1e6)


def in_pieces(items: list[Item]) -> Iterator[list[Item]]:
    """Items in their order, in pieces that can be decoded at once: mostly there is one."""
    lengths = [len(row) for _, row in items]
    start = size = 0
    for at, length in enumerate(lengths) if sum(lengths) > PIECE_BYTES else ():
        if size + length > PIECE_BYTES and at > start:
            yield items[start:at]
            start, size = at, 0
        size += length
    yield items[start:]


def with_location(region: Region, stream: Iterator[T]) -> Iterator[T]:
    """The stream; `Damaged` names the region."""
    with locating(region):
        yield from stream


@contextmanager
def locating(region: Region) -> Iterator[None]:
    """`Damaged` that is raised inside the block names the region."""
    try:
        yield
    except Damaged as error:
        place = f"table {region.layout.schema.name}, region {region.number}"
        raise Damaged(f"{place} ({region.environment.path}): {error}") from error
