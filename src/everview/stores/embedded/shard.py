"""Shards: the state of an operator or the rows of a view.

A state lies in a *volume*: an LMDB environment for each shard, which the states of the volume share
or, if its name has no dot, which it has for itself. What belongs to a state begins with its prefix.

Databases: `rows` (values by key), `bags` (under a key any number of rows, each with a count),
`long` (rows of bags that are too long for LMDB's values under one key), `meta` (`token`: the lease
of who wrote last, one for the environment; and for each state `made`: it is there; `applied`: the
last epoch applied; `outbox`: its output, an Arrow stream, in pieces of a GiB; `log` with an epoch:
what the epoch changed, if someone follows that; `load` and `work`: what the load and the last
epochs took; `size`: its items and pages; `ended`: which tasks of an epoch came to their end; `rows`
with a name: how many rows a load has read). All change in one transaction, so an epoch is applied
once, and asking for it again gives the outbox: that is how the law of states holds here.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

import lmdb
import numpy as np
import pyarrow as pa

from everview.codec.streams import from_stream, to_stream
from everview.errors import Damaged, Superseded
from everview.stores.base import Shard
from everview.stores.base.states import Work
from everview.stores.embedded.environment import Environment
from everview.stores.embedded.scan import fill
from everview.stores.embedded.sealed import seal, unseal
from everview.stores.embedded.state import MADE, PREFIX_BYTES, ShardState
from everview.stores.embedded.together import update
from everview.stores.embedded.tokens import check_token
from everview.stores.embedded.volumes import state_at
from everview.stores.work import ShardWork, append_record, records

DATABASES = ("rows", "bags", "long", "meta")
_APPLIED, _OUTBOX, _TOKEN = b"applied", b"outbox", b"token"
_LOAD, _WORK, _ENDED, _LOG, _ROWS = b"load", b"work", b"ended", b"log ", b"rows "
_SIZE = b"size"
_NUMBER = struct.Struct("<Q")
_OCCUPIED = struct.Struct("<qq")  # items, pages
_READ = 8192
_MANY_PAGES = 100
_ITEM = 10  # bytes of an item in a page, beside key and value
_PIECE = 1 << 30  # bytes
_PATIENCE = 30.0  # seconds
LEFT = b"left"  # in an environment where dropped states have left items
_AT_ONCE = 50_000  # keys to delete in one transaction
T = TypeVar("T")


def _piece(name: bytes, number: int) -> bytes:
    """The name of a piece of a stream."""
    return name + (b" %d" % number if number else b"")


def _log_of(epoch: int) -> bytes:
    """The name of what the log has of an epoch; names are in the order of epochs."""
    return _LOG + b"%020d" % epoch


class EmbeddedShard(Shard):
    """A shard in an environment of its volume; it keeps the store open as long as it is used."""

    def __init__(self, environment: Environment, store: object, prefix: bytes = b"") -> None:
        self.environment = environment
        self._store = store
        self._prefix = prefix
        environment.patience = _PATIENCE

    def apply(self, epoch: int, token: int, work: Work, log_after: int | None = None) -> pa.Table:
        def once(txn: lmdb.Transaction) -> pa.Table:
            self._check(txn, token)
            if self._check_order(txn, epoch) == epoch:
                return self._stream(txn, _OUTBOX)
            before = self._occupied(txn)
            state = self._state(txn)
            output = work(state)
            self._add_size(txn, before)
            start = time.perf_counter_ns()
            self._put_stream(txn, _OUTBOX, output)
            self._trim_log(txn, epoch if log_after is None else log_after)
            if log_after is not None and state.log is not None:
                self._put_stream(txn, _log_of(epoch), state.log)
            self._put_meta(txn, _APPLIED, _NUMBER.pack(epoch))
            state.tally.nanoseconds += time.perf_counter_ns() - start
            ring = self._get_meta(txn, _WORK)
            self._put_meta(txn, _WORK, append_record(ring, state.tally.record(epoch)))
            return output

        return self._update(once)

    def load(self, epoch: int, token: int, work: Work) -> pa.Table:
        def anew(txn: lmdb.Transaction) -> pa.Table:
            self._check(txn, token)
            self._check_order(txn, epoch)
            ended_tasks = self._get_meta(txn, _ENDED)
            self._clear(txn)
            self._check(txn, token)
            self._put_meta(txn, MADE, b"")
            self._put_meta(txn, _ENDED, ended_tasks)
            self._put_meta(txn, _APPLIED, _NUMBER.pack(epoch))
            before = self._occupied(txn)
            state = self._state(txn)
            output = work(state)
            self._add_size(txn, before)
            self._put_meta(txn, _LOAD, state.tally.record(epoch))
            return output

        return self._update(anew)

    def hand(self, epoch: int, token: int, output: pa.Table) -> None:
        def once(txn: lmdb.Transaction) -> None:
            self._check(txn, token)
            self._put_stream(txn, _OUTBOX, output)
            self._put_meta(txn, _APPLIED, _NUMBER.pack(epoch))

        self._update(once)

    def output(self, epoch: int) -> pa.Table | None:
        with self._reading() as txn:
            if self._check_order(txn, epoch) != epoch:
                return None
            return self._stream(txn, _OUTBOX)

    def is_at(self, epoch: int) -> bool:
        with self._reading() as txn:
            return self._number(txn, _APPLIED) == epoch

    def log(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table]]:
        with self._reading() as txn:
            for name in self._log_names(txn, after, upto):
                yield int(name[len(_LOG) :]), self._stream(txn, name)

    def _trim_log(self, txn: lmdb.Transaction, upto: int) -> None:
        for name in list(self._log_names(txn, 0, upto)):
            self._delete_stream(txn, name)

    def _log_names(self, txn: lmdb.Transaction, after: int, upto: int) -> Iterator[bytes]:
        """The names of what the log has of some epochs, in their order."""
        prefix = self._prefix
        first, last = prefix + _log_of(after + 1), prefix + _log_of(upto)
        cursor = txn.cursor(self.environment.dbs[-1])
        more = cursor.set_range(first)
        while more and (name := bytes(cursor.key())) <= last:
            yield name[len(prefix) :]
            more = cursor.set_range(name + b"!")  # after its pieces

    def note_end(self, epoch: int, token: int, task: int) -> None:
        def add_task(txn: lmdb.Transaction) -> None:
            self._check(txn, token)
            tasks = self._tasks(txn, epoch, token)
            if task not in tasks:
                self._put_meta(txn, _ENDED, np.array([epoch, token, *tasks, task], "<i8").tobytes())

        self._update(add_task)

    def ended_tasks(self, epoch: int, token: int) -> int:
        with self._reading() as txn:
            return len(self._tasks(txn, epoch, token))

    def _tasks(self, txn: lmdb.Transaction, epoch: int, token: int) -> list[int]:
        numbers: list[int] = np.frombuffer(self._get_meta(txn, _ENDED), "<i8").tolist()
        return numbers[2:] if numbers[:2] == [epoch, token] else []

    def note_rows(self, token: int, name: str, rows: int) -> None:
        def note(txn: lmdb.Transaction) -> None:
            self._check(txn, token)
            self._put_meta(txn, _ROWS + name.encode(), _NUMBER.pack(rows))

        self._update(note)

    def noted_rows(self) -> dict[str, int]:
        with self._reading() as txn:
            cursor, prefix = txn.cursor(self.environment.dbs[-1]), self._prefix
            names = []
            more = cursor.set_range(prefix + _ROWS)
            while more and (name := bytes(cursor.key())).startswith(prefix + _ROWS):
                names.append(name[len(prefix) :])
                more = cursor.next()
            return {name[len(_ROWS) :].decode(): self._number(txn, name) or 0 for name in names}

    def fence(self, token: int) -> None:
        """Refuse older tokens from now on. The caller holds the lock."""
        self.environment.update(lambda txn: self._check(txn, token))

    def make(self) -> None:
        """Let the state be there, without rows; does nothing if it is."""
        self._update(lambda txn: self._put_meta(txn, MADE, b""), is_there=False)

    def delete(self) -> None:
        """Delete the state's part of a volume that others use too; much is left to be swept."""

        def delete_some(txn: lmdb.Transaction) -> None:
            *dbs, meta = self.environment.dbs
            _delete(txn, meta, self._prefix)
            room = _AT_ONCE
            for db in dbs:
                room -= _delete(txn, db, self._prefix, room)
            if room <= 0:
                txn.put(LEFT, b"", db=meta)

        self._update(delete_some, is_there=False)

    def _update(self, work: Callable[[lmdb.Transaction], T], is_there: bool = True) -> T:
        def checked(txn: lmdb.Transaction) -> T:
            if is_there:
                self._check_made(txn)
            return work(txn)

        with self._naming_damaged_place():
            return update(self.environment, checked)

    @contextmanager
    def _reading(self) -> Iterator[lmdb.Transaction]:
        with self.environment.reading() as txn, self._naming_damaged_place():
            self._check_made(txn)
            yield txn

    def _check_made(self, txn: lmdb.Transaction) -> None:
        """Raises `Damaged` if the state is not in its volume."""
        name = self._prefix + MADE
        if self._prefix and txn.get(name, db=self.environment.dbs[-1]) is None:
            raise Damaged(
                "the state of an operator or a view is gone; load the view again with `everview "
                "verify DB --repair`"
            )

    @contextmanager
    def _naming_damaged_place(self) -> Iterator[None]:
        """`Damaged` says which shard it is of."""
        try:
            yield
        except Damaged as error:
            path = self.environment.path
            state = state_at(Path(path).parent.name, self._prefix)
            raise Damaged(f"{error} (state {state} in {path})") from error

    def _state(self, txn: lmdb.Transaction) -> ShardState:
        return ShardState(txn, self.environment.dbs, self._prefix)

    def _check(self, txn: lmdb.Transaction, token: int) -> None:
        """One token for all states of the environment."""
        item = txn.get(_TOKEN, db=self.environment.dbs[-1])
        newest = 0 if item is None else _NUMBER.unpack(unseal([_TOKEN], [item])[0])[0]
        check_token(token, newest)
        if token > newest:
            sealed = seal([_TOKEN], [_NUMBER.pack(token)])[0]
            txn.put(_TOKEN, sealed, db=self.environment.dbs[-1])

    def _occupied(self, txn: lmdb.Transaction) -> tuple[int, int]:
        """The items and the pages of all states in the environment."""
        stats = [txn.stat(db) for db in self.environment.dbs[:3]]
        kinds = ("leaf_pages", "branch_pages", "overflow_pages")
        pages = sum(int(stat[kind]) for stat in stats for kind in kinds)
        return sum(int(stat["entries"]) for stat in stats[:2]), pages

    def _add_size(self, txn: lmdb.Transaction, before: tuple[int, int]) -> None:
        """Note what the state has come to have since."""
        now = self._occupied(txn)
        if now != before:
            old = self._size(txn)
            parts = zip(old, before, now, strict=True)
            grown = [size + after - earlier for size, earlier, after in parts]
            self._put_meta(txn, _SIZE, _OCCUPIED.pack(*grown))

    def _size(self, txn: lmdb.Transaction) -> tuple[int, int]:
        item = self._get_meta(txn, _SIZE)
        items, pages = _OCCUPIED.unpack(item) if item else (0, 0)
        return items, pages

    def _clear(self, txn: lmdb.Transaction) -> None:
        """Delete all that the state has."""
        for db in self.environment.dbs:
            if self._prefix:
                _delete(txn, db, self._prefix)
            else:
                txn.drop(db, delete=False)

    def _check_order(self, txn: lmdb.Transaction, epoch: int) -> int | None:
        """The epoch applied last; raises `Superseded` if that is a later one."""
        applied = self._number(txn, _APPLIED)
        if applied is not None and applied > epoch:
            raise Superseded(
                f"epoch {epoch} is refused, since the shard has applied epoch {applied}: another "
                "maintainer took over"
            )
        return applied

    def _put_stream(self, txn: lmdb.Transaction, name: bytes, table: pa.Table) -> None:
        """Store a table in pieces, as no value of LMDB may have 4 GiB."""
        stream = memoryview(to_stream(table))
        places = range(0, max(len(stream), 1), _PIECE)
        for number, at in enumerate(places):
            self._put_meta(txn, _piece(name, number), bytes(stream[at : at + _PIECE]))
        self._delete_stream(txn, name, len(places))  # pieces of a larger one before

    def _delete_stream(self, txn: lmdb.Transaction, name: bytes, number: int = 0) -> None:
        """Delete the pieces of a stream from a number on."""
        while txn.delete(self._prefix + _piece(name, number), db=self.environment.dbs[-1]):
            number += 1

    def _stream(self, txn: lmdb.Transaction, name: bytes) -> pa.Table:
        pieces = [self._get_meta(txn, name)]
        while piece := self._get_meta(txn, _piece(name, len(pieces))):
            pieces.append(piece)
        return from_stream(b"".join(pieces) if len(pieces) > 1 else pieces[0])

    def _number(self, txn: lmdb.Transaction, name: bytes) -> int | None:
        value = self._get_meta(txn, name)
        return None if not value else _NUMBER.unpack(value)[0]

    def _put_meta(self, txn: lmdb.Transaction, name: bytes, value: bytes) -> None:
        name = self._prefix + name
        txn.put(name, seal([name], [value])[0], db=self.environment.dbs[-1])

    def _get_meta(self, txn: lmdb.Transaction, name: bytes) -> bytes:
        name = self._prefix + name
        item = txn.get(name, db=self.environment.dbs[-1])
        return b"" if item is None else unseal([name], [item])[0]

    def get(self, key: bytes) -> bytes:
        with self._reading() as txn:
            return self._state(txn).get_many([key])[0]

    def values(self, prefix: bytes = b"") -> Iterator[list[bytes]]:
        with self._reading() as txn:
            stream = self._state(txn).scan_values(prefix)
            while batch := fill(stream, _READ, lambda item: len(item[1])):
                keys, values = zip(*batch, strict=True)
                yield unseal(keys, values)

    def bags(self) -> Iterator[tuple[list[bytes], list[int]]]:
        with self._reading() as txn:
            stream = self._state(txn).scan_bags()
            while batch := fill(stream, _READ, lambda item: len(item[1])):
                _, rows, counts = zip(*batch, strict=True)
                yield list(rows), list(counts)

    def work(self) -> ShardWork:
        with self._reading() as txn:
            load = records(self._get_meta(txn, _LOAD))
            return ShardWork(load[0] if load else None, records(self._get_meta(txn, _WORK)))

    def size(self) -> tuple[int, int]:
        with self._reading() as txn:
            if not self._prefix:
                return self._occupied(txn)[0], self.environment.file.size_on_disk
            items, pages = self._size(txn)
            if pages < _MANY_PAGES:  # it shares some with other states
                return items, self._bytes_of_items(txn)
            return items, pages * int(self.environment.lmdb.stat()["psize"])

    def _bytes_of_items(self, txn: lmdb.Transaction) -> int:
        number = 0
        for db in self.environment.dbs[:3]:
            cursor = txn.cursor(db)
            if cursor.set_range(self._prefix):
                own = takewhile(lambda item: item[0].startswith(self._prefix), cursor.iternext())
                number += sum(_ITEM + len(key) + len(value) for key, value in own)
        return number


