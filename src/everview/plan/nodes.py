"""Plan nodes: frozen, comparable, and the same after a round trip through JSON.

Expressions are trees over the columns of a node's input, whose names are unique there. Names come
from the query's own names and never from where in a plan a node stands: equal parts of different
queries are equal nodes. A plan is a graph: what several nodes read is written and walked once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, ClassVar

from everview.plan.conditions import Condition
from everview.plan.expressions import Tree, Written, column_of, readable
from everview.schema import Column


def later(default: Any) -> Any:
    """A field that nodes were once stored without: left out of their JSON while it has its default,
    so that those nodes are still the same."""
    return field(default=default, kw_only=True)


@dataclass(frozen=True, eq=False, repr=False)
class Node:
    """A step of a plan; `columns` are what it gives to the next."""

    kind: ClassVar[str]
    expressed: ClassVar[str] = ""  # the field that has its expressions
    columns: tuple[Column, ...]

    def inputs(self) -> tuple[Node, ...]:
        return self._inputs

    @cached_property
    def _inputs(self) -> tuple[Node, ...]:
        found = (getattr(self, one.name) for one in fields(self))
        return tuple(node for value in found for node in _nodes(value))

    def walk(self, ends: Callable[[Node], bool] = lambda node: False) -> Iterator[Node]:
        """Every node of the plan once, inputs first; but nothing below a node where it `ends`."""
        seen: set[str] = set()
        left: list[tuple[Node, bool]] = [(self, False)]
        while left:
            node, is_done = left.pop()
            if is_done:
                yield node
            elif node.identity not in seen:
                seen.add(node.identity)
                left.append((node, True))
                below = () if ends(node) else node.inputs()
                left += [(one, False) for one in reversed(below)]

    def with_inputs(self, change: Callable[[Node], Node]) -> Node:
        """The node with each of its inputs changed."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(self, **{name: _changed(value, change) for name, value in values.items()})

    def tables(self) -> set[str]:
        """The tables whose changes reach this node."""
        return {node.table for node in self.walk() if isinstance(node, Source)}

    def trees(self) -> list[Tree]:
        """The expressions of the node itself."""
        return list(_trees(getattr(self, self.expressed))) if self.expressed else []

    def label(self) -> str:
        return self.kind

    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    @cached_property
    def text(self) -> str:
        """The plan as JSON text."""
        return json.dumps(self.to_json(), sort_keys=True)

    @cached_property
    def alone(self) -> str:
        """The node as JSON text, with no more of its inputs than their columns."""
        return self.with_inputs(lambda one: Constant(one.columns, ())).text

    @cached_property
    def identity(self) -> str:
        """The same for equal nodes, and only for them."""
        left = list(self.inputs())
        while left:  # from below, as plans may be deeper than Python's stack
            waiting = [one for one in left[-1].inputs() if "identity" not in vars(one)]
            if not waiting:
                left.pop().identity  # noqa: B018
            left += waiting
        own = json.dumps(self._own(lambda one: one.identity), sort_keys=True)
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
        found = []
        for node in self.walk():
            found.append(node._own(lambda one: places[one.identity]))
            places[node.identity] = len(places)
        return found

    def _own(self, name: Callable[[Node], Any]) -> dict[str, Any]:
        values = [(one, getattr(self, one.name)) for one in fields(self)]
        given = [(one, value) for one, value in values if not one.kw_only or value != one.default]
        return {"kind": self.kind, **{one.name: _to_json(value, name) for one, value in given}}

    @staticmethod
    def from_json(documents: list[dict[str, Any]]) -> Node:
        nodes: list[Node] = []
        for document in documents:
            kind = _KINDS[document["kind"]]
            given = [one.name for one in fields(kind) if one.name in document]
            values = {name: _from_json(document[name], nodes) for name in given}
            if kind.expressed:
                values[kind.expressed] = _as_trees(values[kind.expressed])
            nodes.append(kind(**values))
        return nodes[-1]


@lru_cache(4096)
def node_of(text: str) -> Node:
    """The plan of a JSON text."""
    return Node.from_json(json.loads(text))


