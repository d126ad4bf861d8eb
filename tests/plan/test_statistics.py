"""Distinct values and widths, from a sample of neighbours."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from everview.plan.statistics import RANGE, TEXT_WIDTH, distinct, touched, width
from everview.schema import Column

ROWS, RANGES, EACH = 1_000_000, 64, 96


def sampled(values: np.ndarray) -> pa.Table:
    """The values of some ranges of a table that has them in this order."""
    starts = np.linspace(0, len(values) - EACH, RANGES).astype(int)
    places = (starts[:, None] + np.arange(EACH)).ravel()
    return pa.table({"v": values[places], RANGE: np.repeat(np.arange(RANGES), EACH)})


@pytest.mark.parametrize("kinds", [3, 2_000, 50_000, ROWS])
@pytest.mark.parametrize("order", ["as they come", "sorted"])
def test_distinct_values_are_estimated_whether_neighbours_are_alike_or_not(
    kinds: int, order: str
) -> None:
    values = np.random.default_rng(kinds).integers(0, kinds, ROWS)
    if order == "sorted":
        values.sort()
    real = len(np.unique(values))
    found = distinct(sampled(values), ["v"], ROWS)
    assert real / 2 < found < real * 2


def test_a_sample_of_all_rows_is_counted() -> None:
    rows = sampled(np.arange(RANGES * EACH) % 7)
    assert distinct(rows, ["v"], len(rows)) == 7
    assert distinct(rows.slice(0, 0), ["v"], 0) == 0


def test_changes_touch_fewer_values_than_there_are_of_either() -> None:
    assert touched(1_000, 1) == 1
    assert touched(10, 1_000_000) == pytest.approx(10, rel=0.01)
    assert touched(100_000, 50) == pytest.approx(50)
    assert touched(1_000, 1_000) == pytest.approx(632, rel=0.01)


def test_texts_are_as_wide_as_in_the_sample() -> None:
    rows = pa.table({"v": ["ab", None, "abcd", "ab"]})
    assert width(Column("v", pa.string()), rows) == 2 + 4
    assert width(Column("v", pa.string()), None) == TEXT_WIDTH + 4
    assert width(Column("v", pa.decimal128(20, 2)), None) == 16
