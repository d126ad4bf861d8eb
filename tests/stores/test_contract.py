"""What every store does: the behaviour suite of the Store contract."""

from __future__ import annotations

import threading
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from everview.errors import (
    AppendOnly,
    InvalidSchema,
    LogError,
    LogTrimmed,
    ObserverFailed,
    Outdated,
    TableExists,
    TableNotFound,
    UnknownColumn,
    UnknownConsumer,
    WriteRejected,
    WrongKey,
)
from everview.intake import keys_to_arrow, rows_to_arrow
from everview.schema import Column, TableSchema, columns_of
from everview.stores.base import Observer, Store, Write, WriteReport, change_schema
from tests.stores.conftest import SCHEMA, keys, rows

ADA = ("north", 1, "ada", "10.00")
BOB = ("north", 2, "bob", None)
CY = ("south", 1, "cy", "3.50")


def content(store: Store, **how: Any) -> list[tuple[Any, ...]]:
    """Rows as tuples, in the order the scan gives them."""
    found: list[tuple[Any, ...]] = []
    for batch in store.scan("accounts", **how):
        found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


def history(store: Store) -> dict[int, list[dict[str, Any]]]:
    """All changes by region."""
    return {
        region: [c for batch in store.changes("accounts", region) for c in batch.to_pylist()]
        for region in store.log("accounts")
    }


def all_changes(store: Store) -> list[dict[str, Any]]:
    return [change for changes in history(store).values() for change in changes]


class TestTables:
    def test_a_created_table_is_listed_and_described(self, accounts: Store) -> None:
        assert accounts.tables() == ["accounts"]
        assert accounts.describe("ACCOUNTS") == SCHEMA
        assert [status.rows for status in accounts.status("accounts")] == [0, 0, 0]

    def test_a_name_is_taken_once_in_any_case(self, accounts: Store) -> None:
        with pytest.raises(TableExists, match="Accounts"):
            accounts.create_table(TableSchema.of("Accounts", {"id": "INT"}, "id"))

    def test_a_dropped_table_is_gone_and_its_name_free(self, accounts: Store) -> None:
        accounts.put("accounts", rows(ADA))
        accounts.drop_table("accounts")
        assert accounts.tables() == []
        with pytest.raises(TableNotFound):
            accounts.put("accounts", rows(ADA))
        accounts.create_table(SCHEMA)
        assert content(accounts) == []
        assert all_changes(accounts) == []

    def test_an_unknown_table_is_told_with_the_nearest_name(self, accounts: Store) -> None:
        with pytest.raises(TableNotFound, match="did you mean accounts"):
            accounts.describe("acounts")


