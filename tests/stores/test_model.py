"""Any sequence of operations leaves the store as it would leave a dict and a list."""

from __future__ import annotations

import shutil
import tempfile
import unittest
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from everview.intake import keys_to_arrow, rows_to_arrow
from everview.schema import Column, TableSchema, arrow_type
from everview.stores.base import Snapshot, Store
from tests.stores.conftest import STORES
from tests.values import TYPES, values

Key = tuple[str, int]
KEYS = st.tuples(
    st.sampled_from(["", "a", "a\0b", "\u00fc", "k" * 495, "k" * 700]), st.integers(0, 3)
)


class StoreModel(RuleBasedStateMachine):
    make: Any

    @initialize(types=st.lists(st.sampled_from(TYPES), max_size=3), regions=st.integers(1, 4))
    def create(self, types: list[str], regions: int) -> None:
        self.types = types
        columns = {"s": "STRING", "n": "INT"} | {f"c{i}": name for i, name in enumerate(types)}
        self.schema = TableSchema.of("t", columns, ("s", "n"), regions=regions)
        self.directory = Path(tempfile.mkdtemp())
        self.store: Store = self.make(self.directory)
        self.store.create_table(self.schema)
        self.rows: dict[Key, dict[str, Any]] = {}
        self.logged: list[tuple[Key, Any, Any]] = []
        self.snapshots: list[tuple[Snapshot, TableSchema, dict[Key, dict[str, Any]]]] = []

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.directory)

    def row(self, key: Key, data: st.DataObject) -> dict[str, Any]:
        cells = {f"c{i}": data.draw(st.none() | values(t)) for i, t in enumerate(self.types)}
        return {"s": key[0], "n": key[1]} | cells

    def note(self, key: Key, after: dict[str, Any] | None) -> None:
        self.logged.append((key, self.rows.get(key), after))
        if after is None:
            del self.rows[key]
        else:
            self.rows[key] = after

    @rule(keys=st.lists(KEYS, min_size=1, max_size=6), data=st.data())
    def put(self, keys: list[Key], data: st.DataObject) -> None:
        self.put_rows([self.row(key, data) for key in keys])

    @rule(keys=st.lists(KEYS, max_size=3), data=st.data())
    def put_what_is_there(self, keys: list[Key], data: st.DataObject) -> None:
        some = data.draw(st.lists(st.sampled_from(sorted(self.rows)))) if self.rows else []
        others = [self.row(key, data) for key in keys]
        self.put_rows([*others, *(self.rows[key] for key in some)])

    def put_rows(self, given: list[dict[str, Any]]) -> None:
        report = self.store.put("t", rows_to_arrow(self.schema, given))
        last = {(row["s"], row["n"]): row for row in given}
        changed = {key: row for key, row in last.items() if not self.is_there(key, row)}
        for key, row in changed.items():
            self.note(key, row)
        assert (report.rows, report.unchanged) == (len(changed), len(last) - len(changed))

    def is_there(self, key: Key, row: dict[str, Any]) -> bool:
        return str(shown(self.schema, self.rows.get(key))) == str(shown(self.schema, row))

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4))
    def delete(self, keys: list[Key]) -> None:
        report = self.store.delete("t", keys_to_arrow(self.schema, keys))
        gone = {key for key in keys if key in self.rows}
        for key in gone:
            self.note(key, None)
        assert report.rows == len(gone)

    @rule(key=KEYS, expect=st.booleans(), data=st.data())
    def test_and_set(self, key: Key, expect: bool, data: st.DataObject) -> None:
        row = self.row(key, data)
        stored = self.rows.get(key)
        arrow = keys_to_arrow(self.schema, [key])
        version = self.store.version("t", arrow) + (not expect)
        new = self.store.test_and_set(
            "t", arrow, rows_to_arrow(self.schema, [row]), version=version
        )
        assert (new is not None) == expect
        assert (stored is None) == (version - (not expect) == 0)
        if expect:
            self.note(key, row)

    @rule(key=KEYS, data=st.data())
    def test_and_set_by_value(self, key: Key, data: st.DataObject) -> None:
        row, stored = self.row(key, data), self.rows.get(key)
        expected = None if stored is None else rows_to_arrow(self.schema, [stored])
        new = rows_to_arrow(self.schema, [row])
        arrow = keys_to_arrow(self.schema, [key])
        assert self.store.test_and_set("t", arrow, new, expected=expected) is not None
        self.note(key, row)

    @precondition(lambda self: self.schema.version < 4)
    @rule(types=st.lists(st.sampled_from(TYPES), min_size=1, max_size=2))
    def add_columns(self, types: list[str]) -> None:
        first = len(self.types)
        columns = [Column(f"c{i}", arrow_type(name)) for i, name in enumerate(types, first)]
        self.store.add_columns("t", columns)
        self.types = [*self.types, *types]
        self.schema = self.store.describe("t")
        assert self.schema.columns[2 + first :] == tuple(columns)

    @rule()
    def take_snapshot(self) -> None:
        self.snapshots.append((self.store.snapshot("t"), self.schema, dict(self.rows)))

    @rule()
    def reopen(self) -> None:
        self.snapshots.clear()
        self.store.close()
        self.store = self.make(self.directory)

    @rule(low=KEYS, high=KEYS)
    def scan_range(self, low: Key, high: Key) -> None:
        batches = self.store.scan("t", ["s", "n"], start=low, stop=high, batch_rows=3)
        found = [(row["s"], row["n"]) for batch in batches for row in batch.to_pylist()]
        wanted = [key for key in self.rows if _order(low) <= _order(key) < _order(high)]
        assert found == sorted(wanted, key=_order)

    @invariant()
    def rows_are_the_models(self) -> None:
        if hasattr(self, "store"):
            wanted = sorted_rows(self.schema, self.rows)
            assert _text(self.store.scan("t", batch_rows=4)) == wanted
            assert [str(self.store.get_row("t", key)) for key in sorted(self.rows, key=_order)] == (
                wanted
            )
            for snapshot, schema, rows in self.snapshots:
                assert _text(snapshot.scan(batch_rows=5)) == sorted_rows(schema, rows)

    @invariant()
    def the_log_tells_every_step(self) -> None:
        if not hasattr(self, "store"):
            return
        told: dict[Key, list[str]] = {}
        for region, held in self.store.log("t").items():
            batches = list(self.store.changes("t", region, batch_rows=3))
            changes = [change for batch in batches for change in batch.to_pylist()]
            assert [c["sequence"] for c in changes] == list(range(1, held.last + 1))
            for change in changes:
                row = change["after"] or change["before"]
                told.setdefault((row["s"], row["n"]), []).append(
                    str((change["before"], change["after"]))
                )
        wanted: dict[Key, list[str]] = {}
        for key, before, after in self.logged:
            images = shown(self.schema, before), shown(self.schema, after)
            wanted.setdefault(key, []).append(str(images))
        assert told == wanted


def sorted_rows(schema: TableSchema, rows: dict[Key, dict[str, Any]]) -> list[str]:
    return [str(shown(schema, rows[key])) for key in sorted(rows, key=_order)]


def shown(schema: TableSchema, row: dict[str, Any] | None) -> dict[str, Any] | None:
    """A row as it comes back: floats rounded to their width, times in UTC, new columns NULL."""
    return None if row is None else rows_to_arrow(schema, [row]).to_pylist()[0]


def _order(key: Key) -> tuple[bytes, int]:
    return key[0].encode(), key[1]


def _text(batches: Any) -> list[str]:
    return [str(row) for batch in batches for row in batch.to_pylist()]


def _case(name: str) -> type[unittest.TestCase]:
    machine = type(name, (StoreModel,), {"make": staticmethod(STORES[name])})
    machine.TestCase.settings = settings(max_examples=40, stateful_step_count=15)
    case: type[unittest.TestCase] = machine.TestCase
    return case


TestEmbeddedStore = _case("embedded")
