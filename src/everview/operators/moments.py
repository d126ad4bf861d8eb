"""Variances, covariances and correlations by group, from exact sums of values and of products.

A product of two doubles is kept as two doubles that add up to it, so nothing is lost before the
end: what comes out is the true value, rounded, whatever order and batching the rows came in.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from everview.operators.exact import Doubles, Sums
from everview.operators.sums import weighted_sums

FUNCTIONS = {"stddev_samp", "stddev_pop", "var_samp", "var_pop", "covar_samp", "covar_pop", "corr"}
_SPLITTER = 2.0**27 + 1
_LARGE, _SMALL = 2.0**960, 2.0**-960
_UNITS = 2 * 1074  # a product of two exact sums counts 2 ** -_UNITS
Exact = list[int | None]


def product_sums(
    one: pa.Array, other: pa.Array, weights: np.ndarray, ids: np.ndarray, count: int
) -> pa.Array:
    """The exact sums of one times other times weights by group, NULLs left out."""
    there = one.is_valid().to_numpy(zero_copy_only=False)
    first, second = (values.fill_null(0.0).to_numpy()[there] for values in (one, other))
    high, low = _product(first, second)
    values = pa.array(np.concatenate([high, low]))
    return weighted_sums(values, _twice(weights[there]), _twice(ids[there]), count)


def _twice(values: np.ndarray) -> np.ndarray:
    return np.concatenate([values, values])


def _product(one: Doubles, other: Doubles) -> tuple[Doubles, Doubles]:
    """The product of doubles, rounded, and what rounding left out (Dekker and Veltkamp).

    Where it is too large or small for that, nothing is said to be left out.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        high = one * other
        (a, b), (c, d) = _halves(one), _halves(other)
        low = ((a * c - high) + a * d + b * c) + b * d
        sizes = np.maximum(np.abs(one), np.abs(other)), np.abs(high)
    exact = (sizes[0] < _LARGE) & (sizes[1] > _SMALL) & np.isfinite(low)
    return high, np.where(exact, low, 0.0)


def _halves(values: Doubles) -> tuple[Doubles, Doubles]:
    """A double as the sum of two of 26 bits."""
    large = _SPLITTER * values
    high = large - (large - values)
    return high, values - high


def result(
    function: str, count: np.ndarray, firsts: list[pa.Array], products: list[pa.Array]
) -> pa.Array:
    """The function by group, of the sums of its arguments and of their products.

    The products of one argument are its squares; those of two their squares and, last, the
    products of both.
    """
    sums = [_exact(kept) for kept in firsts]
    of_pairs = [_exact(kept) for kept in products]
    if len(sums) == 1:
        pairs = [(sums[0], sums[0])]
    else:
        pairs = [(sums[0], sums[0]), (sums[1], sums[1]), (sums[0], sums[1])]
    spreads = [
        [_spread(n, *found) for n, *found in zip(count.tolist(), one, other, both, strict=True)]
        for (one, other), both in zip(pairs, of_pairs, strict=True)
    ]
    rows = zip(count.tolist(), *spreads, strict=True)
    return pa.array([_of_group(function, n, *found) for n, *found in rows], pa.float64())


def _spread(count: int, one: int | None, other: int | None, both: int | None) -> int | None:
    """n times the sum of products less the product of the sums; None if it isn't finite."""
    if one is None or other is None or both is None:
        return None
    return count * (both << _UNITS // 2) - one * other


def _of_group(function: str, count: int, *spreads: int | None) -> float | None:
    sample = function.endswith("_samp")
    if count <= sample:
        return None
    if None in spreads:
        return math.nan
    if function == "corr":
        return _correlation(*(spread or 0 for spread in spreads))
    value = _divided(spreads[-1] or 0, count * (count - sample) << _UNITS)
    if function.startswith("covar"):
        return value
    value = max(value, 0.0)  # squares too small for a double were lost
    return math.sqrt(value) if function.startswith("stddev") else value


def _correlation(of_one: int, of_other: int, of_both: int) -> float | None:
    """NULL where one of the two doesn't vary."""
    if of_one <= 0 or of_other <= 0:
        return None
    size = min(math.sqrt(_divided(of_both * of_both, of_one * of_other)), 1.0)
    return -size if of_both < 0 else size


def _divided(one: int, other: int) -> float:
    try:
        return one / other
    except OverflowError:
        return -math.inf if one < 0 else math.inf


def _exact(kept: pa.Array) -> Exact:
    """Sums in units of 2 ** -1074; None for those that have NaN or an infinity."""
    return Sums.decode(kept).exact()
