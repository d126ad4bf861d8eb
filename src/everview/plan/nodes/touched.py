"""Three nodes with which the engine recomputes the groups that a change touches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from everview.plan.expressions import Tree, readable
from everview.plan.nodes.base import BY_GROUP, Key, KeyOfTable, Node
from everview.plan.nodes.sources import Refresh
from everview.plan.placing import Distribution, keyed
from everview.plan.sizes import Flow, RowsOf, StateItems
from everview.plan.statistics import touched


@dataclass(frozen=True, eq=False, repr=False)
class Touched(Node):
    """All rows of the groups in which a row changed."""

    kind = "touched"
    is_operator = True
    passes_rows = True
    input: Node
    groups: tuple[str, ...]

    def label(self) -> str:
        return f"rows of touched groups by ({', '.join(self.groups)})"

    def maintenance(self) -> str:
        return BY_GROUP

    def has_row_of_nothing(self) -> bool:
        return not self.groups

    def shards_by(self, distributions: Sequence[Distribution]) -> tuple[Distribution, ...]:
        return (keyed(self.input.columns, distributions[0], self.groups),)

    def distribution(self, distributions: Sequence[Distribution]) -> Distribution:
        return None

    def state_items(self) -> Iterator[StateItems]:
        yield StateItems(self.input, self.groups, tuple(self.names()), in_key=True)

    def flow(self, below: Sequence[Flow], rows_of: RowsOf, shards: int) -> Flow:
        """All rows of the touched groups."""
        (delta,), of_input = below, rows_of(self.input)
        groups = of_input.distinct(self.groups) if self.groups else 1.0
        hit = touched(delta.changes, groups)
        rows = hit * of_input.rows / groups
        return Flow(rows + hit, hit, delta.rows, rows, delta.rows)


@dataclass(frozen=True, eq=False, repr=False)
class Recompute(Node):
    """Rows that the engine computes from whole groups: their own rows with more columns, or one row
    for each group."""

    kind = "recompute"
    expression_field = "expressions"
    input: Touched
    expressions: tuple[Tree, ...]
    rows_stay: bool

    def label(self) -> str:
        what = "window" if self.rows_stay else "aggregate"
        return f"{what} {', '.join(map(readable, self.expressions))}"

    def maintenance(self) -> str:
        return BY_GROUP

    def unique_key(self, keys: Sequence[Key], key_of_table: KeyOfTable) -> Key:
        return keys[0] if self.rows_stay else self.input.groups

    def flow(self, below: Sequence[Flow], rows_of: RowsOf, shards: int) -> Flow:
        changes = below[0].changes
        return below[0] if self.rows_stay else Flow(changes, changes)


@dataclass(frozen=True, eq=False, repr=False)
class Replace(Node):
    """The difference between the rows computed for groups now and those before.

    With `always`, the one group of all rows has a row even when it has none.
    """

    kind = "replace"
    is_operator = True
    input: Recompute | Refresh
    groups: tuple[str, ...]
    always: bool

    def label(self) -> str:
        return f"replace by ({', '.join(self.groups)})"

    def maintenance(self) -> str:
        return self.input.maintenance()

    def unique_key(self, keys: Sequence[Key], key_of_table: KeyOfTable) -> Key:
        return keys[0]

    def shards_by(self, distributions: Sequence[Distribution]) -> tuple[Distribution, ...]:
        return (keyed(self.input.columns, distributions[0], self.groups),)

    def state_items(self) -> Iterator[StateItems]:
        yield StateItems(self, self.groups, tuple(self.names()))

    def flow(self, below: Sequence[Flow], rows_of: RowsOf, shards: int) -> Flow:
        """All rows of touched groups, as each may differ."""
        rows = below[0].rows
        return Flow(rows, below[0].changes, rows, rows, rows)
