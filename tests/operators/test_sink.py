"""A view's rows are the sum of its deltas, and readers see only what is committed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everview.errors import Damaged
from everview.operators.base import MemoryState
from everview.operators.sink import Overtaken, ViewSink
from tests.operators.histories import COLUMNS, Row, delta_of, histories, in_steps, present

EVERYTHING = tuple(column.name for column in COLUMNS)


def rows_at(sink: ViewSink, state: MemoryState, committed: int) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for table in sink.read(iter([list(state.values())]), committed):
        found.update(tuple(row.values()) for row in table.to_pylist())
    return found


@given(history=histories(), step=st.sampled_from([1, 3, 1000]))
def test_rows_are_the_sum_of_the_deltas(history: list[tuple[Row, int]], step: int) -> None:
    sink, state = ViewSink(COLUMNS, EVERYTHING), MemoryState()
    before: Any = Counter()
    epoch = 0
    for epoch, delta in enumerate(in_steps(history, step), 1):
        sink.apply(delta, state, epoch, epoch - 1)
        assert rows_at(sink, state, epoch - 1) == before, "an epoch is seen before it is committed"
        before = rows_at(sink, state, epoch)
        assert before == Counter(present(history[: epoch * step]))


def test_a_keyed_row_is_replaced_at_once() -> None:
    sink, state = ViewSink(COLUMNS, ("g",)), MemoryState()
    old, new = ("a", 1, None, 1), ("a", 1, None, 2)
    sink.apply(delta_of([(old, 1)]), state, 1, 0)
    sink.apply(delta_of([(new, 1), (old, -1)]), state, 2, 1)
    assert rows_at(sink, state, 1) == Counter([old])
    assert rows_at(sink, state, 2) == Counter([new])
    assert len(state) == 1


def test_a_reader_that_was_overtaken_is_told() -> None:
    sink, state = ViewSink(COLUMNS, EVERYTHING), MemoryState()
    sink.apply(delta_of([(("a", 1, None, 1), 1)]), state, 3, 2)
    with pytest.raises(Overtaken):
        rows_at(sink, state, 1)


def test_a_row_that_is_not_there_can_not_go() -> None:
    sink, state = ViewSink(COLUMNS, EVERYTHING), MemoryState()
    with pytest.raises(Damaged, match="negative"):
        sink.apply(delta_of([(("a", 1, None, 1), -1)]), state, 1, 0)
