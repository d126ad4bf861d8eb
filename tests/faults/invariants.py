"""What must hold between a region's rows and its change log, whatever was killed or failed.

Replay:    the log from its beginning gives exactly the rows.
Images:    every before-image is the after-image of the key's previous change.
Sequences: 1, 2, 3, ... without holes.
Versions:  a row's version is the sequence of its last change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from everview.stores.base import DELETE, PUT, Store

from .workload import Operation, Row

Change = dict[str, Any]


class Replay:
    """A region's rows as its log tells them; `violations` collects what can't be."""

    def __init__(self, region: int = 0) -> None:
        self.region = region
        self.last = 0
        self.rows: dict[int, Row] = {}
        self.versions: dict[int, int] = {}
        self.violations: list[str] = []

    def add(self, changes: Iterable[Change]) -> None:
        for change in changes:
            before, after, sequence = change["before"], change["after"], change["sequence"]
            key = (after or before or {"id": -1})["id"]
            if sequence != self.last + 1:
                self._violated(f"sequence {sequence} follows {self.last}")
            if change["op"] != (DELETE if after is None else PUT):
                self._violated(f"sequence {sequence} is a {change['op']} with after {after}")
            if after is None and before is None:
                self._violated(f"sequence {sequence} has no image")
            if before is not None and before["id"] != key:
                self._violated(f"sequence {sequence} has images of two keys")
            if before != self.rows.get(key):
                was = self.rows.get(key)
                self._violated(f"sequence {sequence}: before-image {before}, but it was {was}")
            self.rows.pop(key, None)
            self.versions.pop(key, None)
            if after is not None:
                self.rows[key], self.versions[key] = after, sequence
            self.last = sequence

    def compare(self, rows: list[Row], versions: dict[int, int]) -> None:
        """Hold the replay against the rows that are there, and versions of some or all."""
        found = {row["id"]: row for row in rows}
        if len(found) != len(rows):
            self._violated("a key is there twice")
        for key in found.keys() - self.rows.keys():
            self._violated(f"row {found[key]} is not in the log")
        for key in self.rows.keys() - found.keys():
            self._violated(f"row {self.rows[key]} is in the log only")
        for key in self.rows.keys() & found.keys():
            if self.rows[key] != found[key]:
                self._violated(f"row {found[key]}, but the log says {self.rows[key]}")
        for key, version in versions.items():
            if self.versions.get(key, 0) != version:
                self._violated(f"key {key} has version {version}, not {self.versions.get(key, 0)}")

    def _violated(self, what: str) -> None:
        self.violations.append(f"region {self.region}: {what}")


class Watch:
    """Follows a table: each `check` reads what is new in the log and holds it against the rows."""

    def __init__(self, regions: int) -> None:
        self.replays = [Replay(region) for region in range(regions)]

    def check(self, store: Store, table: str = "t", versions: int = 5) -> list[list[Change]]:
        """The new changes of each region; asserts the invariants, for some versions or all (-1)."""
        news = []
        for replay in self.replays:
            news.append(_changes(store, table, replay.region, replay.last))
            replay.add(news[-1])
            rows = _rows(store, table, replay.region)
            keys = [row["id"] for row in rows]
            checked = keys if versions < 0 else keys[-versions:]
            replay.compare(rows, {key: _version(store, table, key) for key in checked})
            held = store.log(table)[replay.region].last
            if held != replay.last:
                replay._violated(f"the log says it ends at {held}, it ends at {replay.last}")
        found = [violation for replay in self.replays for violation in replay.violations]
        assert not found, "\n".join(found[:20])
        return news

    @property
    def rows(self) -> dict[int, Row]:
        return {key: row for replay in self.replays for key, row in replay.rows.items()}


def check(store: Store, table: str = "t") -> Watch:
    """Everything there is, from the log's beginning, with all versions."""
    watch = Watch(store.describe(table).regions)
    watch.check(store, table, versions=-1)
    return watch


def check_history(
    acknowledged: dict[int, dict[int, int]],
    issued: dict[int, Operation],
    before: list[dict[int, Row]],
    news: list[list[Change]],
) -> list[str]:
    """Acknowledged writes are in the log, others wholly or not at all in each region.

    acknowledged: operation -> region -> last sequence; issued: what was or may have been begun;
    before: each region's rows at first; news: each region's changes since. Returns what is wrong.
    """
    wrong = []
    for region, changes in enumerate(news):
        puts: dict[int, set[int]] = {}
        for change in changes:
            if change["after"] is not None:
                puts.setdefault(change["after"]["op"], set()).add(change["after"]["id"])
        for number, keys in puts.items():
            if number not in issued or keys != issued[number].keys_of(region, len(news)):
                wrong.append(f"region {region}: operation {number} is there in part: {keys}")
        claimed: set[int] = set()
        for number, sequences in acknowledged.items():
            keys = issued[number].keys_of(region, len(news))
            if issued[number].delete:
                last = sequences.get(region, 0)
                claimed |= _deletes(changes, keys, last)
                if last and keys & _keys_at(before[region], changes, last):
                    wrong.append(f"region {region}: operation {number} did not delete all")
                if last and last not in claimed:
                    wrong.append(f"region {region}: delete {number} is not in the log")
            elif keys and (number not in puts or region not in sequences):
                wrong.append(f"region {region}: acknowledged operation {number} is not there")
        pending = [
            operation.keys_of(region, len(news))
            for number, operation in issued.items()
            if operation.delete and number not in acknowledged
        ]
        unclaimed = [c for c in changes if c["after"] is None and c["sequence"] not in claimed]
        for change in unclaimed:
            last = unclaimed[-1]["sequence"]
            if not any(change["before"]["id"] in keys for keys in pending):
                wrong.append(f"region {region}: nobody asked for {change}")
            elif len(pending) == 1 and pending[0] & _keys_at(before[region], changes, last):
                wrong.append(f"region {region}: a delete is there in part")
    return wrong


def _deletes(changes: list[Change], keys: set[int], last: int) -> set[int]:
    """The deletes of `keys` that end at sequence `last`, all of one write and so of one time."""
    found: set[int] = set()
    time = None
    for change in reversed(changes):
        if change["sequence"] <= last:
            time = time or change["time"]
            if change["after"] is not None or change["time"] != time:
                break
            if change["before"]["id"] not in keys:
                break
            found.add(change["sequence"])
    return found


def _keys_at(before: dict[int, Row], changes: list[Change], last: int) -> set[int]:
    keys = set(before)
    for change in changes:
        if change["sequence"] > last:
            break
        if change["after"] is None:
            keys.discard(change["before"]["id"])
        else:
            keys.add(change["after"]["id"])
    return keys


def _changes(store: Store, table: str, region: int, after: int) -> list[Change]:
    batches = list(store.changes(table, region, after, batch_rows=100_000))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def _rows(store: Store, table: str, region: int) -> list[Row]:
    return [
        row
        for batch in store.scan(table, region=region, ordered=False)
        for row in batch.to_pylist()
    ]


def _version(store: Store, table: str, key: int) -> int:
    return store.version(table, pa.table({"id": pa.array([key], pa.int64())}))
