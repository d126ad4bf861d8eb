"""The first rows in an order equal those of sorting all rows, however changes are batched."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from everview.errors import Damaged
from everview.operators.bags import BagRows
from everview.plan.nodes import Order, Source, TopK
from everview.schema import Column, arrow_type
from tests.operators.conftest import Maintain
from tests.operators.histories import (
    FEW,
    LONG,
    STEPS,
    History,
    Row,
    delta_of,
    gone,
    histories,
    in_steps,
    plain,
    prefixes,
)
from tests.values import order_of

NAMES = ("a", "b", "c")
ORDERS = st.lists(
    st.builds(Order, st.sampled_from(NAMES), st.booleans(), st.booleans()),
    max_size=3,
    unique_by=lambda order: order.column,
).map(tuple)
UP = (Order("a", False, True),)
DOWN = (Order("a", True, False),)


def top(kind: str, order: tuple[Order, ...], limit: int) -> TopK:
    """The first column is of the kind; the others are an integer and a string."""
    types = (arrow_type(kind), pa.int32(), pa.string())
    columns = tuple(Column(name, arrow) for name, arrow in zip(NAMES, types, strict=True))
    return TopK(columns, Source(columns, "t", NAMES), order, limit)


def recomputed(node: TopK, rows: list[Row]) -> Counter[Row]:
    """The rows sorted by their bytes, then by the last column of the order up to the first."""
    stored = BagRows(node.columns).encode(delta_of([(row, 1) for row in rows], node.columns))
    rows = [rows[i] for i in pc.array_sort_indices(stored).to_pylist()]
    for order in reversed(node.order):
        place = node.names().index(order.column)
        rows.sort(key=lambda row, i=place, by=order: rank(row[i], by), reverse=order.descending)
    return Counter(map(plain, rows[: node.limit]))


def rank(value: Any, order: Order) -> tuple[Any, ...]:
    if value is None:
        return (0,) if order.nulls_first != order.descending else (2,)
    return (1, order_of(value))


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, History]:
    kind = draw(st.sampled_from(list(FEW)))
    few = draw(st.lists(st.sampled_from(FEW[kind]), min_size=1))
    strings = st.sampled_from(["", "s", None, LONG, LONG + "a"])
    row = st.tuples(st.sampled_from([*few, None]), st.sampled_from([1, 2, None]), strings)
    return kind, draw(histories(row))


def check(maintain: Maintain, node: TopK, history: History, step: int) -> None:
    columns = node.columns
    views, left = maintain(
        node, in_steps(history, step, columns) + in_steps(gone(history), 1000, columns)
    )
    for view, rows in zip(views, prefixes(history, step), strict=False):
        assert view == recomputed(node, rows)
    assert not any(views[-1:]), "rows that are gone are still shown"
    assert left == 0, "rows that are gone have left state behind"


@given(case=cases(), order=ORDERS, limit=st.sampled_from([0, 1, 2, 5, 1000]), step=STEPS)
@example(case=("INT", [((1, 1, "s"), 3), ((0, 1, "s"), 1)]), order=UP, limit=3, step=1)
@example(case=("INT", [((None, 1, "s"), 1), ((0, 1, "s"), 1)]), order=DOWN, limit=1, step=1)
@example(case=("INT", [((1, 1, "s"), 1), ((1, 1, "s"), 2)]), order=UP, limit=2, step=1)
def test_the_first_rows_are_those_of_sorting_however_changes_are_batched(
    maintain: Maintain, case: tuple[str, History], order: tuple[Order, ...], limit: int, step: int
) -> None:
    kind, history = case
    check(maintain, top(kind, order, limit), history, step)


@settings(max_examples=60)
@given(
    descending=st.booleans(),
    history=histories(
        st.tuples(
            st.sampled_from([LONG, LONG + "\0", LONG + "a", LONG + "ab", LONG + "b", LONG[:-1]]),
            st.sampled_from([1, 2, None]),
            st.sampled_from(["s", "t"]),
        )
    ),
    limit=st.integers(1, 4),
    step=STEPS,
)
def test_long_strings_are_in_order_however_much_of_them_agrees(
    maintain: Maintain, descending: bool, history: History, limit: int, step: int
) -> None:
    order = (Order("a", descending, False), Order("b", not descending, True))
    check(maintain, top("STRING", order, limit), history, step)


@given(
    case=cases(),
    order=ORDERS,
    limit=st.sampled_from([0, 1, 2, 5]),
    offset=st.integers(0, 2),
    step=STEPS,
)
@example(case=("INT", [((1, 1, "s"), 3), ((0, 1, "s"), 1)]), order=UP, limit=2, offset=1, step=1)
@example(case=("INT", [((1, 1, LONG), 1), ((1, 1, "s"), 1)]), order=(), limit=1, offset=0, step=1)
def test_of_rows_that_stay_only_the_first_are_kept(
    maintain: Maintain,
    case: tuple[str, History],
    order: tuple[Order, ...],
    limit: int,
    offset: int,
    step: int,
) -> None:
    kind, history = case
    history = [(row, abs(weight)) for row, weight in history]
    node = replace(top(kind, order, limit), offset=offset)
    wanted, _ = maintain(node, in_steps(history, step, node.columns))
    views, left = maintain(replace(node, growing=True), in_steps(history, step, node.columns))
    assert views == wanted
    assert left <= limit + offset


def test_a_row_of_those_that_stay_can_not_go(maintain: Maintain) -> None:
    node = replace(top("INT", UP, 2), growing=True)
    with pytest.raises(Damaged, match="none ever goes"):
        maintain(node, in_steps([((1, 1, "s"), 1), ((1, 1, "s"), -1)], 1, node.columns))


@pytest.mark.parametrize("order", [UP, ()])
def test_rows_that_tie_are_the_same_whichever_came_first(
    maintain: Maintain, order: tuple[Order, ...]
) -> None:
    # words in another order: the rows' checksums are equal, and so is all that fits LMDB's values
    words = [LONG + "abcdefgh" * i + "ABCDEFGH" + "abcdefgh" * (5 - i) for i in range(6)]
    history = [((1, 1, word), 1) for word in words]
    node = top("INT", order, 2)
    found = [
        maintain(node, in_steps(made, step, node.columns))[0][-1]
        for made in (history, history[::-1])
        for step in (1, 2, 6)
    ]
    assert sum(found[0].values()) == 2
    assert found == [found[0]] * 6


def test_a_row_that_is_not_there_can_not_go(maintain: Maintain) -> None:
    node = top("INT", UP, 2)
    with pytest.raises(Damaged, match="negative number of times"):
        maintain(node, in_steps([((1, 1, "s"), 1), ((2, 1, "s"), -1)], 1, node.columns))
