"""Exact sums equal those of fractions, whatever the order, the batches and the deletes."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from everview.functions.arithmetic.exact import Sums

Rows = list[tuple[float, int, int]]
COUNT = 3
TINY, SMALLEST_NORMAL, HUGE = 5e-324, 2.0**-1022, math.ldexp(2 - 2**-52, 1023)
EDGES = [TINY, SMALLEST_NORMAL - TINY, SMALLEST_NORMAL, 2.0**-1042, 1.0, 0.1, 2.0**53, HUGE]
FINITE = (
    st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(EDGES + [-edge for edge in EDGES])
    | st.builds(math.ldexp, st.integers(-(2**53), 2**53), st.integers(-1074, 970))
)
WEIGHTS = (
    st.sampled_from([1, -1]) | st.integers(-(2**17), 2**17) | st.integers(1 - 2**63, 2**63 - 1)
)
GROUPS = st.integers(0, COUNT - 1)


def rows(
    values: st.SearchStrategy[float], weights: st.SearchStrategy[int]
) -> st.SearchStrategy[Rows]:
    return st.lists(st.tuples(values, weights, GROUPS), max_size=30)


def sums_of(rows: Rows, count: int = COUNT) -> Sums:
    return Sums.of(
        np.array([value for value, _, _ in rows], np.float64),
        np.array([weight for _, weight, _ in rows], np.int64),
        np.array([group for _, _, group in rows], np.int64),
        count,
    )


def sum_of(*values: float) -> float:
    return float(sums_of([(value, 1, 0) for value in values], 1).doubles()[0])


def negated(rows: Rows) -> Rows:
    return [(value, -weight, group) for value, weight, group in rows]


def rounded(exact: Fraction) -> float:
    """Python divides integers with one correct rounding."""
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


@given(rows=rows(FINITE, WEIGHTS))
@example(rows=[(HUGE, 2**63 - 1, 0), (HUGE, -(2**63), 1), (TINY, -(2**63), 2)])
@example(rows=[(HUGE, 1, 0), (TINY, -1, 0), (HUGE, -1, 1), (TINY, 1, 1)])
@example(rows=[(1.0, 32767, 0), (1.0, 32768, 1), (1.0, -32769, 2)])
def test_sums_are_the_exact_sums_rounded_once(rows: Rows) -> None:
    exact = [Fraction(0)] * COUNT
    for value, weight, group in rows:
        exact[group] += Fraction(value) * weight
    assert sums_of(rows).doubles().tolist() == [rounded(total) for total in exact]


@given(values=st.lists(st.floats(-1e300, 1e300), max_size=300))
def test_a_sum_is_that_of_fsum(values: list[float]) -> None:
    assert sum_of(*values) == math.fsum(values)


@given(
    rows=rows(FINITE | st.floats(), WEIGHTS),
    step=st.sampled_from([1, 3, 1000]),
    order=st.randoms(use_true_random=False),
)
@example(rows=[(1e300, 1, 0), (-1.0, 1, 0), (-1e300, 1, 0)], step=1, order=random.Random(0))
def test_order_and_batches_never_change_the_bytes(
    rows: Rows, step: int, order: random.Random
) -> None:
    expected = sums_of(rows).encode()
    order.shuffle(rows)
    stored = sums_of([]).encode()
    for start in range(0, len(rows), step):
        stored = (Sums.decode(stored) + sums_of(rows[start : start + step])).encode()
    assert stored.equals(expected)


@given(before=rows(st.floats(), WEIGHTS), rows=rows(FINITE | st.floats(), WEIGHTS))
def test_deleted_rows_leave_no_trace(before: Rows, rows: Rows) -> None:
    kept = sums_of(before)
    after = kept + sums_of(rows) + sums_of(negated(rows)[::-1])
    assert after.encode().equals(kept.encode())
    assert np.array_equal(after.doubles(), kept.doubles(), equal_nan=True)


@given(rows=rows(FINITE | st.floats(), WEIGHTS))
def test_a_sum_of_nothing_is_zero_and_has_no_bytes(rows: Rows) -> None:
    nothing = sums_of(rows + negated(rows))
    assert nothing.encode().to_pylist() == [b""] * COUNT
    assert [str(total) for total in nothing.doubles()] == ["0.0"] * COUNT


@given(value=FINITE, other=FINITE, times=st.integers(1, 20))
@example(value=-1.0, other=TINY, times=1)
@example(value=-(2.0**-18), other=2.0**-18, times=1)  # the top bit of a limb, and no other
@example(value=-(2.0**-18), other=HUGE, times=2)
def test_equal_sums_have_equal_bytes(value: float, other: float, times: int) -> None:
    once = sums_of([(value, times, 0)], 1)
    again = sums_of([(value, 1, 0)] * times + [(other, 1, 0), (other, -1, 0)], 1)
    assert once.encode().equals(again.encode())


@given(rows=rows(FINITE | st.floats(), WEIGHTS), start=st.integers(0, COUNT))
def test_bytes_become_the_same_sums_again(rows: Rows, start: int) -> None:
    sums = sums_of(rows)
    part = sums.encode()[start:]
    again = Sums.decode(part)
    assert np.array_equal(again.doubles(), sums.doubles()[start:], equal_nan=True)
    assert again.encode().equals(part)


@pytest.mark.parametrize(
    ("rows", "data"),
    [
        ([(1.0, 1, 0)], "21 00000400"),
        ([(-1.0, 1, 0)], "21 0000fcff"),
        ([(2.0**-18, -1, 0)], "21 ffffffff"),
        ([(2.0**13, 1, 0)], "21 00000080 00000000"),
        ([(2.0**13, -1, 0)], "21 00000080"),
        ([(TINY, 1, 0), (1.0, 1, 0)], "00 01000000" + 32 * "00000000" + "00000400"),
        ([(math.inf, 65538, 0)], "80" + "0000000000000000 0200010000000000 0000000000000000"),
        (
            [(math.nan, 1, 0), (-math.inf, -1, 0), (1.0, 1, 0)],
            "a1" + "0100000000000000 0000000000000000 ffffffffffffffff" + "00000400",
        ),
    ],
)
def test_bytes_hold_only_the_limbs_that_tell_something(rows: Rows, data: str) -> None:
    assert sums_of(rows, 1).encode().to_pylist() == [bytes.fromhex(data)]


def test_prices_take_few_limbs_beside_sums_of_nothing() -> None:
    sums = sums_of([(19.99, 1, 0), (0.01, 1, 1), (125000.5, 1, 1)])
    assert len((sums_of([]) + sums + sums_of([(0.0, 1, 2)])).limbs) <= 5


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2.0**53, 1.0], 2.0**53),
        ([2.0**53 + 2, 1.0], 2.0**53 + 4),
        ([2.0**53, 1.0, TINY], 2.0**53 + 2),
        ([2.0**53 + 2, 1.0, -TINY], 2.0**53 + 2),
        ([-(2.0**53), -1.0], -(2.0**53)),
        ([-(2.0**53), -1.0, -TINY], -(2.0**53) - 2),
        ([2.0**53, 1.0, 2.0**-11], 2.0**53 + 2),
        ([1.0, 2.0**-53], 1.0),
        ([1.0, 2.0**-53, 2.0**-106], 1 + 2.0**-52),
    ],
)
def test_only_a_tie_goes_to_the_even_neighbour(values: list[float], expected: float) -> None:
    assert sum_of(*values) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([HUGE, HUGE], math.inf),
        ([-HUGE, -HUGE], -math.inf),
        ([HUGE, 2.0**970], math.inf),
        ([HUGE, 2.0**970, -TINY], HUGE),
        ([HUGE, HUGE, -HUGE], HUGE),
    ],
)
def test_only_the_result_can_be_too_large(values: list[float], expected: float) -> None:
    assert sum_of(*values) == expected


def test_subnormals_are_summed_exactly() -> None:
    assert sum_of(TINY, TINY, TINY) == 3 * TINY
    assert sum_of(SMALLEST_NORMAL, -TINY) == SMALLEST_NORMAL - TINY
    assert sum_of(SMALLEST_NORMAL - TINY, TINY) == SMALLEST_NORMAL


def test_nan_and_infinities_come_and_go() -> None:
    sums, seen = sums_of([(1.5, 1, 0)], 1), []
    for value, weight in [
        (math.inf, 2),
        (-math.inf, 1),
        (math.inf, -2),
        (math.nan, 1),
        (-math.inf, -1),
        (math.nan, -1),
    ]:
        sums += sums_of([(value, weight, 0)], 1)
        seen.append(str(sums.doubles()[0]))
    assert seen == ["inf", "nan", "-inf", "nan", "nan", "1.5"]


@pytest.mark.parametrize("sign", [1, -1])
def test_limbs_do_not_overflow_under_many_heavy_rows(sign: int) -> None:
    size, value, weight = 1 << 18, math.nextafter(2.0, 0.0), sign * (2**15 - 1)
    groups = np.arange(size) % 2
    sums = Sums.of(np.full(size, value), np.full(size, weight), groups, 2)
    exact = Fraction(value) * weight * (size // 2)
    assert sums.doubles().tolist() == [float(exact)] * 2
    assert sums.encode().equals(
        sums_of([(value, weight * size // 2, g) for g in (0, 1)], 2).encode()
    )


def test_alternating_signs_leave_what_a_plain_sum_loses() -> None:
    size = 100_000
    values = np.where(np.arange(size) % 2, -1e16, 1e16)
    values[::1000] += 2.0
    ones, groups = np.ones(size, np.int64), np.zeros(size, np.int64)
    assert Sums.of(values, ones, groups, 1).doubles().tolist() == [size / 1000 * 2.0]


def test_no_groups_have_no_sums() -> None:
    sums = sums_of([], 0) + Sums.decode(pa.array([], pa.binary()))
    assert sums.doubles().tolist() == []
    assert sums.encode().to_pylist() == []
