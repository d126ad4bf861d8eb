"""What every store does with states, leases and pins: the behaviour suite of these contracts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from threading import Event, Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from everview.catalog import EPOCH, EPOCHS, VIEWS, Epoch
from everview.errors import Damaged, Superseded
from everview.schema import TableSchema
from everview.stores.base import RUN, WORK, Shard, Store
from tests.records import a_view

Work = Callable[[Any], pa.Table]


def add(number: int) -> Work:
    """Adds to a value and to a bag, and gives the value that it found."""

    def work(state: Any) -> pa.Table:
        (found,) = state.get_many([b"sum"])
        now = int(found or b"0")
        state.put_many([b"sum"], [b"%d" % (now + number)])
        state.change_bags([b"bag"], [b"row"], [number])
        state.tally.rows_in = number
        return pa.table({"found": [now]})

    return work


def put(key: bytes, number: int, rows_of_slots: list[int] | None = None) -> Work:
    """Sets a value."""

    def work(state: Any) -> pa.Table:
        state.put_many([key], [b"%d" % number])
        state.tally.rows_in = number
        if rows_of_slots is not None:
            state.tally.rows_of_slots = np.array(rows_of_slots)
        return pa.table({"put": [number]})

    return work


@pytest.fixture
def shard(store: Store) -> Shard:
    store.states.create("s", [0, 1])
    return store.states.shard("s", 0)


def test_work_sees_the_epoch_before_and_counts_as_of_its_own(shard: Shard) -> None:
    assert shard.load(1, 1, add(5)).to_pydict() == {"found": [0]}
    assert shard.apply(2, 1, add(10)).to_pydict() == {"found": [5]}
    assert shard.apply(4, 1, add(100)).to_pydict() == {"found": [15]}
    assert shard.get(b"sum") == b"115"
    assert shard.get(b"nothing") == b""
    assert [value for batch in shard.values() for value in batch] == [b"115"]
    bags = [pair for rows, counts in shard.bags() for pair in zip(rows, counts, strict=True)]
    assert {row for row, _ in bags} == {b"row"}
    assert sum(count for _, count in bags) == 115, "perhaps in parts"
    assert shard.size()[0] >= 2


def test_values_are_had_by_what_their_keys_begin_with(store: Store, shard: Shard) -> None:
    keys = [
        b"\0",
        b"a",
        b"ab",
        b"ab" + b"c" * 600,
        b"ab" + b"c" * 600 + b"d",
        b"b",
        b"b\xff",
        b"\xff",
    ]

    def put(state: Any) -> pa.Table:
        state.put_many(keys, [key[:9] for key in keys])
        return pa.table({})

    for number in (0, 1):  # beside a neighbour
        store.states.shard("s", number).load(1, 1, put)
    for prefix in (b"", b"a", b"ab", b"abc", b"b", b"b\xff", b"\xff", b"c", b"ab" + b"c" * 300):
        found = [value for batch in shard.values(prefix) for value in batch]
        assert sorted(found) == sorted(key[:9] for key in keys if key.startswith(prefix)), prefix


def test_whatever_an_earlier_attempt_wrote_the_outcome_is_the_same(shard: Shard) -> None:
    shard.load(1, 1, add(5))
    for _ in range(3):
        assert shard.apply(2, 1, add(10)).to_pydict() == {"found": [5]}
        assert shard.get(b"sum") == b"15"
    for _ in range(2):
        assert shard.apply(3, 2, add(1)).to_pydict() == {"found": [15]}
    assert shard.get(b"sum") == b"16"
    assert [work.epoch for work in shard.work().epochs] == [2, 3], "each counts once"


def test_parts_of_an_epoch_count_once_each(shard: Shard) -> None:
    """The work of some slots is that of keys which no other slot has."""
    shard.load(1, 1, add(5))
    even, odd = (0, 2, 4), (1, 3)
    for token in (1, 1, 2):
        assert shard.apply(2, token, put(b"even", 2), None, even).to_pydict() == {"put": [2]}
        assert shard.apply(2, token, put(b"odd", 3), None, odd).to_pydict() == {"put": [3]}
    assert (shard.get(b"even"), shard.get(b"odd"), shard.get(b"sum")) == (b"2", b"3", b"5")
    outputs = [shard.output(2, slots) for slots in (even, odd)]
    assert [output.to_pydict() for output in outputs if output is not None] == [
        {"put": [2]},
        {"put": [3]},
    ]
    (work,) = shard.work().epochs
    assert (work.epoch, work.rows_in) == (2, 5), "one record for the epoch"
    other = (0, 1)
    assert shard.apply(3, 2, put(b"even", 7), None, other).to_pydict() == {"put": [7]}
    assert shard.output(3, (2, 3)) is None, "that part had nothing to do"
    assert shard.apply(4, 2, add(1)).to_pydict() == {"found": [5]}
    with pytest.raises(Superseded):
        shard.apply(3, 2, put(b"odd", 9), None, (2, 3))
    whole = shard.output(4)
    assert whole is not None
    assert whole.to_pydict() == {"found": [5]}


def test_rows_of_slots_are_counted_part_by_part(shard: Shard) -> None:
    assert shard.work().rows_of_slots == ()
    shard.apply(2, 1, put(b"a", 1, [4, 3, 2, 1]))
    assert shard.work().rows_of_slots == (4, 3, 2, 1)
    shard.apply(3, 1, put(b"a", 1, [9, 0, 9, 0]), None, (0, 2))
    assert shard.work().rows_of_slots == (9, 3, 9, 1)
    shard.apply(3, 1, put(b"b", 1, [0, 8, 0, 8]), None, (1, 3))
    assert shard.work().rows_of_slots == (9, 8, 9, 8)
    assert [part[0] for part in shard.work().parts] == [0, 1]
    shard.apply(4, 1, put(b"b", 1))
    assert shard.work().rows_of_slots == (9, 8, 9, 8), "as they were counted last"


def test_the_log_has_all_parts_of_an_epoch(shard: Shard) -> None:
    def logs(number: int) -> Work:
        def work(state: Any) -> pa.Table:
            state.log = pa.table({"n": [number]})
            return pa.table({})

        return work

    shard.apply(2, 1, logs(2), 1)
    for _ in range(2):
        for slots in ((0, 2), (1,), (11,)):
            shard.apply(3, 1, logs(slots[0]), 1, slots)
    shard.apply(10, 1, logs(10), 1)

    def log(after: int, upto: int) -> list[tuple[int, int]]:
        tables = shard.log(after, upto)
        return sorted((epoch, n) for epoch, table in tables for n in table["n"].to_pylist())

    assert log(1, 10) == [(2, 2), (3, 0), (3, 1), (3, 11), (10, 10)]
    assert log(2, 3) == [(3, 0), (3, 1), (3, 11)]
    shard.apply(11, 1, logs(11), 3)
    assert log(0, 99) == [(10, 10), (11, 11)]
    shard.apply(12, 1, logs(12), None, (5,))
    assert log(0, 99) == []


def test_an_attempt_that_fails_leaves_nothing(shard: Shard) -> None:
    shard.load(1, 1, add(5))

    def fails(state: Any) -> pa.Table:
        add(7)(state)
        raise KeyError("in the middle")

    with pytest.raises(KeyError):
        shard.apply(2, 1, fails)
    assert shard.get(b"sum") == b"5"
    assert shard.apply(2, 1, add(1)).to_pydict() == {"found": [5]}


def test_a_load_may_be_done_again_until_an_epoch_follows(shard: Shard) -> None:
    shard.load(3, 1, add(5))
    shard.load(3, 1, add(6))
    assert shard.get(b"sum") == b"6"
    shard.apply(4, 1, add(1))
    with pytest.raises(Superseded):
        shard.load(3, 1, add(1))
    with pytest.raises(Superseded):
        shard.apply(3, 1, add(1))
    assert shard.get(b"sum") == b"7"


def test_an_older_token_writes_nothing(store: Store, shard: Shard) -> None:
    shard.load(1, 1, add(5))
    assert store.states.fence(["s"], 2) == {"s": "s"}
    for write in (shard.apply, shard.load):
        with pytest.raises(Superseded):
            write(2, 1, add(1))
    assert shard.apply(2, 2, add(1)).to_pydict() == {"found": [5]}


def test_an_output_is_had_as_long_as_its_epoch_is_the_last(shard: Shard) -> None:
    shard.load(1, 1, add(5))
    shard.apply(2, 1, add(1))
    output = shard.output(2)
    assert output is not None
    assert output.to_pydict() == {"found": [5]}
    assert shard.output(3) is None
    shard.apply(3, 1, add(1))
    with pytest.raises(Superseded):
        shard.output(2)


def test_an_output_is_handed_on_without_state(store: Store, shard: Shard) -> None:
    other = store.states.shard("s", 1)
    other.hand(1, 1, pa.table({"x": [1, None]}))
    output = other.output(1)
    assert output is not None
    assert output.to_pydict() == {"x": [1, None]}
    assert list(other.values()) == []


def test_tasks_note_their_end_once_for_an_epoch_and_token(shard: Shard) -> None:
    assert shard.ended_tasks(2, 1) == 0
    for task in (0, 3, 0):
        shard.note_end(2, 1, task)
    assert shard.ended_tasks(2, 1) == 2
    assert (shard.ended_tasks(2, 2), shard.ended_tasks(3, 1)) == (0, 0)
    shard.note_end(3, 1, 7)
    assert (shard.ended_tasks(2, 1), shard.ended_tasks(3, 1)) == (0, 1)


def test_a_shard_says_at_which_epoch_it_is(store: Store, shard: Shard) -> None:
    assert not shard.is_at(1)
    shard.load(1, 1, add(1))
    assert shard.is_at(1)
    shard.apply(2, 1, add(1))
    assert not shard.is_at(1)
    assert shard.is_at(2)
    store.states.create("place", [0])
    place = store.states.shard("place", 0)
    place.hand(3, 1, pa.table({"n": [1]}))
    assert place.is_at(3)


def test_the_newest_note_of_rows_counts(shard: Shard) -> None:
    assert shard.noted_rows() == {}
    shard.note_rows(1, "a 0", 5)
    shard.note_rows(1, "a 1", 7)
    shard.note_rows(2, "a 0", 9)
    assert shard.noted_rows() == {"a 0": 9, "a 1": 7}
    with pytest.raises(Superseded):
        shard.note_rows(1, "a 0", 10)
    assert shard.noted_rows() == {"a 0": 9, "a 1": 7}


def test_states_are_listed_and_dropped(store: Store, shard: Shard) -> None:
    store.states.create("other", [4])
    assert sorted(store.states.names()) == ["other", "s"]
    store.states.drop("s")
    store.states.drop("s")
    assert store.states.names() == ["other"]
    with pytest.raises(Damaged, match="gone"):
        store.states.shard("s", 0).get(b"sum")
    assert not store.states.is_suspect


def test_what_a_crash_may_cost_is_noted_and_settled(store: Store, shard: Shard) -> None:
    with store.leases.hold(WORK, 10.0, lambda holder: None) as token:
        store.states.begin(token)
        shard.load(1, token, add(1))
        assert not store.states.is_suspect
        store.states.settle(token)
    assert not store.states.is_suspect


def test_one_holds_the_lease_of_a_role_and_others_wait(store: Store) -> None:
    got, go = Event(), Event()
    told: list[str] = []

    def second() -> None:
        with store.leases.hold(WORK, 60.0, told.append):
            got.set()

    with store.leases.hold(WORK, 60.0, told.append) as token:
        assert token == store.leases.token
        waits = Thread(target=second)
        waits.start()
        while not store.leases.is_wanted(WORK):
            go.wait(0.01)
        assert not got.is_set()
        with store.leases.hold(RUN, 60.0, told.append) as other:
            assert other == token
        with store.leases.hold_if_free(WORK) as none:
            assert none is None
    assert got.wait(10)
    waits.join()
    with store.leases.hold_if_free(WORK) as free:
        assert free == token
    assert store.leases.is_fenced


def test_a_pin_repeats_what_it_reads_whatever_is_written(store: Store) -> None:
    store.create_table(TableSchema.of("t", {"id": "INT"}, "id", regions=1))
    schema = store.describe("t")
    store.put("t", pa.table({"id": [1, 2]}, schema.arrow))
    store.states.create("rows", [0])
    store.states.shard("rows", 0).load(1, 1, add(1))
    view = a_view(states={"view": "rows"}, status="live")
    store.catalog.write({VIEWS["v"]: view, EPOCH: Epoch(1, {"t": {0: 1}})})
    with closing(store.pins.pin()) as pin:
        store.put("t", pa.table({"id": [3]}, schema.arrow))
        store.states.shard("rows", 0).apply(2, 1, add(1))
        store.catalog.write({VIEWS["v"]: None, EPOCH: Epoch(2, {"t": {0: 3}})})
        ids = [row["id"] for batch in pin.scan("t") for row in batch.to_pylist()]
        assert ids == [1], "as of the epoch, not as of when it was pinned"
        assert pin.get_row("t", 2) is None
        assert pin.catalog.get(EPOCH) == Epoch(1, {"t": {0: 1}})
        assert pin.catalog.all(VIEWS) == {VIEWS["v"]: view}
        assert pin.states.shard("rows", 0).get(b"sum") == b"1"
        assert pin.positions == {"t": {0: 1}}
        assert pin.address == store.address


def test_pins_are_seen_by_others_until_they_are_taken_back(store: Store) -> None:
    first = store.pins.note(3, None)
    store.pins.note(4, 60.0)
    assert [(note.epoch, note.max_age) for note in store.pins.notes()] == [(3, None), (4, 60.0)]
    first()
    assert [note.epoch for note in store.pins.notes()] == [4]


def two_groups(store: Store) -> None:
    """A view in each of two groups; both read table t, and the group hour is a row behind."""
    for name in ("t", "u"):
        store.create_table(TableSchema.of(name, {"id": "INT"}, "id", regions=1))
        schema = store.describe(name)
        for number in range(3):
            store.put(name, pa.table({"id": [number]}, schema.arrow))
    for state in ("a", "b"):
        store.states.create(state, [0])
    store.catalog.write(
        {
            VIEWS["a"]: a_view("a", states={"view": "a"}, status="live"),
            VIEWS["b"]: a_view("b", states={"view": "b"}, status="live", group="hour"),
            EPOCH: Epoch(7, {"t": {0: 2}}),
            EPOCHS["hour"]: Epoch(3, {"t": {0: 1}, "u": {0: 2}}),
        }
    )


@pytest.mark.parametrize(
    ("views", "tables", "order", "positions"),
    [
        (None, None, ["", "hour"], {"t": {0: 2}, "u": {0: 2}}),
        (["a"], ["t", "u"], ["", "hour"], {"t": {0: 2}, "u": {0: 2}}),
        (["b"], ["t", "u"], ["hour", ""], {"t": {0: 1}, "u": {0: 2}}),
        ([], ["t"], ["", "hour"], {"t": {0: 2}}),
        (["b"], [], ["hour", ""], {}),
    ],
)
def test_a_pin_has_tables_as_of_the_groups_of_its_views_first(
    store: Store, views: Any, tables: Any, order: Any, positions: Any
) -> None:
    two_groups(store)
    with closing(store.pins.pin(views, tables)) as pin:
        assert pin.catalog.order == order
        assert pin.positions == positions
        assert pin.catalog.epoch_of("hour").number == 3
        for table, at in positions.items():
            assert sum(batch.num_rows for batch in pin.scan(table)) == at[0]


def test_a_pin_has_all_groups_as_of_one_moment(store: Store) -> None:
    """Whoever commits the epochs of two groups one after the other is never seen in between."""
    two_groups(store)
    ended = Event()

    def commit() -> None:
        number = 7
        while not ended.is_set():
            number += 1
            store.catalog.write({EPOCHS["hour"]: Epoch(number - 4, {"t": {0: 1}})})
            store.catalog.write({EPOCH: Epoch(number, {"t": {0: 2}})})

    commits = Thread(target=commit)
    commits.start()
    try:
        seen = set()
        while len(seen) < 20:
            with closing(store.pins.pin()) as pin:
                apart = pin.catalog.epoch.number - pin.catalog.epoch_of("hour").number
                assert apart in (3, 4)
                seen.add(pin.catalog.epoch.number)
    finally:
        ended.set()
        commits.join()
