"""Queries that are not maintained but computed anew: WITH (refresh = 'full').

Spark says which columns they have and which tables they read. Their nodes are searched only for
expressions that Sail would answer otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from everview.errors import UnsupportedSql
from everview.plan.expressions import Either, Tree, not_on_sail, readable, sql, verbatim
from everview.plan.nodes import Node, Refresh, Replace, Source
from everview.schema import Column
from everview.spark.trees import children_of, each, kind, sql_type, walk

if TYPE_CHECKING:
    from everview.sql.catalyst.expressions import Expressions
    from everview.sql.catalyst.translation import Translation

_LONGEST = 80
_AROUND = {"Alias", "WindowExpression", "WindowSpecDefinition", "SpecifiedWindowFrame", "SortOrder"}


def whole(
    translation: Translation, plan: Any, query: str, relations: Mapping[str, tuple[Column, ...]]
) -> Node:
    """A node that computes a query anew and outputs the difference to its rows before."""
    if not plan.deterministic():
        raise UnsupportedSql(
            "the query gives other rows each time it is asked, which is no state of its tables; "
            "store what is random in a column"
        )
    tables = sorted(_tables(plan))
    if not tables:
        raise UnsupportedSql("the query reads no table, so it never changes; leave out refresh")
    columns = translation.expressions.columns(list(each(plan.output())))
    tree: Tree = sql(verbatim(query))
    if (differing := _other_on_sail(translation.expressions, plan)) is not None:
        tree = not_on_sail(tree, f"Sail may have another answer of {differing}")
    sources = (
        Source(relations[table], table, tuple(column.name for column in relations[table]))
        for table in tables
    )
    return Replace(columns, Refresh(columns, tuple(sources), tree), (), False)


def _tables(plan: Any) -> set[str]:
    """The relations at the leaves of a plan and of its subqueries, from their columns' metadata."""
    plans = (plan, *each(plan.subqueriesAll()))
    leaves = (leaf for subplan in plans for leaf in each(subplan.collectLeaves()))
    known = [json.loads(c.metadata().json()) for leaf in leaves for c in each(leaf.output())]
    return {metadata["table"] for metadata in known if "table" in metadata}


def _other_on_sail(trees: Expressions, plan: Any) -> str | None:
    """An expression of the query that Sail would answer otherwise. It needs other words there, but
    Sail gets the query as it is."""
    for subplan in (plan, *each(plan.subqueriesAll())):
        for expression in (part for node in walk(subplan) for part in each(node.expressions())):
            sums = (part for part in walk(expression) if kind(part) == "Sum")
            if any(sql_type(part) == sql_type(part.child()) == "BIGINT" for part in sums):
                return str(expression.sql())[:_LONGEST]
            for computed in _computed(expression):
                try:
                    tree = trees.tree(computed)
                except UnsupportedSql:
                    continue
                if any(isinstance(part, Either) for part in tree.walk()):
                    return readable(tree)[:_LONGEST]
    return None


def _computed(expression: Any) -> Iterator[Any]:
    """The computed parts of an expression, below windows, aliases and orders."""
    if kind(expression) in _AROUND:
        for child in children_of(expression):
            yield from _computed(child)
    else:
        yield expression
