"""The only way to send a query's text to an engine: it first checks what the query reaches."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from everview.reach import check_query


def ask(
    session: SparkSession,
    query: str,
    relations: Collection[str],
    text: str | None = None,
    **frames: Any,
) -> DataFrame:
    """The rows of a query over relations; the engine runs `text`, if there is one, which has the
    query within it.

    Spark shows its own plan of a query. Sail, and Spark behind Spark Connect, do not: there the
    text is checked. Raises `OutOfReach`, and the errors of the engine.
    """
    if isinstance(session, SparkSession):
        from everview.reach.spark import ask as ask_spark

        return ask_spark(session, query, relations, text, **frames)
    plain = check_query(query, relations)
    return session.sql(text or plain, **frames)
