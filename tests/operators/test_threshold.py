"""Comparisons with a scalar that moves equal recomputation, however changes are batched."""

from __future__ import annotations

import operator
from collections import Counter
from itertools import pairwise, product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from everview.errors import Damaged, SqlError
from everview.plan.nodes import Source, Threshold
from everview.schema import Column, arrow_type
from tests.operators.conftest import Maintain
from tests.operators.histories import (
    FEW,
    LONG,
    NAN,
    STEPS,
    History,
    Row,
    batched,
    delta_of,
    gone,
    histories,
    plain,
    prefixes,
)
from tests.values import order_of

COMPARISONS: dict[str, Any] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ABSENT = object()  # a scalar of no row, which is another thing than a row of NULL
Moves = list[tuple[int, Any]]
every_comparison = pytest.mark.parametrize("comparison", list(COMPARISONS))


def threshold(kind: str, comparison: str) -> Threshold:
    columns = (Column("v", arrow_type(kind)), Column("s", pa.string()))
    scalar = Source((Column("limit", arrow_type(kind)),), "u", ("limit",))
    return Threshold(columns, Source(columns, "t", ("v", "s")), scalar, "v", comparison)


def recomputed(node: Threshold, rows: list[Row], scalar: Any) -> Counter[Row]:
    if scalar is None or scalar is ABSENT:
        return Counter()
    compare = COMPARISONS[node.comparison]
    return Counter(
        plain(row)
        for row in rows
        if row[0] is not None and compare(order_of(row[0]), order_of(scalar))
    )


@st.composite
def cases(draw: st.DrawFn, kind: str) -> tuple[History, Moves]:
    """A history of rows, and what the scalar becomes before which of its changes."""
    few = draw(st.lists(st.sampled_from(FEW[kind]), min_size=1))
    payloads = st.sampled_from(["", "s", None, LONG, LONG + "t"])
    history = draw(histories(st.tuples(st.sampled_from([*few, None]), payloads)))
    places = st.integers(0, len(history))
    scalars = st.sampled_from([*few, *FEW[kind], None, ABSENT])
    moves = draw(st.lists(st.tuples(places, scalars), max_size=8))
    return history, sorted(moves, key=lambda move: move[0])


def inputs(node: Threshold, changes: History, scalars: list[Any]) -> list[pa.Table]:
    """The deltas of a step in which the scalar goes from the first to the last of its values."""
    moved: History = []
    for before, after in pairwise(scalars):
        moved += [
            ((value,), weight)
            for value, weight in ((before, -1), (after, 1))
            if value is not ABSENT
        ]
    return [delta_of(changes, node.columns), delta_of(moved, node.scalar.columns)]


def check(maintain: Maintain, node: Threshold, history: History, moves: Moves, step: int) -> None:
    """The view is right after each step, and when rows and scalar are gone no state is left."""
    steps, seen = [], [ABSENT]
    expected = []
    for i, (changes, rows) in enumerate(
        zip(batched(history, step), prefixes(history, step), strict=True)
    ):
        moved = [value for place, value in moves if i * step <= place < (i + 1) * step]
        steps.append(inputs(node, changes, [seen[-1], *moved]))
        seen.append(moved[-1] if moved else seen[-1])
        expected.append(recomputed(node, rows, seen[-1]))
    steps.append(inputs(node, gone(history), [seen[-1], ABSENT]))
    views, left = maintain(node, steps)
    assert views == [*expected, Counter()]
    assert left == 0, "rows that are gone have left state behind"


@every_comparison
@settings(max_examples=40)
@given(
    case=st.sampled_from(list(FEW)).flatmap(lambda k: st.tuples(st.just(k), cases(k))), step=STEPS
)
@example(case=("DOUBLE", ([((NAN, "s"), 1), ((-0.0, "s"), 1)], [(0, 0.0), (1, NAN)])), step=1)
def test_a_threshold_equals_recomputation_however_changes_are_batched(
    maintain: Maintain, comparison: str, case: tuple[str, tuple[History, Moves]], step: int
) -> None:
    kind, (history, moves) = case
    check(maintain, threshold(kind, comparison), history, moves, step)


@every_comparison
def test_a_long_scalar_may_move_however_little(maintain: Maintain, comparison: str) -> None:
    agreeing = [LONG[:-1], LONG, LONG + "\0", LONG + "a", LONG + "b"]
    history = [((value, None), 2) for value in agreeing]
    for before, after in product(agreeing, agreeing):
        check(maintain, threshold("STRING", comparison), history, [(0, before), (3, after)], 1)


@every_comparison
def test_rows_pass_when_the_scalar_does(maintain: Maintain, comparison: str) -> None:
    node = threshold("INT", comparison)
    history = [((value, "s"), 1) for value in (1, 2, 2, 3, None)]
    moves = [(0, 2), (5, 3), (6, 1), (7, None), (8, 3), (9, ABSENT), (10, 2), (11, 9), (12, 0)]
    history += [((2, "t"), 1), ((2, "t"), -1)] * 4
    check(maintain, node, history, moves, 1)


@pytest.mark.parametrize("rows", [[1, 2], [1, 1], [1, None], [None, None], [None, 1]])
@pytest.mark.parametrize("step", [1, 2])
def test_a_scalar_of_two_rows_is_an_error(
    maintain: Maintain, rows: list[int | None], step: int
) -> None:
    node = threshold("INT", "<")
    history = [((value,), 1) for value in rows]
    steps = [
        [delta_of([], node.columns), delta_of(h, node.scalar.columns)]
        for h in batched(history, step)
    ]
    with pytest.raises(SqlError, match="more than one row"):
        maintain(node, steps)


def test_two_rows_within_a_step_are_no_error(maintain: Maintain) -> None:
    node = threshold("INT", "<")
    moves: History = [((1,), 1), ((2,), 1), ((None,), 1), ((1,), -1), ((None,), -1)]
    steps = [[delta_of([((1, "s"), 1)], node.columns), delta_of(moves, node.scalar.columns)]]
    assert maintain(node, steps)[0] == [Counter([(1, "s")])]


def test_columns_may_be_declared_without_nulls(maintain: Maintain) -> None:
    node = threshold("INT", "<")
    rows, scalars = inputs(node, [((1, "s"), 1)], [ABSENT, 2])
    rows = rows.cast(pa.schema([field.with_nullable(False) for field in rows.schema]))
    assert maintain(node, [[rows, scalars]])[0] == [Counter([(1, "s")])]


def test_a_row_that_is_not_there_can_not_go(maintain: Maintain) -> None:
    node = threshold("INT", "<")
    steps = [inputs(node, [((1, "s"), n)], [ABSENT]) for n in (1, -2)]
    with pytest.raises(Damaged, match="negative number of times"):
        maintain(node, steps)
