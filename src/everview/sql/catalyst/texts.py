"""Lets Spark read the texts of expressions again: CREATE refuses those that Spark can't read."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from everview.delta import WEIGHT
from everview.errors import UnsupportedSql
from everview.plan.expressions import column_of, on_spark
from everview.plan.nodes import Filter, Generate, Node, Project, Recompute
from everview.schema import Column, quoted, sql_name

_WEIGHT = Column(WEIGHT, pa.int64())


def check_texts(session: SparkSession, plan: Node) -> None:
    """Raises `UnsupportedSql` for the first node of a plan whose text isn't SQL for Spark."""
    nodes = [
        (texts, f"(SELECT {', '.join(_null(column) for column in (*node.input.columns, _WEIGHT))})")
        for node in plan.walk()
        if isinstance(node, Filter | Project | Generate | Recompute) and (texts := _texts_of(node))
    ]
    whole = [f"(SELECT {', '.join(texts)} FROM {nulls})" for texts, nulls in nodes]
    if not nodes or _is_read(session, f"SELECT 1 FROM {', '.join(whole)}"):
        return
    for texts, nulls in nodes:
        for text in texts:
            if not _is_read(session, f"SELECT {text} FROM {nulls}"):
                raise UnsupportedSql(
                    f"a view can't keep the expression {text[:200]}, as Spark doesn't read its own "
                    "text of it; write it in another way"
                )


def _is_read(session: SparkSession, query: str) -> bool:
    try:
        session.sql(query)
    except PySparkException:
        return False
    return True


def _null(column: Column) -> str:
    return f"CAST(NULL AS {sql_name(column.type)}) AS {quoted(column.name)}"


def _texts_of(node: Filter | Project | Generate | Recompute) -> list[str]:
    """The texts of a node that are more than a column."""
    if isinstance(node, Filter):
        return [f"({on_spark(node.condition)}) AS c"]
    if isinstance(node, Generate):
        names = ", ".join(map(quoted, node.names()[len(node.kept) :]))
        return [f"{on_spark(node.generator)} AS ({names})"]
    trees = [tree for tree in node.expressions if column_of(tree) is None]
    return [f"{on_spark(tree)} AS c{i}" for i, tree in enumerate(trees)]