def _delete(
    txn: lmdb.Transaction, db: lmdb._Database, prefix: bytes, most: int = sys.maxsize
) -> int:
    """Delete at most so many keys that begin with a prefix, with all that is under them; returns
    how many went."""
    cursor, number = txn.cursor(db), 0
    has_item = cursor.set_range(prefix)
    while has_item and number < most and cursor.key().startswith(prefix):
        number += 1
        cursor.delete(dupdata=True)
        has_item = bool(cursor.key())
    return number


def prefixes_in(environment: Environment) -> list[bytes]:
    """The prefixes of the states that a volume has."""
    with environment.reading() as txn:
        return list(_prefixes(txn, environment.dbs[-1]))


def _prefixes(txn: lmdb.Transaction, db: lmdb._Database) -> Iterator[bytes]:
    cursor = txn.cursor(db)
    has_item = cursor.first()
    while has_item:
        prefix = bytes(cursor.key()[:PREFIX_BYTES])
        if len(prefix) < PREFIX_BYTES:  # it is of the environment, not of a state
            has_item = cursor.next()
            continue
        yield prefix
        number = int.from_bytes(prefix, "big") + 1
        has_item = number >> 8 * PREFIX_BYTES == 0 and cursor.set_range(
            number.to_bytes(PREFIX_BYTES, "big")
        )


def sweep(environment: Environment) -> bool:
    """Delete some of what dropped states have left in a volume; whether more may be left."""
    with environment.reading() as txn:
        if txn.get(LEFT, db=environment.dbs[-1]) is None:
            return False

    def delete_some(txn: lmdb.Transaction) -> bool:
        *dbs, meta = environment.dbs
        states, room = set(_prefixes(txn, meta)), _AT_ONCE
        for db in dbs:
            for prefix in _prefixes(txn, db):
                if prefix not in states:
                    room -= _delete(txn, db, prefix, room)
                if room <= 0:
                    return True
        txn.delete(LEFT, db=meta)
        return False

    return update(environment, delete_some)
