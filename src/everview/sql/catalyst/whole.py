"""Queries that are not maintained but computed anew: WITH (refresh = 'full').

Spark says what they give and which tables they read; their nodes are looked at only for what Sail
would answer otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from everview.errors import UnsupportedSql
from everview.plan.dialects import not_on_sail, on_sail, on_spark
from everview.plan.nodes import Node, Refresh, Replace, Source
from everview.schema import Column
from everview.spark.trees import each, kind, sql_type, walk

if TYPE_CHECKING:
    from everview.sql.catalyst.expressions import Expressions
    from everview.sql.catalyst.translation import Translation

_LONGEST = 80


def whole(
    given: Translation, plan: Any, query: str, relations: Mapping[str, tuple[Column, ...]]
) -> Node:
    """What a query gives, compared with what it gave before."""
    if not plan.deterministic():
        raise UnsupportedSql(
            "the query gives other rows each time it is asked, which is no state of its tables; "
            "store what is random in a column"
        )
    tables = sorted(_tables(plan))
    if not tables:
        raise UnsupportedSql("the query reads no table, so it never changes; leave out refresh")
    columns = given.expressions.columns(list(each(plan.output())))
    if (other := _other_on_sail(given.expressions, plan)) is not None:
        query = not_on_sail(query, f"Sail may have another answer of {other}")
    sources = (
        Source(relations[table], table, tuple(column.name for column in relations[table]))
        for table in tables
    )
    return Replace(columns, Refresh(columns, tuple(sources), query), (), False)


def _tables(plan: Any) -> set[str]:
    """The relations at the leaves of a plan and of its subqueries, which their columns name."""
    plans = (plan, *each(plan.subqueriesAll()))
    leaves = (leaf for one in plans for leaf in each(one.collectLeaves()))
    known = [json.loads(c.metadata().json()) for leaf in leaves for c in each(leaf.output())]
    return {metadata["table"] for metadata in known if "table" in metadata}


def _other_on_sail(texts: Expressions, plan: Any) -> str | None:
    """An expression of the query of which Sail would be asked in other words, if it could be: it
    gets the query as it is."""
    for one in (plan, *each(plan.subqueriesAll())):
        for expression in (part for node in walk(one) for part in each(node.expressions())):
            sums = (part for part in walk(expression) if kind(part) == "Sum")
            if any(sql_type(part) == sql_type(part.child()) == "BIGINT" for part in sums):
                return on_spark(str(expression.sql()))[:_LONGEST]
            try:
                text = texts.text(expression)
            except UnsupportedSql:
                continue
            if on_sail(text) != on_spark(text):
                return on_spark(text)[:_LONGEST]
    return None
