"""The first rows of each group equal those of sorting its rows, however changes are batched."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from everview.errors import Damaged
from everview.plan.nodes import Order, TopKByGroup
from tests.operators.conftest import Maintain
from tests.operators.histories import LONG, STEPS, History, Row, gone, histories, in_steps, prefixes
from tests.operators.test_topk import ORDERS, UP, cases, recomputed, top


def node_of(kind: str, order: tuple[Order, ...], limit: int, offset: int) -> TopKByGroup:
    of_all = top(kind, order, limit)
    return TopKByGroup(of_all.columns, of_all.input, ("b",), order, limit, offset)


def of_each(node: TopKByGroup, rows: list[Row]) -> Counter[Row]:
    """The first rows of the rows of each group, less those before the offset."""
    found: Counter[Row] = Counter()
    for group in {row[1] for row in rows}:
        own = [row for row in rows if row[1] == group]
        upto = replace(top("INT", node.order, node.offset + node.limit), columns=node.columns)
        found += recomputed(upto, own) - recomputed(replace(upto, limit=node.offset), own)
    return found


def check(maintain: Maintain, node: TopKByGroup, history: History, step: int) -> None:
    columns = node.columns
    views, left = maintain(
        node, in_steps(history, step, columns) + in_steps(gone(history), 1000, columns)
    )
    for view, rows in zip(views, prefixes(history, step), strict=False):
        assert view == of_each(node, rows)
    assert not any(views[-1:]), "rows that are gone are still shown"
    assert left == 0, "rows that are gone have left state behind"


@settings(max_examples=100)
@given(
    case=cases(),
    order=ORDERS,
    limit=st.sampled_from([1, 2, 1000]),
    offset=st.integers(0, 2),
    step=STEPS,
)
@example(case=("INT", [((1, 1, "s"), 3), ((0, 2, "s"), 1)]), order=UP, limit=2, offset=1, step=1)
def test_the_first_rows_of_each_group_are_those_of_sorting_its_rows(
    maintain: Maintain,
    case: tuple[str, History],
    order: tuple[Order, ...],
    limit: int,
    offset: int,
    step: int,
) -> None:
    kind, history = case
    check(maintain, node_of(kind, order, limit, offset), history, step)


@settings(max_examples=40)
@given(
    descending=st.booleans(),
    history=histories(
        st.tuples(
            st.sampled_from([LONG, LONG + "\0", LONG + "a", LONG + "ab", LONG[:-1]]),
            st.sampled_from([1, None]),
            st.sampled_from(["s", "t"]),
        )
    ),
    step=STEPS,
)
def test_long_strings_are_in_order_however_much_of_them_agrees(
    maintain: Maintain, descending: bool, history: History, step: int
) -> None:
    check(maintain, node_of("STRING", (Order("a", descending, False),), 2, 0), history, step)


def test_a_row_that_is_not_there_can_not_go(maintain: Maintain) -> None:
    node = node_of("INT", UP, 2, 0)
    with pytest.raises(Damaged, match="negative number of times"):
        maintain(node, in_steps([((1, 1, "s"), 1), ((2, 1, "s"), -1)], 1, node.columns))
