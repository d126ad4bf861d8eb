"""Exact sums of products by group, and how far values spread, which variances are made of.

A product of two doubles is kept as two doubles that add up to it, so nothing is lost before the
end: what comes out is the true value, rounded, whatever order and batching the rows came in.
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


def spreads(counts: np.ndarray, one: Exact, other: Exact, products: Exact) -> Exact:
    """By group, n times the sum of products less the product of the sums, in units of
    2 ** -UNITS; None if it isn't finite."""
    rows = zip(counts.tolist(), one, other, products, strict=True)
    return [_spread(*row) for row in rows]


def _spread(count: int, one: int | None, other: int | None, both: int | None) -> int | None:
    if one is None or other is None or both is None:
        return None
    return count * (both << UNITS // 2) - one * other


def divided(one: int, other: int) -> float:
    """The quotient, rounded once; an infinity if it is too large."""
    try:
        return one / other
    except OverflowError:
        return -math.inf if one < 0 else math.inf
