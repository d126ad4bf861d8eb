"""State of operators and views: one LMDB environment for each shard.

Databases: `rows` (state by key), `meta` (`applied`: the last epoch applied; `outbox`: what it
gave, an Arrow stream). Both change in one transaction, so an epoch is applied once, and asking
for it again gives the outbox.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import islice

import lmdb
import pyarrow as pa

from everview.stores.embedded.environment import Environment
from everview.stores.embedded.layout import stored_key

DATABASES = ("rows", "meta")
_APPLIED, _OUTBOX = b"applied", b"outbox"
_NUMBER = struct.Struct("<Q")
_READ = 8192


class ShardState:
    """The `State` of operators, inside one transaction."""

    def __init__(self, txn: lmdb.Transaction, db: lmdb._Database) -> None:
        self._txn = txn
        self._db = db

    def get_many(self, keys: list[bytes]) -> list[bytes]:
        stored = [stored_key(key) for key in keys]
        found = dict(self._txn.cursor(self._db).getmulti(stored))
        return [found.get(key, b"") for key in stored]

    def put_many(self, keys: list[bytes], values: list[bytes]) -> None:
        cursor = self._txn.cursor(self._db)
        for key, value in zip(keys, values, strict=True):
            if value:
                cursor.put(stored_key(key), value)
            elif cursor.set_key(stored_key(key)):
                cursor.delete()


class Shard:
    """One shard of an operator or a view."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def apply(self, epoch: int, work: Callable[[ShardState], pa.Table]) -> pa.Table:
        """Do `work` once for the epoch; when it is done already, give what it gave."""

        def once(txn: lmdb.Transaction) -> pa.Table:
            rows, meta = self._environment.dbs
            applied = txn.get(_APPLIED, db=meta)
            if applied is not None and _NUMBER.unpack(applied)[0] == epoch:
                return pa.ipc.open_stream(txn.get(_OUTBOX, db=meta)).read_all()
            given = work(ShardState(txn, rows))
            txn.put(_OUTBOX, _stream(given), db=meta)
            txn.put(_APPLIED, _NUMBER.pack(epoch), db=meta)
            return given

        return self._environment.update(once)

    def get(self, key: bytes) -> bytes:
        with self._environment.reading() as txn:
            return txn.get(stored_key(key), b"", db=self._environment.dbs[0])  # type: ignore[no-any-return]

    def values(self) -> Iterator[list[bytes]]:
        """All values, in batches, as of one state of the shard."""
        with self._environment.reading() as txn:
            stream = iter(txn.cursor(self._environment.dbs[0]).iternext(keys=False))
            while batch := list(islice(stream, _READ)):
                yield batch


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
