"""What a shard notes beside its rows: epochs, outputs, logs, and what work took.

made             the state is there
applied          the last epoch applied
outbox           its output, an Arrow stream, in pieces of a GiB; `outbox s` with the first slot
                 of a part, if the epoch dealt slots out
parts            the last epoch that did; of each part its first slot, rows and nanoseconds
log              with an epoch: what it changed, if someone follows that; also by part
load, work       what the load and the last epochs took
slots            how many rows came to each slot in the last epoch that counted them
size             items and pages
ended            which tasks of an epoch came to their end
rows             with a name: how many rows a load has read
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain

import lmdb
import numpy as np
import pyarrow as pa

from everview.codec.streams import from_stream, to_stream
from everview.stores.embedded.sealed import seal, unseal
from everview.stores.embedded.state import MADE
from everview.stores.work import ShardWork, Tally, append_record, counted, records

APPLIED, ENDED, SIZE = b"applied", b"ended", b"size"
_OUTBOX, _PARTS, _LOG, _ROWS = b"outbox", b"parts", b"log ", b"rows "
_LOAD, _WORK, _SLOTS = b"load", b"work", b"slots"
_NUMBER = struct.Struct("<Q")
_OCCUPIED = struct.Struct("<qq")  # items, pages
_EPOCH_DIGITS = 20
_PIECE = 1 << 30  # bytes
Slots = tuple[int, ...] | None


def _piece(name: bytes, number: int) -> bytes:
    """The name of a piece of a stream."""
    return name + (b" %d" % number if number else b"")


def _log_of(epoch: int) -> bytes:
    """The name of what the log has of an epoch; names are in the order of epochs."""
    return _LOG + b"%0*d" % (_EPOCH_DIGITS, epoch)


def _outbox(slots: Slots) -> bytes:
    return _OUTBOX if slots is None else _OUTBOX + b" s%d" % slots[0]


class Notes:
    """The notes of one state in a shard, inside one transaction."""

    def __init__(self, txn: lmdb.Transaction, db: lmdb._Database, prefix: bytes) -> None:
        self._txn, self._db, self._prefix = txn, db, prefix

    def put(self, name: bytes, value: bytes) -> None:
        name = self._prefix + name
        self._txn.put(name, seal([name], [value])[0], db=self._db)

    def get(self, name: bytes) -> bytes:
        name = self._prefix + name
        item = self._txn.get(name, db=self._db)
        return b"" if item is None else unseal([name], [item])[0]

    def put_number(self, name: bytes, number: int) -> None:
        self.put(name, _NUMBER.pack(number))

    def number(self, name: bytes) -> int | None:
        value = self.get(name)
        return None if not value else _NUMBER.unpack(value)[0]

    def _names(self, begin: bytes) -> list[bytes]:
        """The names that begin so."""
        cursor, names = self._txn.cursor(self._db), []
        has_item = cursor.set_range(self._prefix + begin)
        while has_item and (name := bytes(cursor.key())).startswith(self._prefix + begin):
            names.append(name[len(self._prefix) :])
            has_item = cursor.next()
        return names

    @property
    def is_made(self) -> bool:
        return self._txn.get(self._prefix + MADE, db=self._db) is not None

    def output(self, slots: Slots) -> pa.Table:
        """The last output, of all slots or of a part."""
        return self._stream(_outbox(slots))

    def put_output(self, output: pa.Table, epoch: int, slots: Slots, tally: Tally) -> None:
        """Note an output as that of the last epoch; those of epochs before go."""
        of_epoch, parts = self.parts()
        if of_epoch != epoch and (slots is not None or parts):
            for name in (_OUTBOX, *(_outbox(part[:1]) for part in parts)):
                if name != _outbox(slots):
                    self._delete_stream(name)
        if slots is not None:
            new = (slots[0], tally.rows_in, tally.nanoseconds)
            numbers = [epoch, *chain(*(parts if of_epoch == epoch else ()), new)]
            self.put(_PARTS, np.array(numbers, "<i8").tobytes())
        self._put_stream(_outbox(slots), output)
        self.put_number(APPLIED, epoch)

    def parts(self) -> tuple[int, list[tuple[int, int, int]]]:
        """The last epoch that dealt slots out; and of the parts that are done the first slots, the
        rows and the nanoseconds."""
        epoch, *numbers = np.frombuffer(self.get(_PARTS), "<i8").tolist() or [0]
        return epoch, list(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True))

    def put_log(self, log: pa.Table, epoch: int, slots: Slots) -> None:
        of_part = b"" if slots is None else b".%d" % slots[0]
        self._put_stream(_log_of(epoch) + of_part, log)

    def log(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table]]:
        """The log of some epochs, in their order; of an epoch perhaps in several tables."""
        for name in self._log_names(after, upto):
            yield int(name[len(_LOG) :][:_EPOCH_DIGITS]), self._stream(name)

    def trim_log(self, upto: int) -> None:
        for name in list(self._log_names(0, upto)):
            self._delete_stream(name)

    def _log_names(self, after: int, upto: int) -> Iterator[bytes]:
        """The names of what the log has of some epochs, in their order."""
        prefix = self._prefix
        first, stop = prefix + _log_of(after + 1), prefix + _log_of(upto + 1)
        cursor = self._txn.cursor(self._db)
        more = cursor.set_range(first)
        while more and (name := bytes(cursor.key())) < stop and name.startswith(prefix + _LOG):
            yield name[len(prefix) :]
            more = cursor.set_range(name + b"!")  # after its pieces

    def tasks(self, epoch: int, token: int) -> list[int]:
        """The tasks of an epoch that came to their end, for the maintainer with a token."""
        numbers: list[int] = np.frombuffer(self.get(ENDED), "<i8").tolist()
        return numbers[2:] if numbers[:2] == [epoch, token] else []

    def add_task(self, epoch: int, token: int, task: int) -> None:
        tasks = self.tasks(epoch, token)
        if task not in tasks:
            self.put(ENDED, np.array([epoch, token, *tasks, task], "<i8").tobytes())

    def put_rows(self, name: str, rows: int) -> None:
        self.put_number(_ROWS + name.encode(), rows)

    def rows(self) -> dict[str, int]:
        names = self._names(_ROWS)
        return {name[len(_ROWS) :].decode(): self.number(name) or 0 for name in names}

    def put_load(self, tally: Tally, epoch: int) -> None:
        self.put(_LOAD, tally.record(epoch))

    def add_work(self, tally: Tally, epoch: int, slots: Slots) -> None:
        self.put(_WORK, append_record(self.get(_WORK), tally.record(epoch)))
        if tally.rows_of_slots is not None:
            rows = counted(self._rows_of_slots(), tally.rows_of_slots, slots)
            self.put(_SLOTS, np.array(rows, "<i8").tobytes())

    def _rows_of_slots(self) -> tuple[int, ...]:
        return tuple(np.frombuffer(self.get(_SLOTS), "<i8").tolist())

    def work(self) -> ShardWork:
        load = records(self.get(_LOAD))
        works, (_, parts) = records(self.get(_WORK)), self.parts()
        slots = self._rows_of_slots()
        return ShardWork(load[0] if load else None, works, slots, tuple(parts))

    def put_size(self, items: int, pages: int) -> None:
        self.put(SIZE, _OCCUPIED.pack(items, pages))

    def size(self) -> tuple[int, int]:
        """Items and pages."""
        value = self.get(SIZE)
        items, pages = _OCCUPIED.unpack(value) if value else (0, 0)
        return items, pages

    def _put_stream(self, name: bytes, table: pa.Table) -> None:
        """Store a table in pieces, as no value of LMDB may have 4 GiB."""
        stream = memoryview(to_stream(table))
        places = range(0, max(len(stream), 1), _PIECE)
        for number, at in enumerate(places):
            self.put(_piece(name, number), bytes(stream[at : at + _PIECE]))
        self._delete_stream(name, len(places))  # pieces of a larger one before

    def _delete_stream(self, name: bytes, number: int = 0) -> None:
        """Delete the pieces of a stream from a number on."""
        while self._txn.delete(self._prefix + _piece(name, number), db=self._db):
            number += 1

    def _stream(self, name: bytes) -> pa.Table:
        pieces = [self.get(name)]
        while piece := self.get(_piece(name, len(pieces))):
            pieces.append(piece)
        return from_stream(b"".join(pieces) if len(pieces) > 1 else pieces[0])
