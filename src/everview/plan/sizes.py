"""How a node describes its state and its work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from everview.plan.nodes import Node

GUESS = 1 / 3  # the share of rows that pass a condition which can't be measured


@dataclass(frozen=True)
class StateItems:
    """Items that an operator stores: rows of a node under a key, with the columns `names`; or for
    each key one value of so many bytes.

    With `in_key`, columns that the key has exactly are not stored again. `groups` is the node whose
    rows are the keys, if there is one. `copied` items are in every shard.
    """

    rows: Node
    key: tuple[str, ...]
    names: tuple[str, ...] = ()
    in_key: bool = False
    value: int | None = None
    groups: Node | None = None
    copied: bool = False


class Rows(Protocol):
    """The expected rows of a node."""

    @property
    def rows(self) -> float: ...

    def distinct(self, names: Iterable[str]) -> float:
        """How many distinct values the columns have together."""


RowsOf = Callable[["Node"], Rows]


@dataclass(frozen=True)
class Flow:
    """The `rows` of a node's delta, which come from so many `changes`; for an operator also the
    rows that come in, and the reads and writes of its state."""

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
        """The sum of the deltas of both."""
        return Flow(self.rows + other.rows, self.changes + other.changes)


def ratio(rows_of: RowsOf, node: Node, below: Node) -> float:
    """How many rows a node has for each row of the node below."""
    rows = rows_of(below).rows
    return rows_of(node).rows / rows if rows else 0.0
