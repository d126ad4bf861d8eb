"""Exact sums of products by group, and the spreads from which variances are computed.

A product of two doubles is kept as two doubles that add up to it, so nothing is lost before the
end: the result is the true value, rounded, whatever order and batches the rows came in.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from everview.functions.arithmetic.exact import Doubles, Sums
from everview.functions.arithmetic.sums import weighted_sums

_SPLITTER = 2.0**27 + 1
_LARGE, _SMALL = 2.0**960, 2.0**-960
UNITS = 2 * 1074  # a product of two exact sums counts 2 ** -UNITS
Exact = list[int | None]


def product_sums(
    first: pa.Array, second: pa.Array, weights: np.ndarray, ids: np.ndarray, count: int
) -> pa.Array:
    """The exact sums of first times second times weights by group, without NULLs."""
    is_valid = first.is_valid().to_numpy(zero_copy_only=False)
    first_values, second_values = (
        values.fill_null(0.0).to_numpy()[is_valid] for values in (first, second)
    )
    high, low = _product(first_values, second_values)
    values = pa.array(np.concatenate([high, low]))
    return weighted_sums(values, _twice(weights[is_valid]), _twice(ids[is_valid]), count)


def _twice(values: np.ndarray) -> np.ndarray:
    return np.concatenate([values, values])


def _product(first: Doubles, second: Doubles) -> tuple[Doubles, Doubles]:
    """The product of doubles, rounded, and the error of rounding (Dekker and Veltkamp).

    The error is 0 if the product is too large or too small to compute it.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        high = first * second
        (a, b), (c, d) = _halves(first), _halves(second)
        low = ((a * c - high) + a * d + b * c) + b * d
        sizes = np.maximum(np.abs(first), np.abs(second)), np.abs(high)
    whole = (sizes[0] < _LARGE) & (sizes[1] > _SMALL) & np.isfinite(low)
    return high, np.where(whole, low, 0.0)


def _halves(values: Doubles) -> tuple[Doubles, Doubles]:
    """A double as the sum of two of 26 bits."""
    large = _SPLITTER * values
    high = large - (large - values)
    return high, values - high


def exact(stored: pa.Array) -> Exact:
    """Sums in units of 2 ** -1074; None for those that have NaN or an infinity."""
    return Sums.decode(stored).exact()


def spreads(counts: np.ndarray, first: Exact, second: Exact, products: Exact) -> Exact:
    """For each group, n times the sum of products minus the product of the sums, in units of
    2 ** -UNITS; None if it isn't finite."""
    rows = zip(counts.tolist(), first, second, products, strict=True)
    return [_spread(*row) for row in rows]


def _spread(count: int, first: int | None, second: int | None, both: int | None) -> int | None:
    if first is None or second is None or both is None:
        return None
    return count * (both << UNITS // 2) - first * second


def divided(numerator: int, denominator: int) -> float:
    """The quotient, rounded once; an infinity if it is too large."""
    try:
        return numerator / denominator
    except OverflowError:
        return -math.inf if numerator < 0 else math.inf
