"""What every plan node is: frozen, comparable, and the same after a round trip through JSON.

A node answers all questions about itself: which columns of its inputs it needs, how rows lie in
shards, what their key is, its state and its work. The defaults are right for any node, if not the
cheapest, so that a new node says only what is different.

Expressions are trees over the columns of a node's input, whose names are unique there. Names come
from the query and never from a node's place in a plan: equal parts of different queries are equal
nodes. A plan is a graph: a node that several nodes read is stored and walked once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, ClassVar, TypeVar

from everview.plan.conditions import Condition
from everview.plan.expressions import Tree, Written
from everview.plan.placing import Distribution
from everview.plan.sizes import Flow, Rows, RowsOf, StateItems, ratio
from everview.schema import Column

Key = tuple[str, ...] | None
KeyOfTable = Callable[[str], Key]
INCREMENTAL = "incremental"
BY_GROUP = "by touched group"
IN_FULL = "in full, computed anew from whole tables whenever one of them changes"
REREADS = "re-reads all rows of its left side when its right side changes"
_KINDS: dict[str, Any] = {}
_PARTS: dict[str, Any] = {"Column": Column, "Condition": Condition}
T = TypeVar("T")


def later(default: Any) -> Any:
    """A field that older versions did not store. JSON leaves it out while it has its default, so
    that old nodes keep their identity."""
    return field(default=default, kw_only=True)


def part(kind: type[T]) -> type[T]:
    """Register a dataclass that nodes have in their fields."""
    _PARTS[kind.__name__] = kind
    return kind


@dataclass(frozen=True, eq=False, repr=False)
class Node:
    """A step of a plan; `columns` are those of its output."""

    kind: ClassVar[str]
    # it has state, in shards; the engine computes other nodes
    is_operator: ClassVar[bool] = False
    # its rows are some of those of its first input, or all
    passes_rows: ClassVar[bool] = False
    expression_field: ClassVar[str] = ""  # the field that has its expressions
    columns: tuple[Column, ...]

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            _KINDS[cls.kind] = cls

    def inputs(self) -> tuple[Node, ...]:
        return self._inputs

    @cached_property
    def _inputs(self) -> tuple[Node, ...]:
        values = (getattr(self, attribute.name) for attribute in fields(self))
        return tuple(node for value in values for node in _nodes(value))

    def walk(self, ends: Callable[[Node], bool] = lambda node: False) -> Iterator[Node]:
        """Every node of the plan once, inputs first; but nothing below a node that `ends` it."""
        seen: set[str] = set()
        remaining: list[tuple[Node, bool]] = [(self, False)]
        while remaining:
            node, is_done = remaining.pop()
            if is_done:
                yield node
            elif node.identity not in seen:
                seen.add(node.identity)
                remaining.append((node, True))
                below = () if ends(node) else node.inputs()
                remaining += [(input_node, False) for input_node in reversed(below)]

    def with_inputs(self, change: Callable[[Node], Node]) -> Node:
        """The node with each of its inputs changed."""
        values = {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}
        return replace(self, **{name: _changed(value, change) for name, value in values.items()})

    def tables(self) -> set[str]:
        """The tables whose changes reach this node."""
        return {table for node in self.walk() for table in node.own_tables()}

    def own_tables(self) -> set[str]:
        """The tables that the node itself reads."""
        return set()

    def trees(self) -> list[Tree]:
        """The expressions of the node itself."""
        return list(_trees(getattr(self, self.expression_field))) if self.expression_field else []

    def label(self) -> str:
        return self.kind

    def maintenance(self) -> str:
        """How the node follows changes, in words."""
        return INCREMENTAL

    def required_columns(self, needed: set[str]) -> set[str] | None:
        """The columns of its first input that it needs for the needed columns of its own; None for
        all. It needs all columns of other inputs."""
        return None

    def unique_key(self, keys: Sequence[Key], key_of_table: KeyOfTable) -> Key:
        """Columns that are unique together, if it knows any from the keys of its inputs; NULL is
        one value."""
        return keys[0] if self.passes_rows else None

    def equal_columns(self) -> Sequence[tuple[str, str]]:
        """Pairs of its columns that are equal in every row, as it knows them."""
        return ()

    def ordered_columns(self) -> Iterator[tuple[str, Column]]:
        """The columns whose values it puts in order, and what for."""
        return iter(())

    def only_grows(self) -> bool:
        """Whether no row of it ever goes if none of its inputs does."""
        return False

    def is_empty_of_nothing(self) -> bool:
        """Whether it has no rows if its inputs have none."""
        return False

    def has_row_of_nothing(self) -> bool:
        """Whether it has a row even if its inputs never had one."""
        return False

    def shards_by(self, distributions: Sequence[Distribution]) -> tuple[Distribution, ...]:
        """The distribution that an operator needs of each input, if inputs have these
        distributions; None stands for a copy in every shard."""
        return ((),) * len(distributions)

    def distribution(self, distributions: Sequence[Distribution]) -> Distribution:
        """How its rows lie, if its inputs have these distributions."""
        return self.shards_by(distributions)[0] if self.is_operator else None

    def expected_rows(self, below: Sequence[Rows]) -> float:
        """How many rows it has, if its inputs have so many."""
        return below[0].rows

    def state_items(self) -> Iterator[StateItems]:
        """The state of an operator: all rows of its inputs."""
        for input_node in self.inputs():
            yield StateItems(input_node, (), tuple(input_node.names()))

    def flow(self, below: Sequence[Flow], rows_of: RowsOf, shards: int) -> Flow:
        """The delta and the work of the node for the deltas of its inputs. An operator reads and
        writes an item for each of their rows."""
        rows = sum(delta.rows for delta in below)
        share = ratio(rows_of, self, self.inputs()[0])
        output = below[0].times(share)
        return Flow(output.rows, output.changes, rows, rows, rows) if self.is_operator else output

    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    @cached_property
    def text(self) -> str:
        """The plan as JSON text."""
        return json.dumps(self.to_json(), sort_keys=True)

    @cached_property
    def own_text(self) -> str:
        """The node as JSON text, with only the columns of its inputs."""
        return self.with_inputs(lambda input_node: Constant(input_node.columns, ())).text

    @cached_property
    def identity(self) -> str:
        """The same for equal nodes, and only for them."""
        remaining = list(self.inputs())
        while remaining:  # inputs first, as plans may be deeper than Python's stack
            waiting = [below for below in remaining[-1].inputs() if "identity" not in vars(below)]
            if not waiting:
                remaining.pop().identity  # noqa: B018
            remaining += waiting
        own = json.dumps(self._own(lambda input_node: input_node.identity), sort_keys=True)
        return blake2b(own.encode(), digest_size=10).hexdigest()

    def __repr__(self) -> str:
        return f"<{self.label()}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    def to_json(self) -> list[dict[str, Any]]:
        """All nodes of the plan, inputs first; a node has the places of its inputs."""
        places: dict[str, int] = {}
        documents = []
        for node in self.walk():
            documents.append(node._own(lambda input_node: places[input_node.identity]))
            places[node.identity] = len(places)
        return documents

    def _own(self, name: Callable[[Node], Any]) -> dict[str, Any]:
        values = [(attribute, getattr(self, attribute.name)) for attribute in fields(self)]
        stored = [
            (attribute, value)
            for attribute, value in values
            if not attribute.kw_only or value != attribute.default
        ]
        return {
            "kind": self.kind,
            **{attribute.name: _to_json(value, name) for attribute, value in stored},
        }

    @staticmethod
    def from_json(documents: list[dict[str, Any]]) -> Node:
        nodes: list[Node] = []
        for document in documents:
            kind = _KINDS[document["kind"]]
            names = [attribute.name for attribute in fields(kind) if attribute.name in document]
            values = {name: _from_json(document[name], nodes) for name in names}
            if kind.expression_field:
                values[kind.expression_field] = _as_trees(values[kind.expression_field])
            nodes.append(kind(**values))
        return nodes[-1]


@lru_cache(4096)
def node_of(text: str) -> Node:
    """The plan of a JSON text."""
    return Node.from_json(json.loads(text))


@dataclass(frozen=True, eq=False, repr=False)
class Constant(Node):
    """Rows that never change."""

    kind = "constant"
    expression_field = "rows"
    rows: tuple[tuple[Tree, ...], ...]

    def label(self) -> str:
        return f"constant ({len(self.rows)} row{'s' * (len(self.rows) != 1)})"


def renamed(key: Key, names_above: Mapping[str, str]) -> Key:
    """A key in the names that its columns have further up; None if a column is not there."""
    if key is None or not all(name in names_above for name in key):
        return None
    return tuple(names_above[name] for name in key)


def _nodes(value: Any) -> tuple[Node, ...]:
    if isinstance(value, Node):
        return (value,)
    items = value if isinstance(value, tuple) else ()
    return tuple(item for item in items if isinstance(item, Node))


def _trees(value: Any) -> Iterator[Tree]:
    if isinstance(value, Tree):
        yield value
    else:
        for item in value:
            yield from _trees(item)


def _as_trees(value: Any) -> Any:
    """Stored expressions as trees; older versions stored texts."""
    if isinstance(value, str):
        return Written(value)
    return tuple(map(_as_trees, value)) if isinstance(value, tuple) else value


def _changed(value: Any, change: Callable[[Node], Node]) -> Any:
    if isinstance(value, Node):
        return change(value)
    return tuple(_changed(item, change) for item in value) if isinstance(value, tuple) else value


def _to_json(value: Any, name: Callable[[Node], Any]) -> Any:
    if isinstance(value, Node):
        return {"node": name(value)}
    if isinstance(value, Written):
        return value.text
    if isinstance(value, Tree):
        return {"tree": value.to_json()}
    if isinstance(value, Column):
        return {"part": "Column", **value.to_json()}
    if type(value).__name__ in _PARTS:
        return {"part": type(value).__name__, **vars(value)}
    return [_to_json(item, name) for item in value] if isinstance(value, tuple) else value


def _from_json(value: Any, nodes: list[Node]) -> Any:
    if isinstance(value, list):
        return tuple(_from_json(item, nodes) for item in value)
    if not isinstance(value, dict):
        return value
    if "node" in value:
        return nodes[value["node"]]
    if "tree" in value:
        return Tree.from_json(value["tree"])
    if value["part"] == "Column":
        return Column.from_json(value)
    fields_of_part = {name: item for name, item in value.items() if name != "part"}
    return _PARTS[value["part"]](
        **{name: _from_json(item, nodes) for name, item in fields_of_part.items()}
    )
