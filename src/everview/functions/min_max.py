"""The least or greatest value of a group.

A row may go, and the next value takes its place: so state has all values, in order. Where no row
ever goes it has the one value.
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
    """One value as bytes that are in the order of values; b"" for a group that has only NULLs."""

    greatest: bool = False

    def type(self, argument: pa.DataType) -> pa.DataType:
        return pa.binary()

    def change(
        self, values: Sequence[pa.Array], weights: np.ndarray, ids: np.ndarray, count: int
    ) -> pa.Array:
        (argument,) = values
        there = argument.is_valid().to_numpy(zero_copy_only=False)
        encoded = _codec(argument.type).encode([argument.drop_null()])
        mine = pa.table({"id": ids[there], "value": encoded})
        which = "max" if self.greatest else "min"
        found = mine.group_by("id", use_threads=False).aggregate([("value", which)])
        at = pc.index_in(pa.array(np.arange(count)), found["id"].combine_chunks())
        return found[f"value_{which}"].combine_chunks().take(at).fill_null(b"")

    def added(self, stored: pa.Array, change: pa.Array) -> pa.Array:
        choose = pc.max_element_wise if self.greatest else pc.min_element_wise
        return choose(_there(stored), _there(change), skip_nulls=True).fill_null(b"")


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
        """Engines differ in where the NULLs in a struct are in its order."""
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
        there = pc.not_equal(values, b"").to_numpy(zero_copy_only=False)
        found = _codec(arrow).decode(values.filter(pa.array(there)).to_pylist())
        return found.take(pa.array(np.cumsum(there) - 1, mask=~there))


@lru_cache(64)
def _codec(arrow: pa.DataType) -> KeyCodec:
    return KeyCodec([Column("value", arrow)])


def _there(stored: pa.Array) -> pa.Array:
    """NULL where there is no value."""
    return pc.if_else(pc.equal(stored, b""), pa.scalar(None, pa.binary()), stored)


# of values that are all the same to them, first and any_value give the least, last the greatest
FUNCTIONS = (
    Extreme("min", ("Min", "First", "AnyValue"), greatest=False, twin="min_by"),
    Extreme("max", ("Max", "Last"), greatest=True, twin="max_by"),
)