class TestWrites:
    def test_put_inserts_and_replaces_whole_rows(self, accounts: Store) -> None:
        assert accounts.put("accounts", rows(ADA, BOB)).rows == 2
        accounts.put("accounts", rows(("north", 1, None, None)))
        assert content(accounts) == [("north", 1, None, None), ("north", 2, "bob", None)]

    def test_the_last_of_several_rows_with_one_key_counts_as_one_change(
        self, accounts: Store
    ) -> None:
        accounts.put("accounts", rows(ADA, BOB, ("north", 1, "eve", "1.00")))
        assert content(accounts)[0] == ("north", 1, "eve", Decimal("1.00"))
        assert len(all_changes(accounts)) == 2

    def test_delete_removes_and_ignores_absent_keys(self, accounts: Store) -> None:
        accounts.put("accounts", rows(ADA, BOB, CY))
        report = accounts.delete("accounts", keys(("north", 1), ("east", 9), ("north", 1)))
        assert report.rows == 1
        assert content(accounts) == [("north", 2, "bob", None), ("south", 1, "cy", Decimal("3.50"))]
        assert len(all_changes(accounts)) == 4

    def test_an_empty_write_changes_nothing(self, accounts: Store) -> None:
        assert accounts.put("accounts", SCHEMA.arrow.empty_table()).rows == 0
        assert accounts.delete("accounts", SCHEMA.key_arrow.empty_table()).rows == 0
        assert all_changes(accounts) == []

    @pytest.mark.parametrize("count", [1, 3, 500])  # single rows have a way of their own
    def test_rows_that_are_there_already_are_no_change(self, accounts: Store, count: int) -> None:
        batch = rows(*[("x", i, f"o{i}", "1.50" if i % 2 else None) for i in range(count)])
        accounts.put("accounts", batch)
        key, log = keys(("x", 0)), accounts.log("accounts")
        version = accounts.version("accounts", key)
        report = accounts.put("accounts", batch)
        assert report == WriteReport(0, {})
        assert report.unchanged == count
        assert accounts.log("accounts") == log
        assert accounts.version("accounts", key) == version

    @pytest.mark.parametrize("count", [2, 200])
    def test_of_equal_and_other_rows_only_the_others_are_written(
        self, accounts: Store, count: int
    ) -> None:
        accounts.put("accounts", rows(*[("x", i, f"o{i}", None) for i in range(count)]))
        batch = [("x", i, f"o{i}" if i % 2 else "new", None) for i in range(count * 2)]
        report = accounts.put("accounts", rows(*batch))
        assert (report.rows, report.unchanged) == (count * 3 // 2, count // 2)
        assert content(accounts) == batch
        assert len(all_changes(accounts)) == count + report.rows
        assert [c for c in all_changes(accounts) if c["before"] == c["after"]] == []

    def test_rows_differ_in_any_value(self, accounts: Store) -> None:
        accounts.put("accounts", rows(ADA, BOB))
        for other in (("ada", None), (None, "12.50"), ("adb", "12.50"), ("ada", "12.51")):
            assert accounts.put("accounts", rows(("north", 1, *other), BOB)).rows == 1
            assert accounts.put("accounts", rows(("north", 1, *other))).rows == 0

    def test_the_report_tells_the_last_sequence_of_each_region(self, accounts: Store) -> None:
        report = accounts.put("accounts", rows(*[("x", i, None, None) for i in range(50)]))
        assert dict(report.sequences) == {
            r: held.last for r, held in accounts.log("accounts").items()
        }


class TestReads:
    def test_get_gives_rows_in_the_order_asked_with_their_places(self, accounts: Store) -> None:
        accounts.put("accounts", rows(ADA, BOB, CY))
        asked = keys(("south", 1), ("none", 0), ("north", 2), ("south", 1))
        found, places = accounts.get("accounts", asked, ["owner"])
        assert found.to_pylist() == [{"owner": "cy"}, {"owner": "bob"}, {"owner": "cy"}]
        assert places.to_pylist() == [0, 2, 3]

    def test_get_row_gives_one_row_or_none(self, accounts: Store) -> None:
        accounts.put("accounts", rows(ADA))
        assert accounts.get_row("accounts", ("north", 1), ["balance"]) == {
            "balance": Decimal("10.00")
        }
        assert accounts.get_row("accounts", ("north", 7)) is None
        with pytest.raises(WrongKey, match="branch"):
            accounts.get_row("accounts", "north")

    def test_scan_is_in_key_order_over_all_regions(self, accounts: Store) -> None:
        wanted = [(b, i, None, None) for b in ("a", "a\0", "b", "") for i in range(-40, 40)]
        accounts.put("accounts", rows(*wanted))
        assert content(accounts) == sorted(wanted)
        assert content(accounts, batch_rows=7) == sorted(wanted)
        assert sorted(content(accounts, ordered=False)) == sorted(wanted)
        by_region = [row for r in range(3) for row in content(accounts, region=r)]
        assert sorted(by_region) == sorted(wanted)

    def test_scan_keeps_to_a_range_of_keys_or_leading_columns(self, accounts: Store) -> None:
        wanted = [(b, i, None, None) for b in "abc" for i in range(10)]
        accounts.put("accounts", rows(*wanted))
        assert content(accounts, start=("b",), stop=("c",)) == wanted[10:20]
        assert content(accounts, start=("a", 8), stop=("b", 1)) == wanted[8:11]
        assert content(accounts, start=("c", 9)) == wanted[29:]
        assert content(accounts, start=("z",)) == []
        assert content(accounts, start=("b",), stop=("a",)) == []

    def test_scan_selects_columns_and_rows(self, accounts: Store) -> None:
        accounts.put("accounts", rows(ADA, BOB, CY))
        rich = pc.field("balance") > pa.scalar(Decimal("3.00"), pa.decimal128(12, 2))
        assert content(accounts, columns=["owner"], where=rich) == [("ada",), ("cy",)]
        none = pc.field("balance").is_null()
        assert content(accounts, columns=["id", "branch"], where=none) == [(2, "north")]
        with pytest.raises(UnknownColumn, match="owner"):
            accounts.scan("accounts", columns=["ownr"])

    def test_batches_are_no_larger_than_asked(self, accounts: Store) -> None:
        accounts.put("accounts", rows(*[("x", i, None, None) for i in range(100)]))
        for ordered in (True, False):
            batches = list(accounts.scan("accounts", batch_rows=9, ordered=ordered))
            assert max(batch.num_rows for batch in batches) <= 9
            assert all(batch.schema.equals(SCHEMA.arrow) for batch in batches)

    def test_a_scan_sees_one_state_of_a_region_while_it_is_written(self, accounts: Store) -> None:
        accounts.put("accounts", rows(*[("x", i, "old", None) for i in range(500)]))
        found = []
        for batch in accounts.scan("accounts", region=0, batch_rows=10):
            found += batch.column("owner").to_pylist()
            accounts.put("accounts", rows(*[("x", i, "new", None) for i in range(500)]))
        assert set(found) == {"old"}

    def test_keys_of_any_length_are_found_and_in_order(self, accounts: Store) -> None:
        names = ["k" * n + tail for n in (0, 1, 490, 495, 496, 600, 5_000) for tail in "ba"]
        names += ["k" * 1_000 + f"{i:03d}" for i in range(99, -1, -1)] + ["k" * 100_000]
        wanted = [(name, 1, name[-3:], None) for name in dict.fromkeys(names)]
        accounts.put("accounts", rows(*wanted))
        assert content(accounts) == sorted(wanted)
        assert content(accounts, batch_rows=5) == sorted(wanted)
        for row in wanted:
            assert accounts.get_row("accounts", row[:2]) == dict(
                zip(SCHEMA.names, row, strict=True)
            )
        low, high = "k" * 1_000 + "010", "k" * 1_000 + "020"
        assert content(accounts, start=(low,), stop=(high,)) == sorted(
            row for row in wanted if low <= row[0] < high
        )
        accounts.delete("accounts", keys(*[(row[0], 1) for row in wanted[::2]]))
        assert content(accounts) == sorted(wanted[1::2])


class TestChanges:
    def test_every_write_is_a_change_with_both_images(self, accounts: Store) -> None:
        accounts.put("accounts", rows(ADA))
        accounts.put("accounts", rows(("north", 1, "ada", "12.00")))
        accounts.delete("accounts", keys(("north", 1)))
        first, second, third = all_changes(accounts)
        assert [c["op"] for c in (first, second, third)] == ["put", "put", "delete"]
        assert first["before"] is None
        assert first["after"] == second["before"]
        assert second["after"] == third["before"]
        assert second["after"]["balance"] == Decimal("12.00")
        assert third["after"] is None
        assert [c["sequence"] for c in (first, second, third)] == [1, 2, 3]
        assert first["time"] <= third["time"]

    def test_changes_start_and_stop_anywhere(self, accounts: Store) -> None:
        for start in range(0, 300, 60):
            accounts.put(
                "accounts", rows(*[("x", i, None, None) for i in range(start, start + 60)])
            )
        whole = history(accounts)[1]
        for after in range(0, len(whole), 5):
            for upto in (None, after, after + 1, after + 13):
                batches = list(accounts.changes("accounts", 1, after, upto, batch_rows=4))
                assert all(batch.num_rows <= 4 for batch in batches)
                assert all(batch.schema.equals(change_schema(SCHEMA)) for batch in batches)
                got = [change for batch in batches for change in batch.to_pylist()]
                assert got == whole[after:upto]

    def test_changes_select_columns(self, accounts: Store) -> None:
        accounts.put("accounts", rows(ADA))
        region = next(r for r, held in accounts.log("accounts").items() if held.last)
        (batch,) = accounts.changes("accounts", region, columns=["owner"])
        assert batch.column("after").to_pylist() == [{"owner": "ada"}]

    def test_the_oldest_change_after_positions_is_found_by_its_time(self, accounts: Store) -> None:
        assert accounts.times_after("accounts", {}) == {}
        for start in range(0, 90, 30):
            accounts.put(
                "accounts", rows(*[("x", i, None, None) for i in range(start, start + 30)])
            )
        found = history(accounts)
        for after in (0, 5, 17):
            times = {r: changes[after]["time"] for r, changes in found.items() if changes[after:]}
            assert accounts.times_after("accounts", dict.fromkeys(found, after)) == times
        lasts = {region: held.last for region, held in accounts.log("accounts").items()}
        assert accounts.times_after("accounts", lasts) == {}
        accounts.trim("accounts")
        assert accounts.times_after("accounts", {}) == {}

    def test_trimming_keeps_what_a_consumer_needs(self, accounts: Store) -> None:
        accounts.register("accounts", "views")
        for i in range(30):
            accounts.put("accounts", rows(("x", i, None, None)))
        assert accounts.trim("accounts") == 0
        held = accounts.log("accounts")
        accounts.acknowledge("accounts", "views", {r: h.last // 2 for r, h in held.items()})
        removed = accounts.trim("accounts")
        assert removed == sum(h.last // 2 for h in held.values())
        rest = accounts.log("accounts")
        assert {r: h.first for r, h in rest.items()} == {
            r: h.last // 2 + 1 for r, h in held.items()
        }
        with pytest.raises(LogTrimmed, match="register a consumer"):
            list(accounts.changes("accounts", 0, 0))
        assert len(list(accounts.changes("accounts", 0, rest[0].first - 1))) == 1
        accounts.acknowledge("accounts", "views", {0: 0})
        accounts.unregister("accounts", "views")
        accounts.trim("accounts")
        assert all(h.first == h.last + 1 for h in accounts.log("accounts").values())
        accounts.put("accounts", rows(("x", 0, "again", None)))
        assert max(c["sequence"] for c in _held_changes(accounts)) > 1

    def test_an_unknown_consumer_can_not_acknowledge(self, accounts: Store) -> None:
        with pytest.raises(UnknownConsumer, match="nobody"):
            accounts.acknowledge("accounts", "nobody", {0: 1})

    def test_a_snapshot_repeats_and_holds_the_log(self, accounts: Store) -> None:
        accounts.put("accounts", rows(*[("x", i, "old", None) for i in range(40)]))
        before = content(accounts)
        with accounts.snapshot("accounts") as snapshot:
            accounts.put("accounts", rows(*[("x", i, "new", None) for i in range(20, 60)]))
            accounts.delete("accounts", keys(*[("x", i) for i in range(10)]))
            accounts.put("accounts", rows(("x", 3, "back", None)))
            accounts.trim("accounts")
            again = [tuple(r.values()) for b in snapshot.scan(batch_rows=6) for r in b.to_pylist()]
            assert again == before
            part = snapshot.scan(["id"], start=("x", 5), stop=("x", 25))
            assert [r["id"] for b in part for r in b.to_pylist()] == list(range(5, 25))
            positions = dict(snapshot.positions)
            assert content(accounts, at=positions) == before
        assert accounts.trim("accounts") > 0
        with pytest.raises(LogTrimmed):
            content(accounts, at=positions)
        with pytest.raises(LogTrimmed, match="closed"):
            snapshot.scan()

    def test_a_snapshot_keeps_the_order_of_long_keys(self, accounts: Store) -> None:
        wanted = [("k" * 700, i, None, None) for i in range(20)]
        accounts.put("accounts", rows(*wanted))
        with accounts.snapshot("accounts") as snapshot:
            accounts.delete("accounts", keys(*[row[:2] for row in wanted[::3]]))
            batches = snapshot.scan(batch_rows=4)
            assert [tuple(r.values()) for b in batches for r in b.to_pylist()] == wanted


def _held_changes(store: Store) -> list[dict[str, Any]]:
    return [
        change
        for region, held in store.log("accounts").items()
        for batch in store.changes("accounts", region, held.first - 1)
        for change in batch.to_pylist()
    ]


class TestTestAndSet:
    def test_by_value_only_the_expected_row_is_replaced(self, accounts: Store) -> None:
        key = keys(("north", 1))
        assert accounts.test_and_set("accounts", key, rows(ADA), expected=rows(BOB)) is None
        assert accounts.test_and_set("accounts", key, rows(ADA)) is not None
        assert accounts.test_and_set("accounts", key, rows(ADA)) is None
        new = rows(("north", 1, "ada", "11.00"))
        assert accounts.test_and_set("accounts", key, new, expected=rows(ADA)) is not None
        assert accounts.test_and_set("accounts", key, None, expected=rows(ADA)) is None
        assert accounts.test_and_set("accounts", key, None, expected=new) is not None
        assert content(accounts) == []
        assert [c["op"] for c in all_changes(accounts)] == ["put", "put", "delete"]

    def test_by_version_only_an_unchanged_row_is_replaced(self, accounts: Store) -> None:
        key = keys(("north", 1))
        assert accounts.version("accounts", key) == 0
        first = accounts.test_and_set("accounts", key, rows(ADA), version=0)
        assert first == accounts.version("accounts", key)
        assert accounts.test_and_set("accounts", key, rows(ADA), version=0) is None
        accounts.put("accounts", rows(BOB, ("north", 1, "eve", None)))
        assert accounts.test_and_set("accounts", key, None, version=first) is None
        assert accounts.version("accounts", key) > (first or 0)
        accounts.delete("accounts", key)
        accounts.put("accounts", rows(ADA))
        assert accounts.version("accounts", key) > (first or 0) + 1

    def test_one_alone_succeeds_also_with_a_row_that_is_there_already(
        self, accounts: Store
    ) -> None:
        accounts.put("accounts", rows(ADA))
        key = keys(("north", 1))
        version = accounts.version("accounts", key)
        new = accounts.test_and_set("accounts", key, rows(ADA), version=version)
        assert new == version + 1
        assert accounts.test_and_set("accounts", key, rows(ADA), version=version) is None

    def test_the_row_must_have_the_key(self, accounts: Store) -> None:
        with pytest.raises(WrongKey):
            accounts.test_and_set("accounts", keys(("north", 1)), rows(BOB))

    def test_counting_threads_lose_no_step(self, accounts: Store) -> None:
        accounts.put("accounts", rows(("n", 0, None, "0.00")))
        key = keys(("n", 0))

        def count() -> None:
            done = 0
            while done < 25:
                version = accounts.version("accounts", key)
                row = accounts.get_row("accounts", ("n", 0)) or {}
                new = rows(("n", 0, None, row["balance"] + 1))
                done += accounts.test_and_set("accounts", key, new, version=version) is not None

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert content(accounts)[0][3] == Decimal("100.00")


class Recorder(Observer):
    """Notes what it sees; refuses owners called mallory; fails after owners called trudy."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, list[Any], list[Any]]] = []

    def before(self, write: Write) -> None:
        self._note("before", write)
        owners = [row and row["owner"] for row in write.after.to_pylist()]
        if "mallory" in owners:
            raise ValueError("mallory may not bank here")

    def after(self, write: Write) -> None:
        self._note("after", write)
        if "trudy" in [row and row["owner"] for row in write.after.to_pylist()]:
            raise ValueError("no trudy")

    def _note(self, when: str, write: Write) -> None:
        images = write.before.to_pylist(), write.after.to_pylist()
        self.seen.append((when, write.op, *images))
        assert len(write.sequences) == len(images[0])


class TestObservers:
    def test_an_observer_sees_both_images_before_and_after(self, accounts: Store) -> None:
        accounts.put("accounts", rows(ADA))
        recorder = Recorder()
        accounts.attach("accounts", recorder)
        accounts.put("accounts", rows(("north", 1, "eve", None)))
        accounts.delete("accounts", keys(("north", 1)))
        whens = [(when, op) for when, op, *_ in recorder.seen]
        assert whens == [(when, op) for op in ("put", "delete") for when in ("before", "after")]
        assert recorder.seen[0][2][0]["owner"] == "ada"
        assert recorder.seen[0][3][0]["owner"] == "eve"
        assert recorder.seen[2][3] == [None]

    @pytest.mark.parametrize("count", [1, 40])
    def test_an_observer_is_told_which_rows_were_there_already(
        self, accounts: Store, count: int
    ) -> None:
        accounts.put("accounts", rows(*[("x", i, "a", None) for i in range(count)]))
        seen: list[Write] = []
        recorder = Recorder()
        recorder.after = seen.append  # type: ignore[method-assign]
        accounts.attach("accounts", recorder)
        accounts.put("accounts", rows(*[("x", i, "a", None) for i in range(count)]))
        unchanged = [row["id"] for write in seen for row in write.unchanged.to_pylist()]
        assert sorted(unchanged) == list(range(count))
        assert [write for write in seen if write.sequences or len(write.after)] == []
        accounts.put("accounts", rows(("x", 0, "b", None)))
        assert len(seen[-1].unchanged) == 0
        assert [row["owner"] for row in seen[-1].after.to_pylist()] == ["b"]

    def test_a_rejected_write_changes_nothing_in_any_region(self, accounts: Store) -> None:
        accounts.put("accounts", rows(*[("x", i, "a", None) for i in range(30)]))
        accounts.attach("accounts", Recorder())
        before, log = content(accounts), accounts.log("accounts")
        batch = [("x", i, "b", None) for i in range(60)] + [("y", 99, "mallory", None)]
        with pytest.raises(WriteRejected, match="mallory may not bank here"):
            accounts.put("accounts", rows(*batch))
        assert content(accounts) == before
        assert accounts.log("accounts") == log

    def test_a_failure_after_the_write_says_that_it_stands(self, accounts: Store) -> None:
        accounts.attach("accounts", Recorder())
        with pytest.raises(ObserverFailed, match="committed"):
            accounts.put("accounts", rows(("x", 1, "trudy", None)))
        assert content(accounts) == [("x", 1, "trudy", None)]

    def test_a_detached_observer_sees_nothing_more(self, accounts: Store) -> None:
        recorder = Recorder()
        accounts.attach("accounts", recorder)
        accounts.detach("accounts", recorder)
        accounts.put("accounts", rows(("x", 1, "mallory", None)))
        assert recorder.seen == []

    def test_a_named_observer_is_part_of_the_definition(self, accounts: Store) -> None:
        name = f"{__name__}:Recorder"
        accounts.attach("accounts", name)
        assert accounts.describe("accounts").observers == (name,)
        with pytest.raises(WriteRejected):
            accounts.put("accounts", rows(("x", 1, "mallory", None)))
        accounts.detach("accounts", name)
        assert accounts.put("accounts", rows(("x", 1, "mallory", None))).rows == 1


class TestAppendOnlyTables:
    @pytest.fixture
    def events(self, store: Store) -> Store:
        """A table `accounts` that is append-only, with rows in more than one region."""
        store.create_table(replace(SCHEMA, append_only=True))
        store.put("accounts", rows(ADA, BOB, CY))
        return store

    def test_they_are_described_as_such(self, events: Store) -> None:
        assert events.describe("accounts").append_only
        assert not TableSchema.from_json({**SCHEMA.to_json(), "append_only": False}).append_only

    def test_rows_come(self, events: Store) -> None:
        assert events.put("accounts", rows(("west", 1, "dan", None))).rows == 1
        assert len(content(events)) == 4

    def test_a_row_that_is_there_already_is_no_change(self, events: Store) -> None:
        assert events.put("accounts", rows(ADA, ("west", 1, "dan", None), CY)).rows == 1
        assert events.put("accounts", rows(ADA, BOB)) == WriteReport(0, {})
        assert [change["before"] for change in all_changes(events)] == [None] * 4

    def test_also_where_columns_were_added_since(self, events: Store) -> None:
        events.add_columns("accounts", [Column("x", pa.int8())])
        assert events.put("accounts", rows(ADA)).rows == 0

    def test_changes_are_refused_with_the_key_and_nothing_is_written(self, events: Store) -> None:
        many = [(branch, 9, "new", None) for branch in "abcdefgh"]  # of all regions
        with pytest.raises(AppendOnly, match=r"accounts .* branch = 'north', id = 2 can't be chan"):
            events.put("accounts", rows(*many, ("north", 2, "bob", "1.00")))
        assert content(events) == [tuple(row.values()) for row in rows(ADA, BOB, CY).to_pylist()]
        assert len(all_changes(events)) == 3

    def test_deletions_are_refused_of_rows_that_are_there(self, events: Store) -> None:
        with pytest.raises(AppendOnly, match="branch = 'south', id = 1 can't be deleted"):
            events.delete("accounts", keys(("north", 7), ("south", 1)))
        assert events.delete("accounts", keys(("north", 7))).rows == 0
        with pytest.raises(AppendOnly, match="can't be deleted"):
            events.test_and_set("accounts", keys(("north", 1)), None, expected=rows(ADA))
        assert len(content(events)) == 3


NESTED = TableSchema.of(
    "nested",
    {
        "id": "BIGINT",
        "tags": "ARRAY<STRING>",
        "spot": "STRUCT<x: DOUBLE, notes: ARRAY<STRING>>",
        "prices": "MAP<STRING, DECIMAL(12,2)>",
    },
    "id",
    regions=2,
)
FULL = {
    "id": 1,
    "tags": ["a", None],
    "spot": {"x": 0.5, "notes": []},
    "prices": [("a", Decimal("1.00")), ("b", None)],
}
BARE = {"id": 2, "tags": [], "spot": None, "prices": []}


class TestNestedColumns:
    @pytest.fixture
    def nested(self, store: Store) -> Store:
        store.create_table(NESTED)
        store.put("nested", rows_to_arrow(NESTED, [FULL, BARE, {"id": 3}]))
        return store

    def test_they_are_described_as_they_were_created(self, nested: Store) -> None:
        assert nested.describe("nested") == NESTED

    def test_rows_are_got_and_scanned_as_they_were_put(self, nested: Store) -> None:
        nulls = dict.fromkeys(NESTED.names) | {"id": 3}
        found = [row for batch in nested.scan("nested") for row in batch.to_pylist()]
        assert found == [FULL, BARE, nulls]
        assert [nested.get_row("nested", key) for key in (1, 2, 3)] == [FULL, BARE, nulls]
        assert nested.get_row("nested", 1, ["tags"]) == {"tags": FULL["tags"]}

    def test_changes_have_them_in_both_images(self, nested: Store) -> None:
        nested.put("nested", rows_to_arrow(NESTED, [FULL | {"tags": ["b"]}]))
        changes = [
            change
            for region in nested.log("nested")
            for batch in nested.changes("nested", region)
            for change in batch.to_pylist()
            if change["before"] is not None
        ]
        assert [(c["before"], c["after"]) for c in changes] == [(FULL, FULL | {"tags": ["b"]})]

    def test_a_row_is_the_same_whatever_the_order_of_a_map(self, nested: Store) -> None:
        turned = FULL | {"prices": FULL["prices"][::-1]}
        key, expected = keys_to_arrow(NESTED, [1]), rows_to_arrow(NESTED, [turned])
        assert nested.test_and_set("nested", key, None, expected=expected) is not None
        assert nested.get_row("nested", 1) is None


def add(store: Store, **columns: str) -> TableSchema:
    """The table with more columns, by their names and types."""
    store.add_columns("accounts", columns_of("accounts", columns))
    return store.describe("accounts")


def rows_now(store: Store, *tuples: tuple[object, ...]) -> pa.Table:
    schema = store.describe("accounts")
    return rows_to_arrow(schema, [dict(zip(schema.names, t, strict=True)) for t in tuples])


TEN = Decimal("10.00")


class Adder(Observer):
    """Adds a column when it is made, as another process might just then."""

    store: Store

    def __init__(self) -> None:
        add(self.store, note="STRING")


class TestAddedColumns:
    @pytest.fixture
    def grown(self, accounts: Store) -> Store:
        """Rows of three versions, BOB replaced since in the newest."""
        accounts.put("accounts", rows(ADA, BOB))
        add(accounts, note="STRING")
        accounts.put("accounts", rows_now(accounts, (*CY, "of two")))
        add(accounts, rank="INT", tags="ARRAY<STRING>")
        accounts.put("accounts", rows_now(accounts, (*BOB, "of three", 3, ["x"])))
        return accounts

    whole = (
        (*ADA[:3], TEN, None, None, None),
        (*BOB, "of three", 3, ["x"]),
        (*CY[:3], Decimal("3.50"), "of two", None, None),
    )

    def test_they_are_described_at_the_end(self, accounts: Store) -> None:
        found = add(accounts, note="STRING", rank="INT")
        assert found.names == (*SCHEMA.names, "note", "rank")
        assert found.columns[:4] == SCHEMA.columns
        assert found.columns[4:] == (Column("note", pa.string()), Column("rank", pa.int32()))
        assert (found.key, found.regions) == (SCHEMA.key, SCHEMA.regions)

    def test_no_row_and_no_change_is_written(self, accounts: Store) -> None:
        accounts.put("accounts", rows(ADA, BOB))
        log = accounts.log("accounts")
        version = accounts.version("accounts", keys(("north", 1)))
        add(accounts, note="STRING")
        assert accounts.log("accounts") == log
        assert accounts.version("accounts", keys(("north", 1))) == version

    def test_rows_of_all_versions_are_scanned(self, grown: Store) -> None:
        assert content(grown) == list(self.whole)
        for ordered in (True, False):
            for batch_rows in (1, 2, 100):
                found = content(grown, ordered=ordered, batch_rows=batch_rows)
                assert sorted(found) == sorted(self.whole)
        assert content(grown, columns=["tags", "id"]) == [(None, 1), (["x"], 2), (None, 1)]
        assert content(grown, start=("north", 2)) == list(self.whole[1:])

    def test_conditions_see_null_where_a_row_never_had_the_column(self, grown: Store) -> None:
        assert content(grown, columns=["id"], where=pc.field("rank") == 3) == [(2,)]
        none = pc.field("note").is_null()
        assert content(grown, columns=["owner"], where=none) == [("ada",)]
        assert content(grown, where=pc.field("owner") == "ada") == [self.whole[0]]

    def test_rows_of_all_versions_are_got(self, grown: Store) -> None:
        found, places = grown.get("accounts", keys(("south", 1), ("north", 1), ("north", 2)))
        assert [tuple(row.values()) for row in found.to_pylist()] == [
            self.whole[i] for i in (2, 0, 1)
        ]
        assert places.to_pylist() == [0, 1, 2]
        for row in self.whole:
            one = grown.get_row("accounts", row[:2])
            assert tuple((one or {}).values()) == row
        assert grown.get_row("accounts", ("north", 1), ["rank", "id"]) == {"rank": None, "id": 1}

    def test_changes_have_them_in_images_of_all_versions(self, grown: Store) -> None:
        grown.delete("accounts", keys(("north", 1)))
        images = [
            tuple(image and tuple(image.values()) for image in (c["before"], c["after"]))
            for c in all_changes(grown)
        ]
        ada, bob, cy = self.whole
        old_bob = (*BOB, None, None, None)
        wanted = [(None, ada), (None, old_bob), (None, cy), (old_bob, bob), (ada, None)]
        assert sorted(images, key=str) == sorted(wanted, key=str)

    def test_a_snapshot_keeps_the_columns_that_it_had(self, accounts: Store) -> None:
        accounts.put("accounts", rows(ADA, BOB))
        with accounts.snapshot("accounts") as snapshot:
            add(accounts, note="STRING")
            accounts.put(
                "accounts", rows_now(accounts, (*CY, "new"), ("north", 1, None, None, "new"))
            )
            accounts.delete("accounts", keys(("north", 2)))
            batches = list(snapshot.scan())
            assert [tuple(r.values()) for b in batches for r in b.to_pylist()] == [
                (*ADA[:3], TEN),
                BOB,
            ]
            assert all(batch.schema.equals(SCHEMA.arrow) for batch in batches)
            named = snapshot.scan(columns=["note", "id"])
            assert [r for b in named for r in b.to_pylist()] == [
                {"note": None, "id": 1},
                {"note": None, "id": 2},
            ]
            at = dict(snapshot.positions)
            assert content(accounts, at=at) == [(*ADA[:3], TEN, None), (*BOB, None)]

    def test_rows_made_for_the_columns_before_are_taken(self, grown: Store) -> None:
        grown.put("accounts", rows(BOB))
        assert content(grown)[1] == (*BOB, None, None, None)
        key = keys(("north", 1))
        assert grown.test_and_set("accounts", key, rows(ADA), expected=rows(ADA)) is not None
        with pytest.raises(Outdated, match="write again"):
            grown.put("accounts", rows(ADA).drop_columns("balance"))

    def test_a_row_is_tested_by_value_whatever_its_version(self, grown: Store) -> None:
        key = keys(("north", 1))
        for wrong in ((None, 1, None), ("", None, None), (None, None, [])):
            other = rows_now(grown, (*ADA, *wrong))
            assert grown.test_and_set("accounts", key, None, expected=other) is None
        same = rows_now(grown, (*ADA, None, None, None))
        assert grown.test_and_set("accounts", key, same, expected=same) is not None
        assert grown.test_and_set("accounts", key, None, expected=same) is not None
        assert len(content(grown)) == 2

    def test_equal_values_over_a_row_of_an_older_version_are_no_change(self, grown: Store) -> None:
        before = len(all_changes(grown))
        assert grown.put("accounts", rows_now(grown, (*ADA, None, None, None))).rows == 0
        assert grown.put("accounts", rows(ADA)).rows == 0
        assert len(all_changes(grown)) == before
        assert grown.put("accounts", rows_now(grown, (*ADA, "now", None, None))).rows == 1
        assert grown.put("accounts", rows(ADA)).rows == 1

    def test_also_in_batches_that_mix_versions(self, accounts: Store) -> None:
        old = [("x", i, f"o{i}", "1.50") for i in range(100)]
        accounts.put("accounts", rows(*old))
        add(accounts, note="STRING", rank="INT")
        new = [(*row, "n" if i % 3 == 0 else None, None) for i, row in enumerate(old)]
        accounts.put("accounts", rows_now(accounts, *new[:50]))
        report = accounts.put("accounts", rows_now(accounts, *new))
        assert (report.rows, report.unchanged) == (17, 83)
        assert content(accounts) == [(*row[:3], Decimal("1.50"), *row[4:]) for row in new]
        assert accounts.put("accounts", rows_now(accounts, *new)).rows == 0

    def test_observers_see_them_in_images_of_all_versions(self, grown: Store) -> None:
        recorder = Recorder()
        grown.attach("accounts", recorder)
        grown.put("accounts", rows_now(grown, (*ADA, "now", None, None)))
        _, _, before, after = recorder.seen[0]
        assert [(row["owner"], row["note"]) for row in (*before, *after)] == [
            ("ada", None),
            ("ada", "now"),
        ]

    def test_reads_that_have_begun_keep_their_columns(self, accounts: Store) -> None:
        accounts.put("accounts", rows(*[("x", i, "old", None) for i in range(40)]))
        opened = len(content(accounts, region=0))
        scan = accounts.scan("accounts", ordered=False, batch_rows=5)
        changes = accounts.changes("accounts", 0, batch_rows=2)
        first, change = next(scan), next(changes)
        add(accounts, note="STRING")
        accounts.put(
            "accounts", rows_now(accounts, *[("x", i, "new", None, "n") for i in range(60)])
        )
        rest = list(scan)
        assert all(batch.schema.equals(SCHEMA.arrow) for batch in (first, *rest))
        owners = [owner for b in (first, *rest) for owner in b.column("owner").to_pylist()]
        assert owners[:opened] == ["old"] * opened
        assert set(owners[opened:]) == {"new"}, "other regions are read when it is their turn"
        assert all(batch.schema.equals(change.schema) for batch in changes)

    def test_any_number_of_them_can_be_added(self, accounts: Store) -> None:
        accounts.put("accounts", rows(ADA))
        for number in range(1, 21):
            add(accounts, **{f"c{number}": ("INT", "STRING", "BOOLEAN")[number % 3]})
        assert content(accounts) == [(*ADA[:3], TEN, *[None] * 20)]
        accounts.put("accounts", rows_now(accounts, (*BOB, *[None] * 19, True)))
        assert content(accounts, columns=["id", "c20"]) == [(1, None), (2, True)]

    def test_observers_are_attached_and_detached_beside_it(self, accounts: Store) -> None:
        Adder.store = accounts
        accounts.put("accounts", rows(ADA))
        accounts.attach("accounts", f"{__name__}:Adder")
        assert accounts.describe("accounts").names == (*SCHEMA.names, "note")
        accounts.detach("accounts", f"{__name__}:Adder")
        assert accounts.describe("accounts").names == (*SCHEMA.names, "note")
        assert content(accounts) == [(*ADA[:3], TEN, None)]

    @pytest.mark.parametrize(
        ("columns", "says"),
        [
            ([Column("OWNER", pa.string())], "has a column OWNER already"),
            ([Column("note", pa.string(), False)], "leave out NOT NULL"),
            ([Column("note", pa.string()), Column("Note", pa.int32())], "Note appears twice"),
            ([Column("a.b", pa.int32())], "can't be a column name"),
            ([], "name at least one column to add"),
        ],
    )
    def test_what_can_not_be_added_is_told(
        self, accounts: Store, columns: list[Column], says: str
    ) -> None:
        with pytest.raises(InvalidSchema, match=says):
            accounts.add_columns("accounts", columns)
        assert accounts.describe("accounts") == SCHEMA

    def test_a_table_that_is_not_there_is_told(self, accounts: Store) -> None:
        with pytest.raises(TableNotFound, match="did you mean accounts"):
            accounts.add_columns("acounts", [Column("note", pa.string())])


class TestBadUse:
    def test_a_consumer_can_not_acknowledge_what_was_never_written(self, accounts: Store) -> None:
        accounts.register("accounts", "views")
        with pytest.raises(LogError, match="newest is 0"):
            accounts.acknowledge("accounts", "views", {0: 5})

    def test_a_region_that_is_not_there_is_told(self, accounts: Store) -> None:
        with pytest.raises(LogError, match="no region 9"):
            list(accounts.changes("accounts", 9))

    def test_a_read_of_no_columns_is_refused(self, accounts: Store) -> None:
        with pytest.raises(UnknownColumn, match="name at least one column"):
            accounts.scan("accounts", columns=[])

    def test_only_observers_can_be_attached(self, accounts: Store) -> None:
        with pytest.raises(InvalidSchema, match="no observer"):
            accounts.attach("accounts", 5)  # type: ignore[arg-type]

    def test_an_observer_that_writes_to_its_table_is_told_so(self, accounts: Store) -> None:
        class Meddler(Observer):
            def before(self, write: Write) -> None:
                accounts.put("accounts", rows(ADA))

        accounts.attach("accounts", Meddler())
        with pytest.raises(WriteRejected, match="may not write to the table it observes"):
            accounts.put("accounts", rows(ADA))
        assert content(accounts) == []
