"""Covariances and the correlation of pairs: the true values, rounded."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import pyarrow as pa

from everview.functions.arithmetic.products import UNITS, divided, exact, spreads
from everview.functions.base import AggregateFunction, StateColumn
from everview.functions.count import COUNT
from everview.functions.spread import FIRST, OTHER_SQUARES, PRODUCTS, SECOND, SQUARES


class OfPairs(AggregateFunction):
    """A function of the spreads of two arguments, each and together."""

    arguments = 2
    # with this many pairs or fewer, the result is NULL
    least: int = 0

    def state(self) -> tuple[StateColumn, ...]:
        return COUNT, FIRST, SECOND, SQUARES, OTHER_SQUARES, PRODUCTS

    def result(self, *state: pa.Array, arrow: pa.DataType) -> pa.Array:
        counts = state[0].to_numpy()
        first, second, *products = map(exact, state[1:])
        pairs = ((first, first), (second, second), (first, second))
        all_spreads = [
            spreads(counts, *pair, sums) for pair, sums in zip(pairs, products, strict=True)
        ]
        rows = zip(counts.tolist(), *all_spreads, strict=True)
        return pa.array([self._of_group(*row) for row in rows], arrow)

    def _of_group(
        self, count: int, first: int | None, second: int | None, both: int | None
    ) -> float | None:
        if count <= self.least:
            return None
        if first is None or second is None or both is None:
            return math.nan
        return self.of_spreads(count, first, second, both)

    @abstractmethod
    def of_spreads(self, count: int, first: int, second: int, both: int) -> float | None:
        """The result of a group whose spreads are finite."""


@dataclass(frozen=True)
class Covariance(OfPairs):
    """Of a sample it divides by n - 1, and is NULL for a single pair."""

    name: str
    catalyst: tuple[str, ...]
    least: int

    def of_spreads(self, count: int, first: int, second: int, both: int) -> float | None:
        return divided(both, count * (count - self.least) << UNITS)


class Correlation(OfPairs):
    """NULL if one of the two arguments doesn't vary."""

    name = "corr"
    catalyst = ("Corr",)

    def of_spreads(self, count: int, first: int, second: int, both: int) -> float | None:
        if first <= 0 or second <= 0:
            return None
        size = min(math.sqrt(divided(both * both, first * second)), 1.0)
        return -size if both < 0 else size


FUNCTIONS = (
    Covariance("covar_samp", ("CovSample",), least=1),
    Covariance("covar_pop", ("CovPopulation",), least=0),
    Correlation(),
)
