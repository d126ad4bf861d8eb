"""A snapshot: log positions, and a hold on the log that lets scans undo what came after."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from everview.errors import LogTrimmed, TableNotFound
from everview.stores.base import BATCH_ROWS, Snapshot
from everview.stores.embedded.layout import Layout
from everview.stores.embedded.region import Region

if TYPE_CHECKING:
    from everview.stores.embedded.store import EmbeddedStore


class EmbeddedSnapshot(Snapshot):
    """Holds the log as a consumer would, for a limited time in case its process dies."""

    def __init__(
        self, store: EmbeddedStore, layout: Layout, regions: list[Region], seconds: float
    ) -> None:
        self._store = store
        self._layout = layout
        self._table = layout.schema.name
        self._name = f"snapshot {uuid.uuid4()}"
        self._open = True
        expires = time.time_ns() // 1000 + int(seconds * 1_000_000)
        self.positions = {
            region.number: region.environment.update(
                partial(region.hold, name=self._name, expires=expires)
            )
            for region in regions
        }

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
        if not self._store.is_current(self._layout):
            raise LogTrimmed(
                f"table {self._table} was dropped and created again; take a new snapshot"
            )
        columns = self._layout.schema.names if columns is None else columns
        return self._store.scan(
            self._table, columns, where, start, stop, region, batch_rows, ordered, self.positions
        )

    def close(self) -> None:
        if self._open:
            self._open = False
            with suppress(TableNotFound):
                self._store.unregister(self._table, self._name)
