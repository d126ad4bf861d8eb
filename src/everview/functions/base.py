"""The contract of an aggregate function: its state for a group, and its result from that.

Plans and operators use the same object: plans ask what a function needs, takes and costs, operators
ask for its state and its results. So this room lies below both, and a new function is one file here
and one test.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from everview.functions.arithmetic import sums


@dataclass(frozen=True)
class StateColumn(ABC):
    """One value that the state keeps for each group, of one argument or of a pair.

    The functions of an argument share the columns that have the same name. Stored state has the
    columns of an argument by `place`, then by name: never change either.
    """

    name: str
    place: int = 9

    @abstractmethod
    def type(self, argument: pa.DataType) -> pa.DataType:
        """Its stored type: whole numbers, decimals or bytes; 0 or b"" stands for no values. Deltas
        are added up ahead of a shuffle only if no column is of bytes."""

    @abstractmethod
    def change(
        self, values: Sequence[pa.Array], weights: np.ndarray, ids: np.ndarray, count: int
    ) -> pa.Array:
        """The change by rows of a delta, for groups 0 to count - 1; `values` has an array for each
        argument. A row with NULL changes nothing."""

    def add_up(self, changes: pa.Array, ids: np.ndarray, count: int) -> pa.Array:
        """Several changes as one, by group."""
        return sums.add_up(changes, ids, count)

    def added(self, stored: pa.Array, change: pa.Array) -> pa.Array:
        """The stored values after a change. Raises ArrowInvalid if one does not fit."""
        return sums.added(stored, change)


class OrderedValues(Protocol):
    """The values of an argument in some groups, in order."""

    def end(self, last: bool) -> pa.Array:
        """The least value of each group, or the greatest; NULL where there is none."""


class AggregateFunction(ABC):
    """An aggregate function of one argument, or of a pair of which a row has both or none.

    `name` is its name in plans, and `catalyst` are the classes of Catalyst that mean it. If a class
    means several functions, it is the one with the name of the call in Catalyst, else the first.
    """

    name: str
    catalyst: tuple[str, ...]

    arguments: int = 1
    # it asks only whether its argument is NULL: without an argument it counts rows
    counts: bool = False
    # DISTINCT changes nothing, and plans leave it out
    ignores_distinct: bool = False
    # its result comes from all values of a group in order, which the state has
    from_values: bool = False
    # the engine's function that returns one column by the order of another
    twin: str | None = None

    @property
    def over_growing(self) -> AggregateFunction | None:
        """A function with less state that can take its place if no row ever goes; None if there is
        none."""
        return None

    def gives(self, arrow: pa.DataType) -> bool:
        """Whether it can be maintained if its results are of this type; else the engine recomputes
        it."""
        return True

    @abstractmethod
    def state(self) -> tuple[StateColumn, ...]:
        """The columns of its state, for each group."""

    @abstractmethod
    def result(self, *state: pa.Array, arrow: pa.DataType) -> pa.Array:
        """The results of groups, of this type, from the columns of `state()`. Raises ArrowInvalid
        if one does not fit."""

    def of_values(self, values: OrderedValues) -> pa.Array:
        """The results of groups, if they come from ordered values."""
        raise NotImplementedError(f"{self.name} does not come from ordered values")

    def of_one_row(self, argument: pa.DataType, arrow: pa.DataType) -> str | None:
        """The result of a group with one row, as SQL with {0} in place of the argument; None if SQL
        can't say it."""
        return None

    def bytes_of(self, argument: pa.DataType) -> int:
        """About how many bytes its state takes for a group, beside a count. Sums of doubles have
        all their bits, and so no fixed length."""
        return 48 if pa.types.is_floating(argument) else 16

    def __str__(self) -> str:
        return self.name
