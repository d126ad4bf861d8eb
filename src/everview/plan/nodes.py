"""Plan nodes: frozen, comparable, and the same after a round trip through JSON.

Expressions are Spark SQL text over the columns of a node's input. Column names are unique within
a plan, so that text never needs a qualifier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from everview.schema import Column


@dataclass(frozen=True)
class Node:
    """A step of a plan; `columns` are what it gives to the next."""

    kind: ClassVar[str]
    columns: tuple[Column, ...]

    def inputs(self) -> tuple[Node, ...]:
        return ()

    def walk(self) -> Iterator[Node]:
        for node in self.inputs():
            yield from node.walk()
        yield self

    def tables(self) -> set[str]:
        """The tables whose changes reach this node."""
        return {node.table for node in self.walk() if isinstance(node, Source)}

    def label(self) -> str:
        return self.kind

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "columns": [column.to_json() for column in self.columns],
            "inputs": [node.to_json() for node in self.inputs()],
        }

    @staticmethod
    def from_json(document: dict[str, Any]) -> Node:
        made: Node = _KINDS[document["kind"]]._read(
            document,
            tuple(Column.from_json(column) for column in document["columns"]),
            [Node.from_json(one) for one in document["inputs"]],
        )
        return made

    @classmethod
    def _read(
        cls, document: dict[str, Any], columns: tuple[Column, ...], inputs: list[Node]
    ) -> Node:
        raise NotImplementedError


@dataclass(frozen=True)
class Source(Node):
    """Changes of a table; `read[i]` is the table's name of `columns[i]`."""

    kind = "source"
    table: str
    read: tuple[str, ...]

    def label(self) -> str:
        return f"source {self.table} ({', '.join(self.read)})"

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"table": self.table, "read": list(self.read)}

    @classmethod
    def _read(
        cls, document: dict[str, Any], columns: tuple[Column, ...], inputs: list[Node]
    ) -> Node:
        return cls(columns, document["table"], tuple(document["read"]))


@dataclass(frozen=True)
class Filter(Node):
    kind = "filter"
    input: Node
    condition: str

    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def label(self) -> str:
        return f"filter {self.condition}"

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"condition": self.condition}

    @classmethod
    def _read(
        cls, document: dict[str, Any], columns: tuple[Column, ...], inputs: list[Node]
    ) -> Node:
        return cls(columns, inputs[0], document["condition"])


@dataclass(frozen=True)
class Project(Node):
    """`expressions[i]` makes `columns[i]`."""

    kind = "project"
    input: Node
    expressions: tuple[str, ...]

    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def label(self) -> str:
        return f"project {', '.join(self.expressions)}"

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"expressions": list(self.expressions)}

    @classmethod
    def _read(
        cls, document: dict[str, Any], columns: tuple[Column, ...], inputs: list[Node]
    ) -> Node:
        return cls(columns, inputs[0], tuple(document["expressions"]))


@dataclass(frozen=True)
class Call:
    """An aggregate function of a column of the input; None counts rows."""

    function: str
    argument: str | None


@dataclass(frozen=True)
class Aggregate(Node):
    """Groups by columns of the input; gives the groups' columns, then one for each call."""

    kind = "aggregate"
    input: Node
    groups: tuple[str, ...]
    calls: tuple[Call, ...]

    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def label(self) -> str:
        calls = ", ".join(f"{call.function}({call.argument or '*'})" for call in self.calls)
        return f"aggregate by ({', '.join(self.groups)}): {calls}"

    def to_json(self) -> dict[str, Any]:
        calls = [[call.function, call.argument] for call in self.calls]
        return super().to_json() | {"groups": list(self.groups), "calls": calls}

    @classmethod
    def _read(
        cls, document: dict[str, Any], columns: tuple[Column, ...], inputs: list[Node]
    ) -> Node:
        calls = tuple(Call(function, argument) for function, argument in document["calls"])
        return cls(columns, inputs[0], tuple(document["groups"]), calls)


_KINDS: dict[str, Any] = {node.kind: node for node in (Source, Filter, Project, Aggregate)}
