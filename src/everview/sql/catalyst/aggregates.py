"""Catalyst's aggregates: a node that computes the arguments, one that aggregates them, and one that
computes the outputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from everview.errors import UnsupportedSql
from everview.plan.nodes import Node
from everview.spark.trees import children_of, each, kind, value
from everview.sql.catalyst.building import InputColumns, project
from everview.sql.catalyst.calls import Calls
from everview.sql.catalyst.scalars import attached

if TYPE_CHECKING:
    from everview.sql.catalyst.translation import Translation


def aggregate(translation: Translation, plan: Any) -> Node:
    """Computes the arguments, aggregates them, and computes the outputs from the results."""
    node = translation.node(plan.child())
    outputs = list(each(plan.aggregateExpressions()))
    groupings = list(each(plan.groupingExpressions()))
    parts = [part for output in outputs for part in _outermost(output)]
    functions = [part for part in parts if kind(part) == "AggregateExpression"]
    node = attached(translation, node, [*groupings, *functions])
    _check_sessions(groupings)
    columns, trees = InputColumns(node), translation.expressions
    groups = [columns.name_of(trees.cast(part), trees.typed("group", part)) for part in groupings]
    calls = Calls(translation, columns, tuple(dict.fromkeys(groups)))
    for function in functions:
        calls.reference(function)
    scalars = [part for part in parts if kind(part) == "ScalarSubquery"]
    node = attached(translation, calls.node(), scalars)
    output_trees = tuple(calls.output(value(output)) for output in outputs)
    return project(node, trees.columns(outputs), output_trees)


def _outermost(expression: Any) -> Iterator[Any]:
    """The aggregate functions and scalar subqueries of an output that are within no other."""
    if kind(expression) in ("AggregateExpression", "ScalarSubquery"):
        yield expression
    else:
        for child in children_of(expression):
            yield from _outermost(child)


def _check_sessions(groupings: list[Any]) -> None:
    """Refuse session windows: Spark merges them when it runs a plan, which doesn't show it."""
    for grouping in groupings:
        is_column = kind(grouping) == "AttributeReference"
        if is_column and "spark.sessionWindow" in grouping.metadata().json():
            raise UnsupportedSql(
                "session_window can't be maintained; find where a session begins with lag() OVER "
                "(PARTITION BY ... ORDER BY the time) and number them with sum() OVER"
            )
