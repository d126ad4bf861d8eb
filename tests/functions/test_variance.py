"""Variances and their like are the true values, rounded, whatever rows came and went."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everview.operators.aggregate import AggregateOperator
from everview.operators.base import MemoryState
from everview.plan.nodes import Aggregate, Call, Source
from everview.schema import Column
from tests.operators.histories import History, delta_of, gone

COLUMNS = (Column("x", pa.float64()), Column("y", pa.float64()))
ONE = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")
TWO = ("covar_pop", "covar_samp", "corr")
# squares of much smaller ones have no double
DOUBLES = st.floats(-1e6, 1e6).map(lambda x: x if abs(x) > 1e-100 else 0.0) | st.sampled_from(
    [0.1, 1e15, 1e15 + 1, -3.25, 1e-9]
)
PAIRS = st.none() | st.tuples(DOUBLES, DOUBLES)


def apply(state: MemoryState, changes: History) -> dict[str, float | None]:
    calls = [Call(function, "x") for function in ONE]
    calls += [Call(function, "x", False, "y") for function in TWO]
    columns = tuple(Column(f"c{i}", pa.float64()) for i in range(len(calls)))
    node = Aggregate(columns, Source(COLUMNS, "t", ("x", "y")), (), tuple(calls))
    given = AggregateOperator(node).apply([delta_of(changes, COLUMNS)], state).to_pylist()
    came = [row for row in given if row["_weight"] > 0]
    return dict(zip((*ONE, *TWO), list(came[-1].values()), strict=False)) if came else {}


def spread(pairs: list[tuple[float, float]]) -> Fraction:
    """The sum of products of differences from the means, exactly."""
    xs, ys = ([Fraction(pair[i]) for pair in pairs] for i in (0, 1))
    return sum((x * y for x, y in zip(xs, ys, strict=True)), Fraction()) - sum(xs) * sum(ys) / (
        len(pairs) or 1
    )


@settings(max_examples=60)
@given(rows=st.lists(PAIRS, max_size=12), passing=st.lists(PAIRS, max_size=6))
def test_they_are_the_true_values_rounded(
    rows: list[tuple[float, float] | None], passing: list[tuple[float, float] | None]
) -> None:
    state = MemoryState()
    apply(state, [((None, None), 0)])
    history: History = [(row or (None, None), 1) for row in [*passing, *rows]]
    for change in history:
        apply(state, [change])
    found = apply(state, [(row or (None, None), -1) for row in passing] + [((None, None), 0)])
    pairs = [row for row in rows if row is not None]
    n = len(pairs)
    of_x, of_y = (spread([(pair[i], pair[i]) for pair in pairs]) for i in (0, 1))
    both = spread(pairs)
    assert found["var_pop"] == (float(of_x / n) if n else None)
    assert found["var_samp"] == (float(of_x / (n - 1)) if n > 1 else None)
    assert found["stddev_samp"] == (math.sqrt(of_x / (n - 1)) if n > 1 else None)
    assert found["covar_samp"] == (float(both / (n - 1)) if n > 1 else None)
    assert found["covar_pop"] == (float(both / n) if n else None)
    if of_x and of_y:
        assert found["corr"] == pytest.approx(float(both) / math.sqrt(of_x * of_y), rel=1e-12)
    else:
        assert found["corr"] is None


def test_large_values_close_together_lose_nothing() -> None:
    values = [1e9 + n / 8 for n in range(5)]
    rows: History = [((value, value), 1) for value in values]
    found = apply(MemoryState(), rows)
    assert found["var_samp"] == statistics.variance(map(Fraction, values))
    assert found["corr"] == 1.0


def test_what_is_not_finite_can_go_again() -> None:
    state = MemoryState()
    rows: History = [((1.0, 2.0), 1), ((2.0, 4.0), 1)]
    apply(state, rows)
    odd: History = [((math.inf, 1.0), 1), ((math.nan, math.nan), 1)]
    assert math.isnan(apply(state, odd)["var_pop"] or 0)
    assert apply(state, gone(odd))["var_pop"] == 0.25


def test_what_is_too_small_to_be_squared_does_not_vary() -> None:
    found = apply(MemoryState(), [((1e-200, 1.0), 1), ((3e-200, 2.0), 1)])
    assert found["var_pop"] == 0.0
    assert found["corr"] is None


def test_pairs_with_equal_sums_may_vary_against_each_other() -> None:
    found = apply(MemoryState(), [((1.0, 2.0), 1), ((2.0, 1.0), 1)])
    assert found["covar_pop"] == -0.25
    assert found["corr"] == -1.0
