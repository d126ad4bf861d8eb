"""The one way in which a query's text goes to an engine: checked first for what it may reach."""

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
    """The rows of a query over relations; `text` is what is asked instead, around the query.

    Spark says itself what it makes of a query. Sail, and Spark behind Spark Connect, do not: there
    the text is checked. Raises `OutOfReach`, and what the engine raises.
    """
    if isinstance(session, SparkSession):
        from everview.reach.spark import ask as ask_spark

        return ask_spark(session, query, relations, text, **frames)
    plain = check_query(query, relations)
    return session.sql(text or plain, **frames)
