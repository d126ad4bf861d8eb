"""What a node says about its state and its work, before there are any numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from everview.plan.nodes import Node

GUESS = 1 / 3  # of the rows, where a condition can't be measured


@dataclass(frozen=True)
class StateItems:
    """Items that an operator keeps: rows of a node under a key, with those columns; or of each key
    one value of so many bytes.

    What is `in_key` exactly is not kept again. `groups` is the node whose rows are the keys, if
    there is one. What is `copied` is in every shard.
    """

    rows: Node
    key: tuple[str, ...]
    names: tuple[str, ...] = ()
    in_key: bool = False
    value: int | None = None
    groups: Node | None = None
    copied: bool = False


class Rows(Protocol):
    """What is expected of the rows of a node."""

    @property
    def rows(self) -> float: ...

    def distinct(self, names: Iterable[str]) -> float:
        """How many distinct values the columns have together."""


RowsOf = Callable[["Node"], Rows]


@dataclass(frozen=True)
class Flow:
    """Of a node: `rows` of its delta, which come from so many `changes`; what goes into an
    operator, and what it reads and writes of its state."""

    rows: float = 0.0
    changes: float = 0.0
    rows_in: float = 0.0
    reads: float = 0.0
    writes: float = 0.0

    @property
    def each(self) -> float:
        """Rows of the delta for each change: two if all are updates."""
        return self.rows / self.changes if self.changes else 0.0

    def times(self, share: float) -> Flow:
        return Flow(self.rows * share, self.changes * share)

    def with_rows_of(self, other: Flow) -> Flow:
        """The deltas of both."""
        return Flow(self.rows + other.rows, self.changes + other.changes)


def ratio(rows_of: RowsOf, node: Node, below: Node) -> float:
    """How many rows a node gives for each of those below it."""
    rows = rows_of(below).rows
    return rows_of(node).rows / rows if rows else 0.0
