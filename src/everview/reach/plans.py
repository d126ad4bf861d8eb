"""The texts in a view's plan: expressions, which engines compute for each row, and whole queries.

A plan is stored, perhaps by an older version or by someone else; so it is checked again whenever
a program is made of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from everview.errors import OutOfReach
from everview.plan.dialects import both
from everview.plan.nodes import Constant, Filter, Generate, Node, Project, Recompute, Refresh
from everview.reach.queries import check_query
from everview.reach.tokens import REMEDY, Kind, check_calls, tokens

# every query inside an expression has one of these words, or FROM after a parenthesis
_OF_QUERIES = {"select", "table", "using", "values"}


def check_plan(plan: Node) -> None:
    """Check every node of a plan."""
    for node in plan.walk():
        check_node(node)


def check_node(node: Node) -> None:
    """Raises `OutOfReach` if a text of the node reaches further than it may."""
    if isinstance(node, Refresh):
        check_query(node.query, [source.table for source in node.sources])
    for text in _texts(node):
        for asked in both(text):
            _check_expression(asked)


def _texts(node: Node) -> Iterator[str]:
    if isinstance(node, Filter):
        yield node.condition
    elif isinstance(node, Generate):
        yield node.generator
    elif isinstance(node, Project | Recompute):
        yield from node.expressions
    elif isinstance(node, Constant):
        yield from (text for row in node.rows for text in row)


@lru_cache(4096)
def _check_expression(text: str) -> None:
    words = tokens(text)
    check_calls(text, words)
    for before, token in zip([None, *words], words, strict=False):
        is_query = token.kind == Kind.WORD and token.name in _OF_QUERIES
        is_query |= token.name == "from" and before is not None and before.text == "("
        if is_query or token.kind == Kind.COMMENT:
            raise OutOfReach(f"the expression {text[:200]} has {token.text} in it. {REMEDY}")
