"""Variances and standard deviations: the true values, rounded."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pyarrow as pa

from everview.functions.arithmetic.products import UNITS, divided, exact, spreads
from everview.functions.base import AggregateFunction, StateColumn
from everview.functions.count import COUNT
from everview.functions.spread import FIRST, SQUARES


@dataclass(frozen=True)
class Variance(AggregateFunction):
    """For a `sample` it divides by n - 1, and is NULL for a single value; with `root` it is the
    standard deviation."""

    name: str
    catalyst: tuple[str, ...]
    sample: bool
    root: bool = False

    def state(self) -> tuple[StateColumn, ...]:
        return COUNT, FIRST, SQUARES

    def result(self, *state: pa.Array, arrow: pa.DataType) -> pa.Array:
        counts = state[0].to_numpy()
        first, squares = map(exact, state[1:])
        group_spreads = spreads(counts, first, first, squares)
        rows = zip(counts.tolist(), group_spreads, strict=True)
        return pa.array([self._of_group(*row) for row in rows], arrow)

    def _of_group(self, count: int, spread: int | None) -> float | None:
        if count <= self.sample:
            return None
        if spread is None:
            return math.nan
        # squares too small for a double were lost
        value = max(divided(spread, count * (count - self.sample) << UNITS), 0.0)
        return math.sqrt(value) if self.root else value


FUNCTIONS = (
    Variance("var_samp", ("VarianceSamp",), sample=True),
    Variance("var_pop", ("VariancePop",), sample=False),
    Variance("stddev_samp", ("StddevSamp",), sample=True, root=True),
    Variance("stddev_pop", ("StddevPop",), sample=False, root=True),
)
