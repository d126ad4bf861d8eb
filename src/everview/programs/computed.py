"""What an engine computes by itself, between operators: expressions, constants, whole queries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, connect, functions

from everview.delta import WEIGHT
from everview.plan.distribution import distribution
from everview.plan.expressions import Tree, column_of, staged, verbatim
from everview.plan.nodes import Constant, Filter, Generate, Node, Project, Recompute, Refresh
from everview.programs.dialect import sql_for
from everview.programs.workers import PLACE
from everview.reach.asking import ask
from everview.schema import Column, quoted, sql_name
from everview.spark.types import spark_type, struct

REGION = Column("id", pa.int64())
WEIGHTED = Column(WEIGHT, pa.int64())
PLACED = Column(PLACE, pa.int32())


class Computed:
    """Frames of nodes whose rows the engine of a session computes from other frames."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self.functions: Any = functions
        if not isinstance(session, SparkSession):
            self.functions = connect.functions

    def expressed(
        self, node: Filter | Project | Generate | Recompute, frame: DataFrame
    ) -> DataFrame:
        """The frame of a node that the engine computes, row by row or group by group."""
        placed = self.columns([WEIGHT] if distribution(node) is None else [WEIGHT, PLACE])
        if isinstance(node, Filter):
            (condition,), frame = self._staged([node.condition], node.input, frame)
            rows = frame.where(self._open(sql_for(self._session, condition)))
            is_staged = condition is not node.condition
            return rows.select(*self.columns(node.names()), *placed) if is_staged else rows
        if isinstance(node, Generate):
            fresh = ", ".join(map(quoted, node.names()[len(node.kept) :]))
            (generator,), frame = self._staged([node.generator], node.input, frame)
            generated = self.functions.expr(f"{sql_for(self._session, generator)} AS ({fresh})")
            generated_rows = frame.select(*self.columns(node.kept), *placed, generated)
            return generated_rows.select(*self.columns(node.names()), *placed)
        names = node.names()
        fixed = names[: len(names) - len(node.expressions)]
        expressions: Sequence[Tree] = node.expressions
        if isinstance(node, Project):
            expressions, frame = self._staged(expressions, node.input, frame)
        computed = [
            self._computed(tree, node.input).alias(name)
            for tree, name in zip(expressions, names[len(fixed) :], strict=True)
        ]
        if isinstance(node, Project) or node.rows_stay:
            return frame.select(*self.columns(fixed), *computed, *placed)
        return frame.groupBy(*self.columns([*node.input.groups, WEIGHT])).agg(*computed)

    def _open(self, condition: str) -> Any:
        """The condition, such that no optimizer can tell that it is never true: for all it knows, a
        weight may be NULL.

        Sail moves a condition that is `false`, and so uses no column, below Python functions: they
        would run, get no rows, and note their end. Spark leaves such functions out, and then they
        run as duties.
        """
        if isinstance(self._session, SparkSession):
            return condition
        return self.functions.expr(condition) | self.functions.col(WEIGHT).isNull()

    def _staged(
        self, trees: Sequence[Tree], input_node: Node, frame: DataFrame
    ) -> tuple[Sequence[Tree], DataFrame]:
        """The trees, and the frame with columns that long ones read."""
        if isinstance(self._session, SparkSession):
            return trees, frame
        stages, staged_trees = staged(tuple(trees), tuple(input_node.names()))
        for stage in stages:
            sql = {name: sql_for(self._session, tree) for name, tree in stage}
            frame = frame.withColumns({name: self.functions.expr(sql[name]) for name in sql})
        return (staged_trees, frame) if stages else (trees, frame)

    def _computed(self, tree: Tree, input_node: Node) -> Any:
        name = column_of(tree)
        if name is not None and name in input_node.names():
            return self.functions.col(quoted(name))
        return self.functions.expr(sql_for(self._session, tree))

    def columns(self, names: Iterable[str]) -> list[Any]:
        """Columns by name. Use names instead of texts where you can: engines parse a text in every
        epoch, and Sail keeps some kilobytes of each."""
        return [self.functions.col(quoted(name)) for name in names]

    def constant(self, node: Constant) -> DataFrame:
        """The rows of a constant."""
        names = ", ".join(map(quoted, (*node.names(), WEIGHT)))
        sql_rows = ([sql_for(self._session, value) for value in row] for row in node.rows)
        rows = ", ".join(f"({', '.join((*row, '1L'))})" for row in sql_rows)
        if not rows:
            rows = f"({', '.join((*nulls(node), '0L'))})"
        frame = self._session.sql(f"SELECT * FROM VALUES {rows} AS rows({names})")
        return frame if node.rows else frame.where("false")

    def shaped(self, frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
        """A frame to send to Python. With Spark Connect it declares its schema, since asking for it
        is a round trip."""
        return frame if isinstance(self._session, SparkSession) else frame.to(struct(columns))

    def whole_query(self, node: Refresh, tables: Sequence[DataFrame]) -> DataFrame:
        """The rows of a query over whole tables, each of weight 1. A WITH around the query names
        the tables."""
        frames: dict[str, Any] = {}
        named_tables, query = [], sql_for(self._session, node.query)
        for i, (source, rows) in enumerate(zip(node.sources, tables, strict=True)):
            frames[f"table_{i}"] = rows.select(*self.columns(source.names()))
            for name in sorted(spellings(self._session, source.table, query)):
                named_tables.append(f"{quoted(name)} AS (SELECT * FROM {{table_{i}}})")
        text = f"WITH {', '.join(named_tables)} SELECT * FROM (\n{verbatim(query)}\n)"
        known = [source.table for source in node.sources]
        result = ask(self._session, query, known, text, **frames)
        columns = [
            self.functions.col(column.name).cast(spark_type(column.type)).alias(column.name)
            for column in node.columns
        ]
        weight = self.functions.lit(1).cast(spark_type(WEIGHTED.type)).alias(WEIGHT)
        return result.toDF(*node.names()).select(*columns, weight)


def spellings(session: SparkSession, name: str, sql: str) -> set[str]:
    """The spellings of a relation's name in a query: Sail compares names by case."""
    if isinstance(session, SparkSession):
        return {name}
    return {name, *re.findall(re.escape(name), sql, re.IGNORECASE)}


def nulls(node: Node) -> list[str]:
    return [f"CAST(NULL AS {sql_name(column.type)})" for column in node.columns]
