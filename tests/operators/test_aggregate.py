"""Aggregates equal recomputation, however the changes are batched."""

from __future__ import annotations

from collections import Counter
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from everview.operators.aggregate import AggregateOperator
from everview.operators.base import MemoryState
from everview.plan.nodes import Aggregate, Call
from everview.schema import Column
from tests.operators.histories import SOURCE, Row, counted, delta_of, histories, in_steps, present

CALLS = (
    (Call("count", None), pa.int64()),
    (Call("count", "x"), pa.int64()),
    (Call("sum", "x"), pa.decimal128(22, 2)),
    (Call("avg", "x"), pa.decimal128(16, 6)),
    (Call("sum", "n"), pa.int64()),
    (Call("avg", "n"), pa.float64()),
)
A_ROW = ("a", 1, Decimal("1.00"), 7)


def aggregate(groups: tuple[str, ...]) -> AggregateOperator:
    given_ = {column.name: column for column in SOURCE.columns}
    columns = [given_[name] for name in groups]
    columns += [Column(f"c{i}", arrow) for i, (_, arrow) in enumerate(CALLS)]
    return AggregateOperator(
        Aggregate(tuple(columns), SOURCE, groups, tuple(call for call, _ in CALLS))
    )


def recomputed(rows: list[Row], width: int) -> Counter[Row]:
    """The aggregate in plain Python."""
    groups: dict[Row, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[:width], []).append(row)
    if width == 0:
        groups.setdefault((), [])
    return Counter((*group, *results(members)) for group, members in groups.items())


def results(rows: list[Row]) -> tuple[Any, ...]:
    xs = [row[2] for row in rows if row[2] is not None]
    ns = [row[3] for row in rows if row[3] is not None]
    exact = Decimal("0.000001")
    average = (sum(xs) / len(xs)).quantize(exact, ROUND_HALF_UP) if xs else None
    return (
        len(rows),
        len(xs),
        str(sum(xs, Decimal("0.00"))) if xs else None,
        None if average is None else str(average),
        sum(ns) if ns else None,
        sum(ns) / len(ns) if ns else None,
    )


@given(
    history=histories(),
    step=st.sampled_from([1, 3, 1000]),
    groups=st.sampled_from([("g",), ("g", "h"), ()]),
)
@example(history=[(A_ROW, 1), (A_ROW, -1), (A_ROW, 1)], step=1, groups=("g",))
@example(history=[(A_ROW, 1), (A_ROW, -1)], step=1, groups=())
def test_aggregates_equal_recomputation_however_changes_are_batched(
    history: list[tuple[Row, int]], step: int, groups: tuple[str, ...]
) -> None:
    operator, state = aggregate(groups), MemoryState()
    view: Counter[Row] = Counter()
    if not groups:
        view.update(counted(operator.apply(delta_of([((None,) * 4, 0)]), state)))
    for delta in in_steps(history, step):
        view.update(counted(operator.apply(delta, state)))
    assert +view == recomputed(present(history), len(groups))
    assert not -view, "a row is in the view a negative number of times"
    assert len(state) == len(+view), "a group that is gone has left state behind"


def test_a_weight_counts_as_so_many_rows() -> None:
    operator, state = aggregate(("g",)), MemoryState()
    view = counted(operator.apply(delta_of([(A_ROW, 3)]), state))
    assert view == recomputed([A_ROW] * 3, 1)
    view.update(counted(operator.apply(delta_of([(A_ROW, -2)]), state)))
    assert +view == recomputed([A_ROW], 1)


def test_a_sum_beyond_64_bits_is_an_error_and_not_a_wrong_number() -> None:
    operator, state = aggregate(("g",)), MemoryState()
    big, one = ("a", 1, None, 2**63 - 1), ("a", 1, None, 1)
    with pytest.raises(pa.ArrowInvalid, match="out of bounds"):
        operator.apply(delta_of([(big, 1), (one, 1)]), state)
    view = counted(operator.apply(delta_of([(big, 1), (one, 1), (one, -1)]), MemoryState()))
    assert view == recomputed([big], 1)
