"""What the engine computes row by row, without state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from everview.plan.dialects import on_spark
from everview.plan.nodes.base import Key, KeyOfTable, Node, renamed
from everview.plan.placing import Distribution, renamed_places
from everview.plan.sizes import Flow, RowsOf
from everview.schema import unquoted


@dataclass(frozen=True, eq=False, repr=False)
class Filter(Node):
    kind = "filter"
    passes_rows = True
    input: Node
    condition: str

    def label(self) -> str:
        return on_spark(f"filter {self.condition}")

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
    input: Node
    expressions: tuple[str, ...]

    def label(self) -> str:
        made = zip(self.expressions, self.names(), strict=True)
        texts = [text if unquoted(text) == name else f"{text} AS {name}" for text, name in made]
        return on_spark(f"project {', '.join(texts)}")

    def unique_key(self, keys: Sequence[Key], key_of_table: KeyOfTable) -> Key:
        made = zip(self.expressions, self.names(), strict=True)
        return renamed(keys[0], {unquoted(text): name for text, name in reversed(list(made))})

    def distribution(self, lie: Sequence[Distribution]) -> Distribution:
        made = zip(self.expressions, self.names(), strict=True)
        return renamed_places([(unquoted(text), name) for text, name in made], lie[0])

    def only_grows(self) -> bool:
        return True

    def is_empty_of_nothing(self) -> bool:
        return True


@dataclass(frozen=True, eq=False, repr=False)
class Generate(Node):
    """Several rows, or none, of each: the columns `kept`, then those that a generator gives."""

    kind = "generate"
    input: Node
    kept: tuple[str, ...]
    generator: str

    def label(self) -> str:
        made = ", ".join(self.names()[len(self.kept) :])
        return on_spark(f"generate {self.generator} AS {made}")

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
