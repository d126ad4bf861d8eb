"""Checks the texts of a view's plan that go to engines: expressions and whole queries.

A plan is stored, perhaps by an older version or by someone else; so it is checked again whenever
a program is built from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from everview.errors import OutOfReach, UnsupportedSql
from everview.plan.expressions import both, on_sail, on_spark, staged
from everview.plan.nodes import Filter, Generate, Node, Project, Refresh
from everview.reach.queries import check_query
from everview.reach.tokens import REMEDY, Kind, check_calls, tokens

# every query inside an expression has one of these words, or FROM after a parenthesis
_OF_QUERIES = {"select", "table", "using", "values"}


def check_plan(plan: Node) -> None:
    """Check every node of a plan."""
    for node in plan.walk():
        check_node(node)


def check_node(node: Node) -> None:
    """Raises `OutOfReach` if an expression of the node reaches further than it may."""
    if isinstance(node, Refresh):
        for query in _queries(node):
            check_query(query, [source.table for source in node.sources])
        return
    for text in _expressions(node):
        _check_expression(text)


def _expressions(node: Node) -> Iterator[str]:
    """The texts of a node for the engines: Sail gets long ones in stages."""
    trees = tuple(node.trees())
    if not isinstance(node, Filter | Generate | Project):
        yield from (text for tree in trees for text in both(tree))
        return
    yield from map(on_spark, trees)
    stages, last = staged(trees, tuple(node.input.names()))
    for tree in (*(tree for stage in stages for _, tree in stage), *last):
        yield both(tree)[1]


def _queries(node: Refresh) -> set[str]:
    """The texts of a query for the engines that can run it."""
    try:
        return {on_spark(node.query), on_sail(node.query)}
    except UnsupportedSql:
        return {on_spark(node.query)}


@lru_cache(4096)
def _check_expression(text: str) -> None:
    words = tokens(text)
    check_calls(text, words)
    for before, token in zip([None, *words], words, strict=False):
        is_query = token.kind == Kind.WORD and token.name in _OF_QUERIES
        is_query |= token.name == "from" and before is not None and before.text == "("
        if is_query or token.kind == Kind.COMMENT:
            raise OutOfReach(f"the expression {text[:200]} has {token.text} in it. {REMEDY}")
