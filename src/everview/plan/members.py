"""Rows and members of a family that are compared: the sides of a join, comparisons between them,
and projections with a column for each compared expression."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from everview.plan.boxes import FORMS
from everview.plan.expressions import (
    Either,
    Ref,
    Tree,
    boolean,
    column_of,
    columns_of,
    is_sure,
    operation,
    readable,
    substituted,
)
from everview.plan.nodes import Aggregate, Join, Node, Project, Source
from everview.schema import Column, arrow_type, is_nested

_ALLOWED = {"=": {0}, "<": {-1}, "<=": {-1, 0}, ">": {1}, ">=": {0, 1}}
_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CAST = re.compile(r"CAST\(\{0\} AS ([^()]+(?:\(\d+,\s*\d+\))?)\)")


def members_of(node: Node, table: str) -> Mapping[str, str] | None:
    """For each column of a node the one of the members, if its rows are those of their table."""
    if isinstance(node, Source) and node.table == table and not node.where:
        return dict(zip(node.names(), node.read, strict=True))
    if not isinstance(node, Project) or (below := members_of(node.input, table)) is None:
        return None
    names = [column_of(tree) for tree in node.expressions]
    if not all(name in below for name in names):
        return None
    return {new: below[name] for new, name in zip(node.names(), names, strict=True) if name}


def values_of(node: Node, table: str) -> Mapping[str, str] | None:
    """For each column of a node the one of the members, if it has their distinct values."""
    if not isinstance(node, Aggregate) or node.calls or node.groups != tuple(node.names()):
        return None
    below = members_of(node.input, table)
    return below and {name: below[name] for name in node.groups}


@dataclass(frozen=True)
class Comparison:
    """A condition that compares an expression of rows with one of members, both of a type."""

    row: Tree
    sign: str
    member: Tree
    type: pa.DataType

    def __str__(self) -> str:
        return f"{readable(self.row)} {self.sign} {readable(self.member)}"

    def excludes(self, other: Comparison) -> bool:
        """Whether no row satisfies both."""
        is_same_pair = (self.row, self.member) == (other.row, other.member)
        return is_same_pair and not _ALLOWED[self.sign] & _ALLOWED[other.sign]


class Columns:
    """The columns of a projection: under a name one expression, and each under one name."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.columns: list[Column] = []
        self.trees: list[Tree] = []
        self._taken = set(taken)

    def add(self, column: Column, tree: Tree) -> None:
        self.columns.append(column)
        self.trees.append(tree)

    def named(self, word: str, type_: pa.DataType, tree: Tree) -> str:
        """The name under which the columns have an expression; it comes to them if they lack it."""
        for column, known in zip(self.columns, self.trees, strict=True):
            if known == tree and column.type == type_:
                return column.name
        name, number = column_of(tree) or word, 0
        while name in self._taken or any(column.name == name for column in self.columns):
            name, number = f"{word}_{number}", number + 1
        self.add(Column(name, type_), tree)
        return name

    def over(self, node: Node, names: Mapping[str, str]) -> Project:
        """The projection of a node, whose columns the expressions know by other names."""
        below: dict[str, Tree] = {name: Ref(old) for name, old in names.items()}
        trees = tuple(substituted(tree, below) for tree in self.trees)
        return Project(tuple(self.columns), node, trees)


@dataclass(frozen=True)
class Sides:
    """Members and rows that are joined. For the columns of the join, the names that they have in
    the members or in the rows."""

    members: Node
    rows: Node
    of_members: Mapping[str, str]
    of_rows: Mapping[str, str]

    @classmethod
    def of(cls, join: Join, members_left: bool) -> Sides:
        left = {name: name for name in join.left.names()}
        right = {name: old for old, name in join.right_names().items()}
        if members_left:
            return cls(join.left, join.right, left, right)
        return cls(join.right, join.left, right, left)

    def is_of_rows(self, tree: Tree) -> bool:
        return columns_of(tree) <= set(self.of_rows)

    def is_of_members(self, tree: Tree) -> bool:
        return columns_of(tree) <= set(self.of_members)

    def is_sure(self, tree: Tree) -> bool:
        """Whether an expression of rows has a value for each of them."""
        columns = {name: self.rows.column(old) for name, old in self.of_rows.items()}
        texts = [name for name, column in columns.items() if pa.types.is_string(column.type)]
        return is_sure(tree, texts)

    def compared(self, tree: Tree) -> Comparison | None:
        """A condition as a comparison of rows with members, if it is one. Conditions of either
        alone are compared with TRUE."""
        if self.is_of_rows(tree):
            return Comparison(tree, "=", boolean(True), pa.bool_())
        if self.is_of_members(tree):
            return Comparison(boolean(True), "=", tree, pa.bool_())
        sign = FORMS.get(operation(tree))
        if sign is None:
            return None
        row, member = tree.parts()
        if columns_of(row) & set(self.of_members):
            row, member, sign = member, row, _TURNED[sign]
        if not (columns_of(row) and self.is_of_rows(row)):
            return None
        if not (columns_of(member) and self.is_of_members(member)):
            return None
        type_ = self._type(row) or self._type(member)
        if type_ is None or is_nested(type_) or pa.types.is_binary(type_):
            return None
        return Comparison(row, sign, member, type_)

    def _type(self, tree: Tree) -> pa.DataType | None:
        """The type of an expression, if its words say it."""
        tree = tree.spark if isinstance(tree, Either) else tree
        if isinstance(tree, Ref):
            if tree.name in self.of_members:
                return self.members.column(self.of_members[tree.name]).type
            return self.rows.column(self.of_rows[tree.name]).type
        cast = _CAST.fullmatch(operation(tree))
        return arrow_type(cast[1]) if cast else None
