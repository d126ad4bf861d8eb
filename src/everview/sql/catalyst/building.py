"""Helpers to build plan nodes: names that don't collide, and no needless projections."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count

from sqlglot.dialects import Spark

from everview.plan.expressions import Ref, Tree, column_of, sql
from everview.plan.nodes import Node, Project
from everview.schema import Column

_WORDS = set(Spark.Tokenizer.KEYWORDS) | {
    *("BY", "GROUP", "ORDER", "USER", "SESSION_USER", "CURRENT_USER", "SORT", "CLUSTER"),
    *("CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "DISTRIBUTE"),
}


class InputColumns:
    """Columns for expressions: own columns of the input, or computed ones.

    With `keep`, all columns of the input come first.
    """

    def __init__(self, node: Node, keep: bool = False) -> None:
        self._node = node
        self._names = Names(node.names())
        columns = node.columns if keep else ()
        self.columns = {column.name: column for column in columns}
        self.trees: dict[Tree, str] = {Ref(column.name): column.name for column in columns}

    def name_of(self, tree: Tree, column: Column) -> str:
        """The name of the column with that expression, added when it is new."""
        if tree not in self.trees:
            own = column_of(tree)
            name = own if own is not None else self._names.fresh(column.name)
            self.trees[tree] = name
            self.columns[name] = replace(column, name=name)
        return self.trees[tree]

    def project(self) -> Node:
        return project(self._node, tuple(self.columns.values()), tuple(self.trees))


def project(node: Node, columns: tuple[Column, ...], trees: tuple[Tree, ...]) -> Node:
    """A projection; the node itself if it has just these columns."""
    named = tuple(map(column_of, trees))
    if named == tuple(node.names()) == tuple(column.name for column in columns):
        return node
    return Project(columns, node, trees)


def only(node: Node, other: Node) -> Node:
    """The node with only the columns of another."""
    return project(node, other.columns, tuple(map(Ref, other.names())))


def plain(name: str) -> str:
    """A name that needs no quotes on any engine."""
    bare = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not bare[:1].isalpha():
        return f"c{bare}"
    return f"{bare}_" if bare.upper() in _WORDS else bare


def unused(name: str, taken: Iterable[str]) -> str:
    """The name, with a number if another has it; names that differ only in case are the same."""
    lower = {other.lower() for other in taken}
    if name.lower() not in lower:
        return name
    return next(new for n in count(2) if (new := f"{name}_{n}").lower() not in lower)


class Names:
    """Names that are taken, and fresh names as `unused` makes them, but fast for many of them."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = {name.lower() for name in taken}
        self._numbers: dict[str, Iterator[int]] = {}

    def fresh(self, name: str) -> str:
        """The name, with a number if it is taken; from now on it is taken."""
        new = name
        while new.lower() in self._taken:
            new = f"{name}_{next(self._numbers.setdefault(name.lower(), count(2)))}"
        self._taken.add(new.lower())
        return new


def same_bits(tree: Tree, type_: str) -> Tree:
    """The value with the same bits for equal values: equal floats may differ in their bits, and
    some engines compare these."""
    if type_ not in ("FLOAT", "DOUBLE"):
        return tree
    return sql(
        f"CASE WHEN {{0}} = 0 THEN CAST(0 AS {type_}) WHEN isnan({{0}}) THEN "
        f"CAST('NaN' AS {type_}) ELSE {{0}} END",
        tree,
    )
