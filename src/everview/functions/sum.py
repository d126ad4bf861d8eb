"""The exact sum of a group's values; one that does not fit its type fails, or is NULL with try_."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from everview.functions.arithmetic import sums
from everview.functions.base import AggregateFunction, StateColumn
from everview.functions.count import COUNT
from everview.schema import has_floats, sql_name


@dataclass(frozen=True)
class SumColumn(StateColumn):
    """The exact sum of the argument; of a pair, of the one at place `at`."""

    at: int = 0

    def type(self, argument: pa.DataType) -> pa.DataType:
        return sums.sum_type(argument)

    def change(
        self, values: Sequence[pa.Array], weights: np.ndarray, ids: np.ndarray, count: int
    ) -> pa.Array:
        return sums.weighted_sums(values[self.at], weights, ids, count)


SUM = SumColumn("sum", 1)


@dataclass(frozen=True)
class Sum(AggregateFunction):
    name: str
    catalyst = ("Sum",)
    tries: bool = False

    def state(self) -> tuple[StateColumn, ...]:
        return COUNT, SUM

    def result(self, *state: pa.Array, arrow: pa.DataType) -> pa.Array:
        count, total = state
        compute = partial(sums.total, arrow=arrow)
        if self.tries:
            return sums.or_null(compute, total, count.to_numpy(), arrow)
        return compute(total, count.to_numpy())

    def of_one_row(self, argument: pa.DataType, arrow: pa.DataType) -> str | None:
        return None if self.tries else one_number(argument, arrow)


def one_number(argument: pa.DataType, arrow: pa.DataType) -> str | None:
    """The sum or average of one number; None if the number might not fit."""
    if _digits(argument) > _digits(arrow):
        return None
    cast = f"CAST({{0}} AS {sql_name(arrow)})"
    # sums begin with 0.0, so the sum of -0.0 is 0.0
    return f"CASE WHEN {cast} = 0 THEN 0D ELSE {cast} END" if has_floats(argument) else cast


def _digits(arrow: pa.DataType) -> int:
    """How many digits a decimal has before the point; 0 for other types."""
    return arrow.precision - arrow.scale if pa.types.is_decimal(arrow) else 0


FUNCTIONS = (Sum("sum"), Sum("try_sum", tries=True))
