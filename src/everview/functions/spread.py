"""The state that variances and covariances share: exact sums of values and of their products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from everview.functions.arithmetic.products import product_sums
from everview.functions.base import StateColumn
from everview.functions.sum import SumColumn


@dataclass(frozen=True)
class ProductColumn(StateColumn):
    """The exact sum of the products of two arguments, or of the squares of one."""

    pair: tuple[int, int] = (0, 0)

    def type(self, argument: pa.DataType) -> pa.DataType:
        return pa.binary()

    def change(
        self, values: Sequence[pa.Array], weights: np.ndarray, ids: np.ndarray, count: int
    ) -> pa.Array:
        first, second = self.pair
        return product_sums(values[first], values[second], weights, ids, count)


FIRST, SECOND = SumColumn("first_0", 2), SumColumn("first_1", 3, at=1)
SQUARES = ProductColumn("product_00", 4)
OTHER_SQUARES = ProductColumn("product_11", 5, (1, 1))
PRODUCTS = ProductColumn("product_01", 6, (0, 1))
