"""Shards: the state of an operator or the rows of a view, in one LMDB environment each.

Databases: `rows` (values by key), `bags` (under a key any number of rows, each with a count),
`long` (rows of bags that are too long for LMDB's values under one key), `meta` (`applied`: the
last epoch applied; `outbox`: its output, an Arrow stream, in pieces of a GiB; `token`: the lease
of who wrote last; `log` with an epoch: what the epoch changed, if someone follows that; `load` and
`work`: what the load and the last epochs took; `ended`: which tasks of an epoch came to their end;
`rows` with a name: how many rows a load has read). All change in one transaction, so an epoch is
applied once, and asking for it again gives the outbox: that is how the law of states holds here.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import lmdb
import numpy as np
import pyarrow as pa

from everview.codec.streams import from_stream, to_stream
from everview.errors import Damaged, Superseded
from everview.stores.base import Shard
from everview.stores.base.states import Work
from everview.stores.embedded.environment import Environment
from everview.stores.embedded.lease import locked
from everview.stores.embedded.scan import fill
from everview.stores.embedded.sealed import seal, unseal
from everview.stores.embedded.state import ShardState
from everview.stores.embedded.tokens import check_token
from everview.stores.work import ShardWork, append_record, records

DATABASES = ("rows", "bags", "long", "meta")
_APPLIED, _OUTBOX, _TOKEN = b"applied", b"outbox", b"token"
_LOAD, _WORK, _ENDED, _LOG, _ROWS = b"load", b"work", b"ended", b"log ", b"rows "
_NUMBER = struct.Struct("<Q")
_READ = 8192
_PIECE = 1 << 30  # bytes
_PATIENCE = 30.0  # seconds
T = TypeVar("T")


def _piece(name: bytes, number: int) -> bytes:
    """The name of a piece of a stream."""
    return name + (b" %d" % number if number else b"")


def _log_of(epoch: int) -> bytes:
    """The name of what the log has of an epoch; names are in the order of epochs."""
    return _LOG + b"%020d" % epoch


def lock_of(path: str) -> str:
    """The file that is locked while the shard in a directory is written."""
    return os.path.join(path, "write.lock")


class EmbeddedShard(Shard):
    """A shard in an environment of its own; it keeps the store open as long as it is used."""

    def __init__(self, environment: Environment, store: object) -> None:
        self.environment = environment
        self._store = store
        environment.patience = _PATIENCE

    def apply(self, epoch: int, token: int, work: Work, log_after: int | None = None) -> pa.Table:
        def once(txn: lmdb.Transaction) -> pa.Table:
            self._check(txn, token)
            if self._check_order(txn, epoch) == epoch:
                return self._stream(txn, _OUTBOX)
            state = ShardState(txn, self.environment.dbs)
            output = work(state)
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
            for db in self.environment.dbs:
                txn.drop(db, delete=False)
            self._check(txn, token)
            self._put_meta(txn, _ENDED, ended_tasks)
            self._put_meta(txn, _APPLIED, _NUMBER.pack(epoch))
            state = ShardState(txn, self.environment.dbs)
            output = work(state)
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
        with self.environment.reading() as txn, self._naming_damaged_place():
            if self._check_order(txn, epoch) != epoch:
                return None
            return self._stream(txn, _OUTBOX)

    def is_at(self, epoch: int) -> bool:
        with self.environment.reading() as txn, self._naming_damaged_place():
            return self._number(txn, _APPLIED) == epoch

    def log(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table]]:
        with self.environment.reading() as txn, self._naming_damaged_place():
            for name in self._log_names(txn, after, upto):
                yield int(name[len(_LOG) :]), self._stream(txn, name)

    def _trim_log(self, txn: lmdb.Transaction, upto: int) -> None:
        for name in list(self._log_names(txn, 0, upto)):
            self._delete_stream(txn, name)

    def _log_names(self, txn: lmdb.Transaction, after: int, upto: int) -> Iterator[bytes]:
        """The names of what the log has of some epochs, in their order."""
        first, last = _log_of(after + 1), _log_of(upto)
        cursor = txn.cursor(self.environment.dbs[-1])
        more = cursor.set_range(first)
        while more and (name := bytes(cursor.key())) <= last:
            yield name
            more = cursor.set_range(name + b"!")  # after its pieces

    def note_end(self, epoch: int, token: int, task: int) -> None:
        def add_task(txn: lmdb.Transaction) -> None:
            self._check(txn, token)
            tasks = self._tasks(txn, epoch, token)
            if task not in tasks:
                self._put_meta(txn, _ENDED, np.array([epoch, token, *tasks, task], "<i8").tobytes())

        self._update(add_task)

    def ended_tasks(self, epoch: int, token: int) -> int:
        with self.environment.reading() as txn, self._naming_damaged_place():
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
        with self.environment.reading() as txn, self._naming_damaged_place():
            cursor = txn.cursor(self.environment.dbs[-1])
            names = []
            more = cursor.set_range(_ROWS)
            while more and (name := bytes(cursor.key())).startswith(_ROWS):
                names.append(name)
                more = cursor.next()
            return {name[len(_ROWS) :].decode(): self._number(txn, name) or 0 for name in names}

    def fence(self, token: int) -> None:
        """Refuse older tokens from now on. The caller holds the lock."""
        self.environment.update(lambda txn: self._check(txn, token))

    def _update(self, work: Callable[[lmdb.Transaction], T]) -> T:
        with self._naming_damaged_place():
            self.environment.look()  # first, as the file to lock may be gone with the rest
            with locked(lock_of(self.environment.path)):
                return self.environment.update(work)

    @contextmanager
    def _naming_damaged_place(self) -> Iterator[None]:
        """`Damaged` says which shard it is of."""
        try:
            yield
        except Damaged as error:
            raise Damaged(f"{error} (state in {self.environment.path})") from error

    def _check(self, txn: lmdb.Transaction, token: int) -> None:
        newest = self._number(txn, _TOKEN) or 0
        check_token(token, newest)
        if token > newest:
            self._put_meta(txn, _TOKEN, _NUMBER.pack(token))

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
        while txn.delete(_piece(name, number), db=self.environment.dbs[-1]):
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
        txn.put(name, seal([name], [value])[0], db=self.environment.dbs[-1])

    def _get_meta(self, txn: lmdb.Transaction, name: bytes) -> bytes:
        item = txn.get(name, db=self.environment.dbs[-1])
        return b"" if item is None else unseal([name], [item])[0]

    def get(self, key: bytes) -> bytes:
        with self.environment.reading() as txn, self._naming_damaged_place():
            return ShardState(txn, self.environment.dbs).get_many([key])[0]

    def values(self) -> Iterator[list[bytes]]:
        with self.environment.reading() as txn, self._naming_damaged_place():
            stream = txn.cursor(self.environment.dbs[0]).iternext()
            while batch := fill(stream, _READ, lambda item: len(item[1])):
                keys, values = zip(*batch, strict=True)
                yield unseal(keys, values)

    def bags(self) -> Iterator[tuple[list[bytes], list[int]]]:
        with self.environment.reading() as txn, self._naming_damaged_place():
            stream = ShardState(txn, self.environment.dbs).scan_bags()
            while batch := fill(stream, _READ, lambda item: len(item[1])):
                _, rows, counts = zip(*batch, strict=True)
                yield list(rows), list(counts)

    def work(self) -> ShardWork:
        with self.environment.reading() as txn, self._naming_damaged_place():
            load = records(self._get_meta(txn, _LOAD))
            return ShardWork(load[0] if load else None, records(self._get_meta(txn, _WORK)))

    def size(self) -> tuple[int, int]:
        with self.environment.reading() as txn:
            rows = sum(int(txn.stat(db)["entries"]) for db in self.environment.dbs[:2])
        return rows, self.environment.file.size_on_disk
