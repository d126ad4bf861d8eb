"""What the bank's writer records for the checker: acknowledged writes, and committed epochs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import everview as ev
from everview.check import Recorder
from everview.codec.keys import region_of
from everview.codec.point import encode_key
from everview.stores.base import WriteReport


class Books:
    """Writes and records; of tables that nobody else writes, whose key is `id`."""

    def __init__(self, seen: Recorder) -> None:
        self._seen = seen
        self._there: defaultdict[str, set[int]] = defaultdict(set)

    def put(self, table: ev.Table, rows: list[dict[str, Any]]) -> None:
        began = self._seen.now()
        report = table.put(rows)
        last = {row["id"]: row for row in rows}
        self._there[table.name] |= last.keys()
        self._wrote(table, last, report, began)

    def delete(self, table: ev.Table, ids: list[int]) -> None:
        began = self._seen.now()
        report = table.delete(ids)
        gone = self._there[table.name].intersection(ids)
        self._there[table.name] -= gone
        self._wrote(table, dict.fromkeys(gone), report, began)

    def _wrote(
        self,
        table: ev.Table,
        rows: Mapping[int, dict[str, Any] | None],
        report: WriteReport,
        began: float,
    ) -> None:
        """A region has its part of a batch in the order of keys, up to the sequence reported."""
        schema = table.schema
        parts: defaultdict[int, list[int]] = defaultdict(list)
        for key in sorted(rows):
            encoded = encode_key(schema.key_columns, (key,))
            assert encoded is not None
            parts[region_of(encoded, schema.regions)].append(key)
        for region, keys in parts.items():
            first = report.sequences[region] - len(keys) + 1
            for sequence, key in enumerate(keys, start=first):
                self._seen.wrote(table.name, key, rows[key], region, sequence, began)

    def committed(self, db: ev.Database) -> int:
        """Record the newest epoch; returns its number."""
        with db.pin("total") as at:
            self._seen.committed(at.epoch, at.positions)
            return at.epoch
