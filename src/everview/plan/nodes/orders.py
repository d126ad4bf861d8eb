"""Nodes that order values: rows that pass a threshold, and the first rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from everview.plan.nodes.base import Node, later, part
from everview.plan.placing import Distribution, as_it_lies, keyed
from everview.plan.sizes import GUESS, Flow, Rows, RowsOf, StateItems, ratio
from everview.plan.statistics import touched
from everview.schema import Column


@dataclass(frozen=True, eq=False, repr=False)
class Threshold(Node):
    """Rows whose column compares with the one value of `scalar`, a plan of at most one row."""

    kind = "threshold"
    is_operator = True
    passes_rows = True
    input: Node
    scalar: Node
    column_: str
    comparison: str

    def label(self) -> str:
        return f"threshold {self.column_} {self.comparison} {self.scalar.columns[0].name}"

    def required_columns(self, needed: set[str]) -> set[str]:
        return needed | {self.column_}

    def ordered_columns(self) -> Iterator[tuple[str, Column]]:
        yield "a comparison of", self.column(self.column_)

    def is_empty_of_nothing(self) -> bool:
        return True

    def shards_by(self, distributions: Sequence[Distribution]) -> tuple[Distribution, ...]:
        return (as_it_lies(self.input.columns, distributions[0]), None)

    def expected_rows(self, below: Sequence[Rows]) -> float:
        equal = self.comparison == "="
        share = 1 / below[0].distinct([self.column_]) if equal else GUESS
        return below[0].rows * share

    def state_items(self) -> Iterator[StateItems]:
        yield StateItems(self.input, (self.column_,), tuple(self.names()))

    def flow(self, below: Sequence[Flow], rows_of: RowsOf, shards: int) -> Flow:
        rows, scalar = below
        passed = rows.times(ratio(rows_of, self, self.input))
        moves = float(scalar.rows > 0)
        rows_in = rows.rows + scalar.rows
        return Flow(passed.rows, passed.changes, rows_in, 1.0, rows.rows + moves)


@part
@dataclass(frozen=True)
class Order:
    """A column to sort by."""

    column: str
    descending: bool
    nulls_first: bool

    def __str__(self) -> str:
        nulls = (
            ""
            if self.nulls_first != self.descending
            else (" NULLS FIRST" if self.nulls_first else " NULLS LAST")
        )
        return f"{self.column}{' DESC' * self.descending}{nulls}"


@dataclass(frozen=True, eq=False, repr=False)
class TopK(Node):
    """The first rows in an order, after `offset` others; the bytes of rows break ties. From a
    `growing` input no row ever goes."""

    kind = "top-k"
    is_operator = True
    passes_rows = True
    input: Node
    order: tuple[Order, ...]
    limit: int
    offset: int = 0
    growing: bool = later(False)

    def label(self) -> str:
        after = f" after {self.offset}" if self.offset else ""
        grows = ", of rows that stay" if self.growing else ""
        return f"top {self.limit}{after} by ({', '.join(map(str, self.order))}){grows}"

    def required_columns(self, needed: set[str]) -> set[str]:
        return needed | {order.column for order in self.order}

    def ordered_columns(self) -> Iterator[tuple[str, Column]]:
        yield from (("ORDER BY", self.column(by.column)) for by in self.order)

    def is_empty_of_nothing(self) -> bool:
        return True

    def expected_rows(self, below: Sequence[Rows]) -> float:
        return min(below[0].rows, self.limit)

    def state_items(self) -> Iterator[StateItems]:
        yield StateItems(self.input, tuple(by.column for by in self.order), tuple(self.names()))

    def flow(self, below: Sequence[Flow], rows_of: RowsOf, shards: int) -> Flow:
        all_rows, rows = rows_of(self.input).rows, below[0].rows
        reads = 2 * min(self.limit + self.offset + 1, all_rows)
        output = 2 * min(self.limit, all_rows)
        return Flow(output, output / 2, rows, reads, rows)


@dataclass(frozen=True, eq=False, repr=False)
class TopKByGroup(Node):
    """The first rows of each group in an order, after `offset` others; the bytes of rows break
    ties."""

    kind = "top_k_by_group"
    is_operator = True
    passes_rows = True
    input: Node
    groups: tuple[str, ...]
    order: tuple[Order, ...]
    limit: int
    offset: int

    def label(self) -> str:
        after = f" after {self.offset}" if self.offset else ""
        order = ", ".join(map(str, self.order))
        return f"top {self.limit}{after} of each ({', '.join(self.groups)}) by ({order})"

    def required_columns(self, needed: set[str]) -> set[str]:
        return needed | set(self.groups) | {order.column for order in self.order}

    def ordered_columns(self) -> Iterator[tuple[str, Column]]:
        yield from (("ORDER BY", self.column(by.column)) for by in self.order)

    def is_empty_of_nothing(self) -> bool:
        return True

    def shards_by(self, distributions: Sequence[Distribution]) -> tuple[Distribution, ...]:
        return (keyed(self.input.columns, distributions[0], self.groups),)

    def expected_rows(self, below: Sequence[Rows]) -> float:
        return min(below[0].rows, self.limit * below[0].distinct(self.groups))

    def state_items(self) -> Iterator[StateItems]:
        names = (*self.groups, *(by.column for by in self.order))
        yield StateItems(self.input, names, tuple(self.names()))

    def flow(self, below: Sequence[Flow], rows_of: RowsOf, shards: int) -> Flow:
        """The first rows of touched groups are read twice."""
        (delta,), of_input = below, rows_of(self.input)
        groups = max(of_input.distinct(self.groups), 1.0)
        hit = touched(delta.changes, groups)
        each = min(self.limit + self.offset, of_input.rows / groups)
        moved = min(delta.rows, hit * each)
        return Flow(2 * moved, moved, delta.rows, 2 * hit * each, delta.rows)