@dataclass(frozen=True, eq=False, repr=False)
class Source(Node):
    """Changes of those rows of a table for which all conditions `where` hold; `read[i]` is the
    table's name of `columns[i]`."""

    kind = "source"
    table: str
    read: tuple[str, ...]
    where: tuple[Condition, ...] = later(())

    def label(self) -> str:
        where = f" where {' AND '.join(map(str, self.where))}" if self.where else ""
        return f"source {self.table} ({', '.join(self.read)}){where}"


@dataclass(frozen=True, eq=False, repr=False)
class Constant(Node):
    """Rows that never change."""

    kind = "constant"
    expressed = "rows"
    rows: tuple[tuple[Tree, ...], ...]

    def label(self) -> str:
        return f"constant ({len(self.rows)} row{'s' * (len(self.rows) != 1)})"


@dataclass(frozen=True, eq=False, repr=False)
class Filter(Node):
    kind = "filter"
    expressed = "condition"
    input: Node
    condition: Tree

    def label(self) -> str:
        return f"filter {readable(self.condition)}"


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


@dataclass(frozen=True, eq=False, repr=False)
class Union(Node):
    """All rows of all inputs, whose columns have the same names and types."""

    kind = "union"
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Call:
    """An aggregate function of a column of the input, or of two; None counts rows.

    Of two, a row has both or none.
    """

    function: str
    argument: str | None
    distinct: bool = False
    other: str | None = None

    def __str__(self) -> str:
        arguments = ", ".join(filter(None, [self.argument or "*", self.other]))
        return f"{self.function}({'DISTINCT ' * self.distinct}{arguments})"


@dataclass(frozen=True, eq=False, repr=False)
class Aggregate(Node):
    """Groups by columns of the input; gives the groups' columns, then one for each call.

    From a `growing` input no row ever goes.
    """

    kind = "aggregate"
    input: Node
    groups: tuple[str, ...]
    calls: tuple[Call, ...]
    growing: bool = later(False)

    def label(self) -> str:
        calls = ", ".join(map(str, self.calls))
        groups = f" by ({', '.join(self.groups)})" if self.groups else " of all rows"
        grows = ", of rows that stay" if self.growing else ""
        return f"aggregate{groups}{': ' * bool(calls)}{calls}{grows}"


@dataclass(frozen=True, eq=False, repr=False)
class Join(Node):
    """Rows of the left with those of the right whose keys are equal.

    `how`: inner, left and full give the columns of both; single is a left join that allows one
    match at most; semi and anti give those of the left, for rows that have a match or have none;
    existence gives them all, and whether they have one. `null_safe[i]`: NULL equals NULL in the
    i-th key. A `replicated` right side is small, and kept whole with every shard of the left. Of
    a `unique` right side no two rows have equal keys.
    """

    kind = "join"
    left: Node
    right: Node
    how: str
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    null_safe: tuple[bool, ...]
    replicated: bool
    unique: bool = later(False)

    def label(self) -> str:
        pairs = zip(self.left_keys, self.right_keys, self.null_safe, strict=True)
        on = [f"{left} {'<=>' if safe else '='} {right}" for left, right, safe in pairs]
        side = ", one match at most" if self.unique else ""
        side += ", right side replicated" if self.replicated else ""
        return f"{self.how} join on {' AND '.join(on) or 'true'}{side}"


@dataclass(frozen=True, eq=False, repr=False)
class Threshold(Node):
    """Rows whose column compares with the one value of `scalar`, a plan of at most one row."""

    kind = "threshold"
    input: Node
    scalar: Node
    column_: str
    comparison: str

    def label(self) -> str:
        return f"threshold {self.column_} {self.comparison} {self.scalar.columns[0].name}"


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
    """The first rows in an order, after `offset` others; between rows that are equal in it, their
    bytes decide. From a `growing` input no row ever goes."""

    kind = "top-k"
    input: Node
    order: tuple[Order, ...]
    limit: int
    offset: int = 0
    growing: bool = later(False)

    def label(self) -> str:
        after = f" after {self.offset}" if self.offset else ""
        grows = ", of rows that stay" if self.growing else ""
        return f"top {self.limit}{after} by ({', '.join(map(str, self.order))}){grows}"


