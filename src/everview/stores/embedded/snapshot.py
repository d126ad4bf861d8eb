"""A snapshot: log positions, and a hold on the log that lets scans undo what came after."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from everview.errors import LogTrimmed
from everview.stores.base import BATCH_ROWS, Snapshot, Store
from everview.stores.embedded.region import Region


class EmbeddedSnapshot(Snapshot):
    """Holds the log as a consumer would, for a limited time in case its process dies."""

    def __init__(self, store: Store, table: str, regions: list[Region], seconds: float) -> None:
        self._store = store
        self._table = table
        self._name = f"snapshot {uuid.uuid4()}"
        self._open = True
        expires = time.time_ns() // 1000 + int(seconds * 1_000_000)
        positions = {}
        for one in regions:
            with one.environment.writing() as txn:
                positions[one.number] = one.last(txn)
                one.set_consumer(txn, self._name, positions[one.number], expires)
        self.positions = positions

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        start: tuple[Any, ...] | None = None,
        stop: tuple[Any, ...] | None = None,
        region: int | None = None,
        batch_rows: int = BATCH_ROWS,
        ordered: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        if not self._open:
            raise LogTrimmed(f"this snapshot of {self._table} was closed; take a new one")
        return self._store.scan(
            self._table, columns, where, start, stop, region, batch_rows, ordered, self.positions
        )

    def close(self) -> None:
        if self._open:
            self._open = False
            self._store.unregister(self._table, self._name)
