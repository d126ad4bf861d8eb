"""Lets Spark read the texts of expressions again: CREATE refuses those that Spark can't read."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from everview.delta import WEIGHT
from everview.errors import UnsupportedSql
from everview.plan.expressions import on_spark
from everview.plan.nodes import Filter, Generate, Node, Project, Recompute
from everview.schema import Column, quoted, sql_name

_WEIGHT = Column(WEIGHT, pa.int64())


def check_texts(session: SparkSession, plan: Node) -> None:
    """Raises `UnsupportedSql` for the first node of a plan whose text isn't SQL for Spark."""
    for node in plan.walk():
        if not isinstance(node, Filter | Project | Generate | Recompute):
            continue
        texts, columns = _texts_of(node), (*node.input.columns, _WEIGHT)
        nulls = ", ".join(f"CAST(NULL AS {sql_name(c.type)}) AS {quoted(c.name)}" for c in columns)
        if _is_read(session, ", ".join(texts), nulls):
            continue
        unread = next((text for text in texts if not _is_read(session, text, nulls)), texts[0])
        raise UnsupportedSql(
            f"a view can't keep the expression {unread[:200]}, as Spark doesn't read its own "
            "text of it; write it in another way"
        )


def _is_read(session: SparkSession, texts: str, nulls: str) -> bool:
    try:
        session.sql(f"SELECT {texts} FROM (SELECT {nulls})").schema  # noqa: B018
    except PySparkException:
        return False
    return True


def _texts_of(node: Filter | Project | Generate | Recompute) -> list[str]:
    if isinstance(node, Filter):
        return [f"({on_spark(node.condition)}) AS c"]
    if isinstance(node, Generate):
        names = ", ".join(map(quoted, node.names()[len(node.kept) :]))
        return [f"{on_spark(node.generator)} AS ({names})"]
    return [f"{on_spark(tree)} AS c{i}" for i, tree in enumerate(node.expressions)] or ["1"]
