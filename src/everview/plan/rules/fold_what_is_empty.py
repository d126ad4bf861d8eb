"""Replaces nodes that never have rows, since a condition is never true or a LIMIT is 0, by
constants without rows, and drops nodes that only such inputs make needless."""

from __future__ import annotations

from functools import partial

from everview.plan.expressions import Lit, Ref, Tree, boolean, null
from everview.plan.facts import Facts
from everview.plan.nodes import (
    Constant,
    Filter,
    Join,
    Node,
    Project,
    Replace,
    TopK,
    Touched,
    Union,
)
from everview.schema import Column, sql_name

# the forms in which Catalyst leaves conditions that are never true
_NEVER = ("false", "NULL", "CAST(NULL AS BOOLEAN)")


def fold_what_is_empty(plan: Node, facts: Facts) -> Node:
    plan = plan.with_inputs(partial(fold_what_is_empty, facts=facts))
    if isinstance(plan, Join):
        return _join(plan)
    if isinstance(plan, Union):
        return _union(plan)
    return _nothing(plan.columns) if _is_folded(plan) else plan


def _is_folded(node: Node) -> bool:
    """Whether a node never has rows, as its inputs have none or none passes it."""
    if isinstance(node, Filter) and _is_never(node.condition):
        return True
    if isinstance(node, TopK) and node.limit == 0:
        return True
    if isinstance(node, Replace):
        touched = node.input.inputs()[0]
        is_grouped = isinstance(touched, Touched) and not node.always
        return is_grouped and _is_empty(touched.inputs()[0])
    return node.is_empty_of_nothing() and _is_empty(node.inputs()[0])


def _is_never(condition: Tree) -> bool:
    return isinstance(condition, Lit) and condition.text in _NEVER


def _is_empty(node: Node) -> bool:
    return isinstance(node, Constant) and not node.rows


def _nothing(columns: tuple[Column, ...]) -> Constant:
    return Constant(columns, ())


def _union(node: Union) -> Node:
    parts = tuple(part for part in node.parts if not _is_empty(part))
    if len(parts) == len(node.parts):
        return node
    if len(parts) > 1:
        return Union(node.columns, parts)
    return _replaced_by(node, parts[0]) if parts else _nothing(node.columns)


def _join(node: Join) -> Node:
    of_left = len(node.left.columns)
    if _is_empty(node.left):
        if node.how != "full" or _is_empty(node.right):
            return _nothing(node.columns)
        return _replaced_by(
            node, node.right, (*_nulls(node.columns[:of_left]), *_names(node.right))
        )
    if not _is_empty(node.right):
        return node
    if node.how in ("inner", "semi"):
        return _nothing(node.columns)
    if node.how == "anti":
        return _replaced_by(node, node.left)
    added = (boolean(False),) if node.how == "existence" else _nulls(node.columns[of_left:])
    return _replaced_by(node, node.left, (*_names(node.left), *added))


def _replaced_by(node: Node, below: Node, trees: tuple[Tree, ...] | None = None) -> Node:
    """The input that takes the place of a node, with the node's names."""
    if trees is None and below.names() == node.names():
        return below
    return Project(node.columns, below, trees or _names(below))


def _names(node: Node) -> tuple[Tree, ...]:
    return tuple(map(Ref, node.names()))


def _nulls(columns: tuple[Column, ...]) -> tuple[Tree, ...]:
    return tuple(null(sql_name(column.type)) for column in columns)
