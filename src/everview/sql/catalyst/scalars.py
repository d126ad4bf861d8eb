"""Scalar subqueries: as a column beside the rows, or as a threshold to compare rows with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from everview.plan.expressions import Ref, Tree
from everview.plan.nodes import Join, Node, Project, Threshold
from everview.spark.trees import children_of, kind, numbers, subqueries
from everview.sql.catalyst.building import only, unused

if TYPE_CHECKING:
    from everview.sql.catalyst.translation import Translation

_COMPARISONS = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def attached(translation: Translation, node: Node, expressions: list[Any]) -> Node:
    """The node with a column for every scalar subquery in the expressions."""
    scalars = translation.expressions.scalars
    for subquery in [part for expression in expressions for part in subqueries(expression)]:
        number = subquery.exprId().id()
        if number in scalars and scalars[number] in node.names():
            continue
        inner, (inner_column, *_) = translation.apart(subquery.plan())
        column = replace(inner_column, name="scalar", nullable=True)
        scalar = Project((column,), inner, (Ref(inner_column.name),))
        joined = replace(column, name=unused("scalar", node.names()))
        scalars[number] = joined.name
        node = Join((*node.columns, joined), node, scalar, "single", (), (), (), True)
    return node


def compared(translation: Translation, node: Node, condition: Any) -> Node:
    """Rows that compare with a scalar subquery."""
    sides = children_of(condition)
    comparison = _COMPARISONS.get(kind(condition))
    if comparison is not None and subqueries(sides[0]):
        sides, comparison = sides[::-1], _FLIPPED[comparison]
    is_plain = len(sides) == 2 and not subqueries(sides[0]) and _is_scalar(sides[1])
    if comparison is None or not is_plain:
        with_scalars = attached(translation, node, [condition])
        return only(translation.filtered(with_scalars, [condition]), node)
    (subquery,) = subqueries(sides[1])
    inner, (inner_column, *_) = translation.apart(subquery.plan())
    trees = translation.expressions

    def replaced(part: Any) -> Tree | None:
        return Ref(inner_column.name) if kind(part) == "ScalarSubquery" else None

    value = trees.typed("scalar", sides[1])
    scalar = Project((value,), inner, (trees.cast(sides[1], trees.rewrite(sides[1], replaced)),))
    rows, (column,) = translation.computed(node, [sides[0]], "compared")
    return only(Threshold(rows.columns, rows, scalar, column, comparison), node)


def _is_scalar(expression: Any) -> bool:
    """Whether an expression has one subquery and no column."""
    return len(subqueries(expression)) == 1 and not numbers(expression.references())
