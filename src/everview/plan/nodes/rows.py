"""Nodes that the engine computes row by row, without state."""

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
    expression_field = "condition"
    passes_rows = True
    input: Node
    condition: Tree

    def equal_columns(self) -> Sequence[tuple[str, str]]:
        return self.input.equal_columns()

    def label(self) -> str:
        return f"filter {readable(self.condition)}"

    def distribution(self, distributions: Sequence[Distribution]) -> Distribution:
        return distributions[0]

    def only_grows(self) -> bool:
        return True

    def is_empty_of_nothing(self) -> bool:
        return True


@dataclass(frozen=True, eq=False, repr=False)
class Project(Node):
    """`expressions[i]` computes `columns[i]`."""

    kind = "project"
    expression_field = "expressions"
    input: Node
    expressions: tuple[Tree, ...]

    def label(self) -> str:
        pairs = zip(self.expressions, self.names(), strict=True)
        texts = (
            readable(tree) if column_of(tree) == name else f"{readable(tree)} AS {name}"
            for tree, name in pairs
        )
        return f"project {', '.join(texts)}"

    def unique_key(self, keys: Sequence[Key], key_of_table: KeyOfTable) -> Key:
        names = dict(reversed(self._passing()))
        for pair in self.input.equal_columns():
            for name, other in (pair, pair[::-1]):
                if other in names:
                    names.setdefault(name, names[other])
        return renamed(keys[0], names)

    def distribution(self, distributions: Sequence[Distribution]) -> Distribution:
        return renamed_places(self._passing(), distributions[0])

    def _passing(self) -> list[tuple[str, str]]:
        """The columns of the input that it passes on: their names there, and here."""
        pairs = zip(map(column_of, self.expressions), self.names(), strict=True)
        return [(old, name) for old, name in pairs if old is not None]

    def only_grows(self) -> bool:
        return True

    def is_empty_of_nothing(self) -> bool:
        return True


@dataclass(frozen=True, eq=False, repr=False)
class Generate(Node):
    """Several rows, or none, for each row: the columns `kept`, then those of a generator."""

    kind = "generate"
    expression_field = "generator"
    input: Node
    kept: tuple[str, ...]
    generator: Tree

    def label(self) -> str:
        generated = ", ".join(self.names()[len(self.kept) :])
        return f"generate {readable(self.generator)} AS {generated}"

    def distribution(self, distributions: Sequence[Distribution]) -> Distribution:
        return renamed_places([(name, name) for name in self.kept], distributions[0])

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
