"""Columns that are added while other processes read and write the table by what they knew of it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

import everview as ev
from everview.errors import Outdated, TableNotFound
from everview.intake import keys_to_arrow, rows_to_arrow
from everview.stores.embedded import EmbeddedStore
from everview.stores.embedded.writer import Writer

from .invariants import check
from .processes import Server
from .workload import COLUMNS, REGIONS, Row, operations

OLD = [{"id": key, "op": 1, "text": "old"} for key in range(20)]
NEW = [{"id": key, "op": 2, "text": "new", "note": "n"} for key in range(0, 40, 2)]


def without_note(rows: list[Row]) -> dict[int, Row]:
    return {row["id"]: {name: row[name] for name in COLUMNS} for row in rows}


def test_writers_go_on_while_columns_are_added(server: Server, path: str) -> None:
    writers = [
        server.start("write_many", path=path, seed=3, writer=writer, count=40)
        for writer in range(3)
    ]
    with ev.open(path) as db:
        table, numbers = db.table("t"), []
        while any(writer.status(poll=True) is None for writer in writers):
            number = len(numbers)
            table.add_columns({f"c{number}": "BIGINT"})
            table.put([{"id": key, "op": 0, f"c{number}": key} for key in range(number, 2000, 50)])
            numbers.append(number)
            for row in table.scan():
                assert all(row[f"c{n}"] in (None, row["id"]) for n in numbers)
        issued = {o.number: o for w in range(3) for o in islice(operations(3, w), 40)}
        for writer in writers:
            for report in writer.result():
                assert report["op"] in issued
        found = check(db.store).rows
        assert len(numbers) > 1
        changes = [c for batch in table.changes() for c in batch.to_pylist()]
    told = {c["after"]["op"] for c in changes if c["after"] is not None}
    assert told - {0} == {o.number for o in issued.values() if not o.delete}
    for row in found.values():
        fresh = [row[f"c{n}"] for n in numbers]
        assert row["op"] == 0 or fresh == [None] * len(numbers), "its writer knew no such column"


@pytest.fixture
def just_then(
    server: Server, path: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[[type, str], None]:
    """Has another process add the column and put NEW, when a method is called for the first time
    next."""

    def patch(owner: type, method: str) -> None:
        original = getattr(owner, method)

        def late(self: Any, *arguments: Any, **options: Any) -> Any:
            monkeypatch.setattr(owner, method, original)
            server.start("add_column", path=path, rows=NEW).result()
            return original(self, *arguments, **options)

        monkeypatch.setattr(owner, method, late)

    return patch


NOW = without_note(OLD) | without_note(NEW)
READS: dict[str, Callable[[EmbeddedStore], Any]] = {
    "get_row": lambda store: store.get_row("t", 2) == NOW[2],
    "get": lambda store: (
        store.get("t", keys_to_arrow(store.describe("t"), [1, 2, 30]))[0].to_pylist()
        == [NOW[1], NOW[2], NOW[30]]
    ),
    "version": lambda store: store.version("t", keys_to_arrow(store.describe("t"), [30])) > 0,
    "scan": lambda store: (
        [row for batch in store.scan("t") for row in batch.to_pylist()]
        == [NOW[key] for key in sorted(NOW)]
    ),
    "changes": lambda store: (
        {
            change["after"]["text"]
            for region in range(REGIONS)
            for batch in store.changes("t", region, columns=list(COLUMNS))
            for change in batch.to_pylist()
        }
        == {"old", "new"}
    ),
}


@pytest.mark.parametrize("way", READS)
def test_a_read_that_looked_the_table_up_before_reads_newer_rows(
    path: str, just_then: Callable[[type, str], None], way: str
) -> None:
    with ev.open(path) as db:
        db.table("t").put(OLD)
        just_then(EmbeddedStore, "_region")
        assert READS[way](db.store)
        assert db.table("t").get(2) == NEW[1]


def test_a_pin_and_a_snapshot_undo_newer_rows(
    path: str, just_then: Callable[[type, str], None]
) -> None:
    with ev.open(path) as db:
        db.table("t").put(OLD)
        with db.pin("t") as at, db.table("t").snapshot() as snapshot:
            just_then(EmbeddedStore, "_region")
            assert [row for b in snapshot.scan() for row in b.to_pylist()] == OLD
            assert db.table("t").get(2) == NEW[1]
            assert list(at.table("t").scan()) == OLD
            assert at.table("t").get(2) == OLD[2]


class Images(ev.Observer):
    def __init__(self) -> None:
        self.seen: list[tuple[Any, Any]] = []

    def before(self, write: ev.Write) -> None:
        self.seen += zip(write.before.to_pylist(), write.after.to_pylist(), strict=True)


def test_a_put_that_looked_the_table_up_before_replaces_newer_rows(
    path: str, just_then: Callable[[type, str], None]
) -> None:
    mine = [{"id": key, "op": 3, "text": "mine"} for key in range(1, 5)]
    with ev.open(path) as db:
        table, images = db.table("t"), Images()
        table.put(OLD)
        table.attach(images)
        just_then(Writer, "_try")
        table.put(mine)
        assert sorted(images.seen, key=str) == sorted(
            [(NOW[row["id"]], row) for row in mine], key=str
        )
        found = check(db.store).rows
        assert {key: found[key] for key in (1, 2, 6)} == {
            1: mine[0] | {"note": None},
            2: mine[1] | {"note": None},
            6: NEW[3],
        }
        table.delete([2, 6])
        assert table.get_many([2, 6]).num_rows == 0


def test_a_test_by_value_sees_a_column_that_was_added_just_then(
    path: str, just_then: Callable[[type, str], None]
) -> None:
    """The row is the same in all columns that were known, but not in the new one."""
    with ev.open(path) as db:
        table = db.table("t")
        table.put(OLD)
        just_then(Writer, "_try")
        assert table.test_and_set(2, None, expected=NOW[2]) is None
        assert table.get(2) == NEW[1]
        assert table.test_and_set(2, None, expected=NEW[1]) is not None


def test_rows_made_before_are_put_when_a_column_was_added(server: Server, path: str) -> None:
    with ev.open(path) as db:
        prepared = rows_to_arrow(db.table("t").schema, OLD)
        server.start("add_column", path=path, rows=NEW).result()
        db.store.put("t", prepared)
        assert check(db.store).rows[2] == OLD[2] | {"note": None}
        assert db.table("t").get(30) == NEW[15]


def test_newer_rows_of_a_table_that_is_gone_are_outdated_and_not_damage(
    server: Server, path: str
) -> None:
    with ev.open(path) as db:
        layout = db.store._layout("t")
        server.start("add_column", path=path, rows=NEW).result()
        one = db.store._region(layout, 0)
        with one.environment.reading() as txn:
            row = next(iter(txn.cursor(one.rows).iternext(keys=False)))
        assert layout.rows.decode_row(row, [2]) == {"text": "new"}
        fresh = db.store.catalog._layout_of(layout.schema, layout.directory)
        server.start("drop", path=path, again=COLUMNS).result()
        with pytest.raises(Outdated, match="created again meanwhile"):
            fresh.rows.decode_row(row, [2])
        server.start("drop", path=path).result()
        with pytest.raises(TableNotFound):
            fresh.rows.decode_row(row, [2])
