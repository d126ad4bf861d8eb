"""The number of values in a group; without an argument, the number of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from everview.functions.arithmetic import sums
from everview.functions.base import AggregateFunction, StateColumn


class CountColumn(StateColumn):
    def type(self, argument: pa.DataType) -> pa.DataType:
        return pa.int64()

    def change(
        self, values: Sequence[pa.Array], weights: np.ndarray, ids: np.ndarray, count: int
    ) -> pa.Array:
        is_valid = values[0].is_valid().to_numpy(zero_copy_only=False)
        return sums.add_up(pa.array(np.where(is_valid, weights, 0)), ids, count)


COUNT = CountColumn("count", 0)


class Count(AggregateFunction):
    name = "count"
    catalyst = ("Count",)
    counts = True

    def state(self) -> tuple[StateColumn, ...]:
        return (COUNT,)

    def result(self, *state: pa.Array, arrow: pa.DataType) -> pa.Array:
        return state[0]

    def of_one_row(self, argument: pa.DataType, arrow: pa.DataType) -> str | None:
        return "CAST(CASE WHEN {0} IS NOT NULL THEN 1 ELSE 0 END AS BIGINT)"

    def bytes_of(self, argument: pa.DataType) -> int:
        return 0


FUNCTIONS = (Count(),)
