"""Shards: the state of an operator or the rows of a view.

A state lies in a *volume*: an LMDB environment for each shard, which the states of the volume share
or, if its name has no dot, which it has for itself. What belongs to a state begins with its prefix.

Databases: `rows` (values by key), `bags` (under a key any number of rows, each with a count),
`long` (rows of bags that are too long for LMDB's values under one key), `meta` (`token`: the lease
of who wrote last, one for the environment; and what each state notes, see `notes`). All change in
one transaction, so an epoch is applied once, or each part of it, and asking for it again gives the
outbox: that is how the law of states holds here.
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
import pyarrow as pa

from everview.errors import Damaged, Superseded
from everview.stores.base import Shard
from everview.stores.base.states import Work
from everview.stores.embedded.environment import Environment
from everview.stores.embedded.notes import APPLIED, ENDED, Notes
from everview.stores.embedded.scan import fill
from everview.stores.embedded.sealed import seal, unseal
from everview.stores.embedded.state import MADE, PREFIX_BYTES, ShardState
from everview.stores.embedded.together import update
from everview.stores.embedded.tokens import check_token
from everview.stores.embedded.volumes import state_at
from everview.stores.work import ShardWork, Tally

DATABASES = ("rows", "bags", "long", "meta")
_TOKEN = b"token"
_NUMBER = struct.Struct("<Q")
_READ = 8192
_MANY_PAGES = 100
_ITEM = 10  # bytes of an item in a page, beside key and value
_PATIENCE = 30.0  # seconds
LEFT = b"left"  # in an environment where dropped states have left items
_AT_ONCE = 50_000  # keys to delete in one transaction
T = TypeVar("T")


class EmbeddedShard(Shard):
    """A shard in an environment of its volume; it keeps the store open as long as it is used."""

    def __init__(self, environment: Environment, store: object, prefix: bytes = b"") -> None:
        self.environment = environment
        self._store = store
        self._prefix = prefix
        environment.patience = _PATIENCE

    def apply(
        self,
        epoch: int,
        token: int,
        work: Work,
        log_after: int | None = None,
        slots: tuple[int, ...] | None = None,
    ) -> pa.Table:
        def once(txn: lmdb.Transaction) -> pa.Table:
            self._check(txn, token)
            notes = self._notes(txn)
            if self._is_done(notes, epoch, slots):
                return notes.output(slots)
            before = self._occupied(txn)
            state = self._state(txn)
            output = work(state)
            self._add_size(txn, before)
            start = time.perf_counter_ns()
            notes.put_output(output, epoch, slots, state.tally)
            notes.trim_log(epoch if log_after is None else log_after)
            if log_after is not None and state.log is not None:
                notes.put_log(state.log, epoch, slots)
            state.tally.nanoseconds += time.perf_counter_ns() - start
            notes.add_work(state.tally, epoch, slots)
            return output

        return self._update(once)

    def _is_done(self, notes: Notes, epoch: int, slots: tuple[int, ...] | None) -> bool:
        """Whether an epoch was applied, of all slots or of a part. Raises `Superseded` if a later
        one was."""
        if self._check_order(notes, epoch) != epoch:
            return False
        of_epoch, parts = notes.parts()
        if (slots is None) == (of_epoch == epoch):
            raise Superseded(f"epoch {epoch} is refused, since its slots were dealt out otherwise")
        return slots is None or slots[0] in [first for first, _, _ in parts]

    def load(self, epoch: int, token: int, work: Work) -> pa.Table:
        def anew(txn: lmdb.Transaction) -> pa.Table:
            self._check(txn, token)
            notes = self._notes(txn)
            self._check_order(notes, epoch)
            ended_tasks = notes.get(ENDED)
            self._clear(txn)
            self._check(txn, token)
            notes.put(MADE, b"")
            notes.put(ENDED, ended_tasks)
            notes.put_number(APPLIED, epoch)
            before = self._occupied(txn)
            state = self._state(txn)
            output = work(state)
            self._add_size(txn, before)
            notes.put_load(state.tally, epoch)
            return output

        return self._update(anew)

    def hand(self, epoch: int, token: int, output: pa.Table) -> None:
        def once(txn: lmdb.Transaction) -> None:
            self._check(txn, token)
            self._notes(txn).put_output(output, epoch, None, Tally())

        self._update(once)

    def output(self, epoch: int, slots: tuple[int, ...] | None = None) -> pa.Table | None:
        with self._reading() as txn:
            notes = self._notes(txn)
            return notes.output(slots) if self._is_done(notes, epoch, slots) else None

    def is_at(self, epoch: int) -> bool:
        with self._reading() as txn:
            return self._notes(txn).number(APPLIED) == epoch

    def log(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table]]:
        with self._reading() as txn:
            yield from self._notes(txn).log(after, upto)

    def note_end(self, epoch: int, token: int, task: int) -> None:
        def note(txn: lmdb.Transaction) -> None:
            self._check(txn, token)
            self._notes(txn).add_task(epoch, token, task)

        self._update(note)

    def ended_tasks(self, epoch: int, token: int) -> int:
        with self._reading() as txn:
            return len(self._notes(txn).tasks(epoch, token))

    def note_rows(self, token: int, name: str, rows: int) -> None:
        def note(txn: lmdb.Transaction) -> None:
            self._check(txn, token)
            self._notes(txn).put_rows(name, rows)

        self._update(note)

    def noted_rows(self) -> dict[str, int]:
        with self._reading() as txn:
            return self._notes(txn).rows()

    def fence(self, token: int) -> None:
        """Refuse older tokens from now on. The caller holds the lock."""
        self.environment.update(lambda txn: self._check(txn, token))

    def make(self) -> None:
        """Let the state be there, without rows; does nothing if it is."""
        self._update(lambda txn: self._notes(txn).put(MADE, b""), is_there=False)

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
        if self._prefix and not self._notes(txn).is_made:
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

    def _notes(self, txn: lmdb.Transaction) -> Notes:
        return Notes(txn, self.environment.dbs[-1], self._prefix)

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
            notes = self._notes(txn)
            parts = zip(notes.size(), before, now, strict=True)
            notes.put_size(*(size + after - earlier for size, earlier, after in parts))

    def _clear(self, txn: lmdb.Transaction) -> None:
        """Delete all that the state has."""
        for db in self.environment.dbs:
            if self._prefix:
                _delete(txn, db, self._prefix)
            else:
                txn.drop(db, delete=False)

    def _check_order(self, notes: Notes, epoch: int) -> int | None:
        """The epoch applied last; raises `Superseded` if that is a later one."""
        applied = notes.number(APPLIED)
        if applied is not None and applied > epoch:
            raise Superseded(
                f"epoch {epoch} is refused, since the shard has applied epoch {applied}: another "
                "maintainer took over"
            )
        return applied

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
            return self._notes(txn).work()

    def size(self) -> tuple[int, int]:
        with self._reading() as txn:
            if not self._prefix:
                return self._occupied(txn)[0], self.environment.file.size_on_disk
            items, pages = self._notes(txn).size()
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
