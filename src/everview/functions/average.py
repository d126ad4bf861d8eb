"""The average of a group's values, from their exact sum; rounded as Spark does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from everview.functions.arithmetic import sums
from everview.functions.base import AggregateFunction, StateColumn
from everview.functions.count import COUNT
from everview.functions.sum import SUM, one_number


@dataclass(frozen=True)
class Average(AggregateFunction):
    name: str
    catalyst = ("Average",)
    tries: bool = False

    def state(self) -> tuple[StateColumn, ...]:
        return COUNT, SUM

    def result(self, *state: pa.Array, arrow: pa.DataType) -> pa.Array:
        count, total = state
        compute = partial(sums.average, arrow=arrow)
        if self.tries:
            return sums.or_null(compute, total, count.to_numpy(), arrow)
        return compute(total, count.to_numpy())

    def of_one_row(self, argument: pa.DataType, arrow: pa.DataType) -> str | None:
        return None if self.tries else one_number(argument, arrow)


FUNCTIONS = (Average("avg"), Average("try_avg", tries=True))
