"""The contract of an aggregate function: what it keeps of a group, and what it makes of that.

Plans and operators ask the same object: plans what a function needs, takes and costs, operators
what to keep and what comes out. So this room lies below both, and a new function is one file here
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
        """What it is stored as: whole numbers, decimals or bytes; 0 or b"" says that there was
        nothing. Deltas are added up ahead of a shuffle only where no column is of bytes."""

    @abstractmethod
    def change(
        self, values: Sequence[pa.Array], weights: np.ndarray, ids: np.ndarray, count: int
    ) -> pa.Array:
        """What rows of a delta make, for groups 0 to count - 1; `values` has an array for each
        argument. A row with NULL makes nothing."""

    def add_up(self, changes: pa.Array, ids: np.ndarray, count: int) -> pa.Array:
        """Several changes in one, by group."""
        return sums.add_up(changes, ids, count)

    def added(self, stored: pa.Array, change: pa.Array) -> pa.Array:
        """The stored values with a change. Raises ArrowInvalid if one does not fit."""
        return sums.added(stored, change)


class OrderedValues(Protocol):
    """The values of an argument that some groups have, in order."""

    def end(self, last: bool) -> pa.Array:
        """The least value of each group, or the greatest; NULL where there is none."""


class AggregateFunction(ABC):
    """An aggregate function of one argument, or of a pair of which a row has both or none.

    `name` is what plans call it, and `catalyst` are the classes of Catalyst that mean it; of
    several functions of one class it is the one that Catalyst calls by its name, else the first.
    """

    name: str
    catalyst: tuple[str, ...]

    arguments: int = 1
    # it asks only whether its argument is there: without an argument it counts rows
    counts: bool = False
    # DISTINCT changes nothing, and plans leave it out
    ignores_distinct: bool = False
    # its result comes from the values of a group in order, of which state has all
    from_values: bool = False
    # what the engine calls the function that shows one column by the order of another
    twin: str | None = None

    @property
    def over_growing(self) -> AggregateFunction | None:
        """The function with less state that takes its place where no row ever goes, if there is
        one."""
        return None

    def gives(self, arrow: pa.DataType) -> bool:
        """Whether it can be kept where its results are of this type; else the engine recomputes
        it."""
        return True

    @abstractmethod
    def state(self) -> tuple[StateColumn, ...]:
        """What is kept for each group."""

    @abstractmethod
    def result(self, *state: pa.Array, arrow: pa.DataType) -> pa.Array:
        """The results of groups, of this type, from the columns that `state` names. Raises
        ArrowInvalid if one does not fit."""

    def of_values(self, values: OrderedValues) -> pa.Array:
        """The results of groups, if they come from ordered values."""
        raise NotImplementedError(f"{self.name} does not come from ordered values")

    def of_one_row(self, argument: pa.DataType, arrow: pa.DataType) -> str | None:
        """The result of a group with one row, as SQL with {0} in place of the argument; None if
        there are no words for it."""
        return None

    def bytes_of(self, argument: pa.DataType) -> int:
        """About how many bytes the state of a group has for it, beside a count. Sums of doubles
        have all their bits, and so no fixed length."""
        return 48 if pa.types.is_floating(argument) else 16

    def __str__(self) -> str:
        return self.name
