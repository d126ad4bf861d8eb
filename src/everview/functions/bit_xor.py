"""The exclusive or of the bits of a group's whole numbers. Two equal values cancel, and so does a
value that comes and goes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.functions.base import AggregateFunction, StateColumn
from everview.functions.count import COUNT


class XorColumn(StateColumn):
    def type(self, argument: pa.DataType) -> pa.DataType:
        return pa.int64()

    def change(
        self, values: Sequence[pa.Array], weights: np.ndarray, ids: np.ndarray, count: int
    ) -> pa.Array:
        bits = values[0].fill_null(0).cast(pa.int64()).to_numpy()
        odd = np.flatnonzero(weights & 1)
        return _xor(bits[odd], ids[odd], count)

    def add_up(self, changes: pa.Array, ids: np.ndarray, count: int) -> pa.Array:
        return _xor(changes.to_numpy(), ids, count)

    def added(self, stored: pa.Array, change: pa.Array) -> pa.Array:
        return pc.bit_wise_xor(stored, change)


def _xor(bits: np.ndarray, ids: np.ndarray, count: int) -> pa.Array:
    results = np.zeros(count, np.int64)
    np.bitwise_xor.at(results, ids, bits)
    return pa.array(results)


XOR = XorColumn("xor")


class BitXor(AggregateFunction):
    name = "bit_xor"
    catalyst = ("BitXorAgg",)

    def state(self) -> tuple[StateColumn, ...]:
        return COUNT, XOR

    def result(self, *state: pa.Array, arrow: pa.DataType) -> pa.Array:
        count, bits = state
        return pc.if_else(pc.greater(count, 0), bits.cast(arrow), pa.scalar(None, arrow))

    def of_one_row(self, argument: pa.DataType, arrow: pa.DataType) -> str | None:
        return "{0}"

    def bytes_of(self, argument: pa.DataType) -> int:
        return 8


FUNCTIONS = (BitXor(),)
