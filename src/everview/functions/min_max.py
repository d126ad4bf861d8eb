"""The least or greatest value of a group.

A row may go, and then the next value takes its place: so the state has all values, in order. If no
row ever goes, it has only the one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec import KeyCodec
from everview.functions.base import AggregateFunction, OrderedValues, StateColumn
from everview.functions.count import COUNT
from everview.schema import Column


@dataclass(frozen=True)
class ExtremeColumn(StateColumn):
    """One value as bytes that sort as values do; b"" for a group that has only NULLs."""

    greatest: bool = False

    def type(self, argument: pa.DataType) -> pa.DataType:
        return pa.binary()

    def change(
        self, values: Sequence[pa.Array], weights: np.ndarray, ids: np.ndarray, count: int
    ) -> pa.Array:
        (argument,) = values
        is_valid = argument.is_valid().to_numpy(zero_copy_only=False)
        encoded = _codec(argument.type).encode([argument.drop_null()])
        valid = pa.table({"id": ids[is_valid], "value": encoded})
        which = "max" if self.greatest else "min"
        extremes = valid.group_by("id", use_threads=False).aggregate([("value", which)])
        at = pc.index_in(pa.array(np.arange(count)), extremes["id"].combine_chunks())
        return extremes[f"value_{which}"].combine_chunks().take(at).fill_null(b"")

    def added(self, stored: pa.Array, change: pa.Array) -> pa.Array:
        choose = pc.max_element_wise if self.greatest else pc.min_element_wise
        return choose(_or_null(stored), _or_null(change), skip_nulls=True).fill_null(b"")


@dataclass(frozen=True)
class Extreme(AggregateFunction):
    name: str
    catalyst: tuple[str, ...]
    greatest: bool
    twin: str | None = None
    ignores_distinct = True
    from_values = True

    @property
    def over_growing(self) -> AggregateFunction:
        return ExtremeOfGrowing(self.name, self.greatest)

    def gives(self, arrow: pa.DataType) -> bool:
        """Not for structs: engines order NULLs in them in different ways."""
        return not pa.types.is_struct(arrow)

    def state(self) -> tuple[StateColumn, ...]:
        return (COUNT,)

    def result(self, *state: pa.Array, arrow: pa.DataType) -> pa.Array:
        raise NotImplementedError(f"{self.name} comes from ordered values")

    def of_values(self, values: OrderedValues) -> pa.Array:
        return values.end(last=self.greatest)

    def of_one_row(self, argument: pa.DataType, arrow: pa.DataType) -> str | None:
        return "{0}"


@dataclass(frozen=True)
class ExtremeOfGrowing(AggregateFunction):
    name: str
    greatest: bool
    catalyst = ()

    def state(self) -> tuple[StateColumn, ...]:
        return (ExtremeColumn(self.name, greatest=self.greatest),)

    def result(self, *state: pa.Array, arrow: pa.DataType) -> pa.Array:
        (values,) = state
        has_value = pc.not_equal(values, b"").to_numpy(zero_copy_only=False)
        results = _codec(arrow).decode(values.filter(pa.array(has_value)).to_pylist())
        return results.take(pa.array(np.cumsum(has_value) - 1, mask=~has_value))


@lru_cache(64)
def _codec(arrow: pa.DataType) -> KeyCodec:
    return KeyCodec([Column("value", arrow)])


def _or_null(stored: pa.Array) -> pa.Array:
    """Stored values, with NULL in place of b""."""
    return pc.if_else(pc.equal(stored, b""), pa.scalar(None, pa.binary()), stored)


# first, any_value and last may return any value: first and any_value return the least here, last
# the greatest
FUNCTIONS = (
    Extreme("min", ("Min", "First", "AnyValue"), greatest=False, twin="min_by"),
    Extreme("max", ("Max", "Last"), greatest=True, twin="max_by"),
)
