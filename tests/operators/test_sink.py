"""A view's rows are the sum of its deltas, and readers see only what is committed."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from everview.errors import Damaged
from everview.operators import sink
from everview.operators.sink import ViewSink
from everview.state import State
from everview.stores.embedded.shard import EmbeddedShard
from tests.operators.conftest import MemoryShard, empty
from tests.operators.histories import (
    COLUMNS,
    STEPS,
    History,
    Row,
    counted,
    delta_of,
    histories,
    in_steps,
    plain,
    prefixes,
)

EVERYTHING = tuple(column.name for column in COLUMNS)
NAMES = st.sampled_from("ab")
PASSING = st.lists(st.tuples(NAMES, st.integers(0, 2)), max_size=2)


class View:
    """A sink over a shard that is empty at first."""

    def __init__(
        self, shard: EmbeddedShard | MemoryShard, key: tuple[str, ...] = EVERYTHING
    ) -> None:
        self._sink = ViewSink(COLUMNS, key)
        self._shard = shard
        empty(shard)

    def apply(self, delta: pa.Table, epoch: int, slots: tuple[int, ...] | None = None) -> int:
        """How many keys the delta touched."""

        def work(state: State) -> pa.Table:
            touched = self._sink.apply(delta, state, epoch, epoch - 1)
            return pa.table({"touched": [len(touched.after)]})

        output = self._shard.apply(epoch, 1, work, None, slots)
        return int(output["touched"][0].as_py())

    def rows(self, committed: int) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for table in self._sink.read(self._shard.values(), committed):
            found.update(plain(row.values()) for row in table.to_pylist())
        return found

    def __len__(self) -> int:
        return self._shard.size()[0]


@settings(max_examples=50)
@given(history=histories(), step=STEPS)
def test_rows_are_the_sum_of_the_deltas(
    shard: EmbeddedShard | MemoryShard, history: History, step: int
) -> None:
    view = View(shard)
    before: Counter[Row] = Counter()
    steps = zip(in_steps(history, step), prefixes(history, step), strict=True)
    for epoch, ((delta,), rows) in enumerate(steps, 1):
        changed = [row for row, weight in counted(delta).items() if weight]
        assert view.apply(delta, epoch) == len(changed)
        assert view.rows(epoch - 1) == before, "an epoch is seen before it is committed"
        before = view.rows(epoch)
        assert before == Counter(map(plain, rows))


def test_a_keyed_row_is_replaced_at_once(shard: EmbeddedShard | MemoryShard) -> None:
    view = View(shard, ("g",))
    old, new = ("a", 1, None, 1), ("a", 1, None, 2)
    view.apply(delta_of([(old, 1)]), 1)
    assert view.apply(delta_of([(new, 1), (old, -1)]), 2) == 1
    assert view.rows(1) == Counter([old])
    assert view.rows(2) == Counter([new])
    assert len(view) == 1


@settings(max_examples=50)
@given(
    steps=st.lists(st.tuples(st.dictionaries(NAMES, st.integers(0, 2) | st.none()), PASSING)),
    order=st.randoms(use_true_random=False),
)
@example(steps=[({"a": 0}, []), ({}, [("a", 1)])], order=random.Random(0))
@example(steps=[({"a": 0}, []), ({"a": 1}, [("a", 2)])], order=random.Random(0))
def test_a_key_shows_the_row_that_stays_and_none_that_only_passes(
    shard: EmbeddedShard | MemoryShard,
    steps: list[tuple[dict[str, int | None], list[tuple[str, int]]]],
    order: random.Random,
) -> None:
    view = View(shard, ("g",))
    there: dict[str, Row] = {}
    for epoch, (moves, passing) in enumerate(steps, 1):
        changes = [((g, 1, None, n), weight) for g, n in passing for weight in (1, -1)]
        for g, n in moves.items():
            changes += [(there.pop(g), -1)] if g in there else []
            if n is not None:
                there[g] = (g, 1, None, n)
                changes.append((there[g], 1))
        order.shuffle(changes)
        view.apply(delta_of(changes), epoch)
        assert view.rows(epoch) == Counter(there.values())


def test_a_row_of_an_epoch_that_can_not_be_there_yet_is_damage(
    shard: EmbeddedShard | MemoryShard,
) -> None:
    view = View(shard)
    view.apply(delta_of([(("a", 1, None, 1), 1)]), 3)
    with pytest.raises(Damaged, match="of epoch 3, but only 1 is committed"):
        view.rows(1)


def test_parts_of_an_epoch_leave_what_readers_still_see(
    shard: EmbeddedShard | MemoryShard,
) -> None:
    """A row that one part takes away is there until the epoch is committed, whatever other parts of
    the same shard do."""
    view = View(shard)
    rows = [("a", number, None, 1) for number in range(6)]
    view.apply(delta_of([(row, 1) for row in rows]), 1)
    before = view.rows(1)
    for slots, gone in (((0, 2), rows[:2]), ((1,), rows[2:4]), ((3,), rows[4:5])):
        view.apply(delta_of([(row, -1) for row in gone]), 2, slots)
        assert view.rows(1) == before, "the epoch is not committed yet"
    assert sum(view.rows(2).values()) == 1
    view.apply(delta_of([(rows[0], 1)]), 3)
    assert sum(view.rows(2).values()) == 1
    assert sum(view.rows(3).values()) == 2
    view.apply(delta_of([(rows[1], 1)]), 4)
    assert len(view) == 3, "keys that went are removed"


def test_keys_that_an_earlier_version_noted_are_removed(
    shard: EmbeddedShard | MemoryShard,
) -> None:
    view = View(shard)
    row = ("a", 1, None, 1)
    view.apply(delta_of([(row, 1)]), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink, "_note", lambda keys, epoch: keys[0])
        view.apply(delta_of([(row, -1)]), 2)
    view.apply(delta_of([(("b", 2, None, 1), 1)]), 3)
    assert len(view) == 1


def test_rows_that_went_leave_nothing_behind(shard: EmbeddedShard | MemoryShard) -> None:
    view = View(shard, ("g",))
    rows: list[Row] = [(name, 1, None, 1) for name in ("a", "b", "c", "d" * 700)]
    view.apply(delta_of([(row, 1) for row in rows]), 1)
    view.apply(delta_of([(row, -1) for row in rows]), 2)
    assert view.rows(1) == Counter(rows)
    assert view.rows(2) == Counter()
    view.apply(delta_of([(rows[0], 1)]), 3)
    assert view.rows(3) == Counter(rows[:1])
    view.apply(delta_of([(rows[0], -1)]), 4)
    view.apply(delta_of([(rows[1], 1)]), 5)
    assert view.rows(5) == Counter(rows[1:2])
    assert len(view) == 1


def test_a_row_that_is_not_there_can_not_go(shard: EmbeddedShard | MemoryShard) -> None:
    with pytest.raises(Damaged, match="negative"):
        View(shard).apply(delta_of([(("a", 1, None, 1), -1)]), 1)
