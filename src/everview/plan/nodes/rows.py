"""What the engine computes row by row, without state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from everview.plan.expressions import Tree, column_of, readable
from everview.plan.nodes.base import Key, KeyOfTable, Node, renamed
from everview.plan.placing import Distribution, renamed_places
from everview.plan.sizes import Flow, RowsOf


@dataclass(frozen=True, eq=False, repr=False)
class Filter(Node):
    kind = "filter"
    expressed = "condition"
    passes_rows = True
    input: Node
    condition: Tree

    def label(self) -> str:
        return f"filter {readable(self.condition)}"

    def distribution(self, lie: Sequence[Distribution]) -> Distribution:
        return lie[0]

    def only_grows(self) -> bool:
        return True

    def is_empty_of_nothing(self) -> bool:
        return True


@dataclass(frozen=True, eq=False, repr=False)
class Project(Node):
    """`expressions[i]` makes `columns[i]`."""

    kind = "project"
    expressed = "expressions"
    input: Node
    expressions: tuple[Tree, ...]

    def label(self) -> str:
        made = zip(self.expressions, self.names(), strict=True)
        shown = ((readable(tree), "" if column_of(tree) == name else name) for tree, name in made)
        return f"project {', '.join(f'{text} AS {name}' if name else text for text, name in shown)}"

    def unique_key(self, keys: Sequence[Key], key_of_table: KeyOfTable) -> Key:
        return renamed(keys[0], dict(reversed(self._passing())))

    def distribution(self, lie: Sequence[Distribution]) -> Distribution:
        return renamed_places(self._passing(), lie[0])

    def _passing(self) -> list[tuple[str, str]]:
        """The columns of the input that it passes on: their names there, and here."""
        made = zip(map(column_of, self.expressions), self.names(), strict=True)
        return [(old, name) for old, name in made if old is not None]

    def only_grows(self) -> bool:
        return True

    def is_empty_of_nothing(self) -> bool:
        return True


@dataclass(frozen=True, eq=False, repr=False)
class Generate(Node):
    """Several rows, or none, of each: the columns `kept`, then those that a generator gives."""

    kind = "generate"
    expressed = "generator"
    input: Node
    kept: tuple[str, ...]
    generator: Tree

    def label(self) -> str:
        made = ", ".join(self.names()[len(self.kept) :])
        return f"generate {readable(self.generator)} AS {made}"

    def distribution(self, lie: Sequence[Distribution]) -> Distribution:
        return renamed_places([(name, name) for name in self.kept], lie[0])

    def only_grows(self) -> bool:
        return True

    def is_empty_of_nothing(self) -> bool:
        return True


@dataclass(frozen=True, eq=False, repr=False)
class Union(Node):
    """All rows of all inputs, whose columns have the same names and types."""

    kind = "union"
    parts: tuple[Node, ...]

    def only_grows(self) -> bool:
        return True

    def flow(self, below: Sequence[Flow], rows_of: RowsOf, shards: int) -> Flow:
        return Flow(sum(flow.rows for flow in below), sum(flow.changes for flow in below))