@dataclass(frozen=True, eq=False, repr=False)
class Touched(Node):
    """All rows of those groups of which a row changed."""

    kind = "touched"
    input: Node
    groups: tuple[str, ...]

    def label(self) -> str:
        return f"rows of touched groups by ({', '.join(self.groups)})"


@dataclass(frozen=True, eq=False, repr=False)
class Recompute(Node):
    """What the engine computes from the rows of whole groups: rows of theirs with more columns,
    or one row of each."""

    kind = "recompute"
    expressed = "expressions"
    input: Touched
    expressions: tuple[Tree, ...]
    rows_stay: bool

    def label(self) -> str:
        what = "window" if self.rows_stay else "aggregate"
        return f"{what} {', '.join(map(readable, self.expressions))}"


@dataclass(frozen=True, eq=False, repr=False)
class Refresh(Node):
    """What the engine computes of a whole query over whole tables, whenever one of them changes."""

    kind = "refresh"
    expressed = "query"
    sources: tuple[Source, ...]
    query: Tree

    def label(self) -> str:
        return f"refresh: the whole query over {', '.join(one.table for one in self.sources)}"


@dataclass(frozen=True, eq=False, repr=False)
class Replace(Node):
    """The difference between what is computed for groups now and what was before.

    With `always`, the one group of all rows has a row even when it has none.
    """

    kind = "replace"
    input: Recompute | Refresh
    groups: tuple[str, ...]
    always: bool

    def label(self) -> str:
        return f"replace by ({', '.join(self.groups)})"


_KINDS: dict[str, Any] = {
    node.kind: node
    for node in (
        *(Source, Constant, Filter, Project, Generate, Union, Aggregate, Join, Threshold, TopK),
        *(Touched, Recompute, Refresh, Replace),
    )
}
_PARTS: dict[str, Any] = {part.__name__: part for part in (Column, Call, Order, Condition)}


def _nodes(value: Any) -> tuple[Node, ...]:
    if isinstance(value, Node):
        return (value,)
    return tuple(one for one in value if isinstance(one, Node)) if isinstance(value, tuple) else ()


def _trees(value: Any) -> Iterator[Tree]:
    if isinstance(value, Tree):
        yield value
    else:
        for one in value:
            yield from _trees(one)


def _as_trees(value: Any) -> Any:
    """Expressions that were stored; before there were trees, each was a text."""
    if isinstance(value, str):
        return Written(value)
    return tuple(map(_as_trees, value)) if isinstance(value, tuple) else value


def _changed(value: Any, change: Callable[[Node], Node]) -> Any:
    if isinstance(value, Node):
        return change(value)
    return tuple(_changed(one, change) for one in value) if isinstance(value, tuple) else value


def _to_json(value: Any, name: Callable[[Node], Any]) -> Any:
    if isinstance(value, Node):
        return {"node": name(value)}
    if isinstance(value, Written):
        return value.text
    if isinstance(value, Tree):
        return {"tree": value.to_json()}
    if isinstance(value, Column):
        return {"part": "Column", **value.to_json()}
    if isinstance(value, Call | Order | Condition):
        return {"part": type(value).__name__, **vars(value)}
    return [_to_json(one, name) for one in value] if isinstance(value, tuple) else value


def _from_json(value: Any, nodes: list[Node]) -> Any:
    if isinstance(value, list):
        return tuple(_from_json(one, nodes) for one in value)
    if not isinstance(value, dict):
        return value
    if "node" in value:
        return nodes[value["node"]]
    if "tree" in value:
        return Tree.from_json(value["tree"])
    if value["part"] == "Column":
        return Column.from_json(value)
    given = {name: one for name, one in value.items() if name != "part"}
    return _PARTS[value["part"]](**{name: _from_json(one, nodes) for name, one in given.items()})


OPERATORS = (Aggregate, Join, Threshold, TopK, Touched, Replace)
