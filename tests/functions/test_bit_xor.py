"""bit_xor equals recomputation, however the changes are batched."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from operator import xor
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from everview.operators.aggregate import AggregateOperator
from everview.operators.base import MemoryState
from everview.plan.nodes import Aggregate, Call, Source
from everview.schema import Column
from tests.operators.histories import (
    STEPS,
    History,
    Row,
    batched,
    counted,
    delta_of,
    gone,
    histories,
    prefixes,
)

TYPES = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}


def node_of(arrow: pa.DataType) -> Aggregate:
    source = Source((Column("g", pa.string()), Column("n", arrow)), "t", ("g", "n"))
    calls = (Call("bit_xor", "n"), Call("bit_xor", "n", True), Call("count", "n"))
    columns = (Column("x", arrow), Column("once", arrow), Column("c", pa.int64()))
    return Aggregate((source.columns[0], *columns), source, ("g",), calls)


def recomputed(rows: list[Row]) -> Counter[Row]:
    groups: dict[Any, list[int]] = {}
    for group, value in rows:
        groups.setdefault(group, []).extend([] if value is None else [value])
    return Counter((group, _xor(v), _xor(list(set(v))), len(v)) for group, v in groups.items())


def _xor(values: list[int]) -> int | None:
    return reduce(xor, values) if values else None


@settings(max_examples=60)
@given(data=st.data(), arrow=st.sampled_from(list(TYPES)), step=STEPS)
def test_it_equals_recomputation_however_changes_are_batched(
    data: st.DataObject, arrow: pa.DataType, step: int
) -> None:
    top = 2 ** TYPES[arrow]
    numbers = st.sampled_from([-top, -1, 0, 1, top - 1]) | st.integers(-top, top - 1)
    history = data.draw(histories(st.tuples(st.sampled_from(["a", None]), st.none() | numbers)))
    check(history, arrow, step)


@pytest.mark.parametrize("step", [1, 1000])
def test_a_value_that_comes_three_times_and_goes_once_is_not_there(step: int) -> None:
    check([(("a", 5), 3), (("a", 5), -1), (("a", 6), 1), (("b", None), 1)], pa.int32(), step)


def check(history: History, arrow: pa.DataType, step: int) -> None:
    node, state, view = node_of(arrow), MemoryState(), Counter[Row]()
    for changes, rows in zip(batched(history, step), prefixes(history, step), strict=True):
        view.update(
            counted(AggregateOperator(node).apply([delta_of(changes, node.input.columns)], state))
        )
        assert +view == recomputed(rows)
        assert not -view
    for changes in batched(gone(history), 1000):
        AggregateOperator(node).apply([delta_of(changes, node.input.columns)], state)
    assert len(state) == 0


@given(history=histories(st.tuples(st.just("a"), st.none() | st.integers(-9, 9))))
@example(history=[(("a", 7), 1), (("a", 7), 2)])
def test_partial_results_give_what_the_rows_give(history: History) -> None:
    node = node_of(pa.int64())
    plain = Aggregate((*node.columns[:2], node.columns[3]), node.input, ("g",), node.calls[::2])
    operator = AggregateOperator(plain)
    parts = [
        operator.partial(delta_of(changes, node.input.columns)) for changes in batched(history, 2)
    ]
    if parts:
        found, rows = MemoryState(), MemoryState()
        given_ = operator.apply([pa.concat_tables(parts)], found)
        expected = operator.apply([delta_of(history, node.input.columns)], rows)
        assert counted(given_) == counted(expected)
        assert found.values == rows.values
