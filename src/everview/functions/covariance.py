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
    """A function of how far two arguments spread, each and together."""

    arguments = 2
    # so many pairs, or fewer, have no result
    least: int = 0

    def state(self) -> tuple[StateColumn, ...]:
        return COUNT, FIRST, SECOND, SQUARES, OTHER_SQUARES, PRODUCTS

    def result(self, *state: pa.Array, arrow: pa.DataType) -> pa.Array:
        counts = state[0].to_numpy()
        first, second, *products = map(exact, state[1:])
        pairs = ((first, first), (second, second), (first, second))
        found = [spreads(counts, *pair, of) for pair, of in zip(pairs, products, strict=True)]
        rows = zip(counts.tolist(), *found, strict=True)
        return pa.array([self._of_group(*row) for row in rows], arrow)

    def _of_group(
        self, count: int, of_one: int | None, of_other: int | None, of_both: int | None
    ) -> float | None:
        if count <= self.least:
            return None
        if of_one is None or of_other is None or of_both is None:
            return math.nan
        return self.of_spreads(count, of_one, of_other, of_both)

    @abstractmethod
    def of_spreads(self, count: int, of_one: int, of_other: int, of_both: int) -> float | None:
        """The result of a group whose spreads are finite."""


@dataclass(frozen=True)
class Covariance(OfPairs):
    """Of a sample it divides by n - 1, and is NULL for a single pair."""

    name: str
    catalyst: tuple[str, ...]
    least: int

    def of_spreads(self, count: int, of_one: int, of_other: int, of_both: int) -> float | None:
        return divided(of_both, count * (count - self.least) << UNITS)


class Correlation(OfPairs):
    """NULL where one of the two doesn't vary."""

    name = "corr"
    catalyst = ("Corr",)

    def of_spreads(self, count: int, of_one: int, of_other: int, of_both: int) -> float | None:
        if of_one <= 0 or of_other <= 0:
            return None
        size = min(math.sqrt(divided(of_both * of_both, of_one * of_other)), 1.0)
        return -size if of_both < 0 else size


FUNCTIONS = (
    Covariance("covar_samp", ("CovSample",), least=1),
    Covariance("covar_pop", ("CovPopulation",), least=0),
    Correlation(),
)
