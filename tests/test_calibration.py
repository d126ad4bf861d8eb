"""Constants are fitted to counts and times, and none is negative."""

from __future__ import annotations

import numpy as np
import pytest

from everview.calibration import _fit


def test_what_things_take_is_found_from_sums_of_them() -> None:
    rng = np.random.default_rng(1)
    counts = [[1.0, *rng.integers(1, 10_000, 2).astype(float)] for _ in range(30)]
    measured = [
        (one, (0.5 + 1e-4 * one[1] + 3e-5 * one[2]) * rng.uniform(0.9, 1.1)) for one in counts
    ]
    assert _fit(measured) == pytest.approx([0.5, 1e-4, 3e-5], rel=0.3)


def test_nothing_takes_less_than_no_time() -> None:
    measured = [([1.0, n, n * n], 1.0 / n) for n in (1.0, 2.0, 5.0, 9.0)]
    assert min(_fit(measured)) >= 0
