"""Lets Spark's optimizer plan a query, and translates the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from everview.engines.messages import readable
from everview.errors import InvalidSql, UnsupportedSql
from everview.plan.nodes import Node, Order
from everview.plan.ordering import check_ordered
from everview.reach import check_plan
from everview.reach.spark import ask
from everview.schema import Column, quoted, sql_name
from everview.spark.trees import each, kind, walk
from everview.sql.catalyst.texts import check_texts
from everview.sql.catalyst.translation import Translation
from everview.sql.catalyst.whole import whole

_RULES = "org.apache.spark.sql.catalyst.optimizer."
EXCLUDED = ",".join(
    _RULES + rule
    for rule in (
        "DecimalAggregates",
        "MergeSubplans",
        "InferWindowGroupLimit",
        "InjectRuntimeFilter",
    )
)
_OF_THE_MOMENT = {
    *("CurrentDate", "CurrentTimestamp", "CurrentTime", "CurrentBatchTimestamp", "Now"),
    *("LocalTimestamp", "CurrentUser", "CurrentDatabase", "CurrentCatalog", "CurrentTimeZone"),
}


@dataclass(frozen=True)
class Translated:
    """The plan of a query, the order in which to read its rows, and whether SQL leaves its answer
    open, so that Spark's may differ."""

    plan: Node
    order: tuple[Order, ...]
    is_open: bool


def translate(
    session: SparkSession,
    query: str,
    relations: Mapping[str, tuple[Column, ...]],
    columns: Sequence[str] = (),
    is_full: bool = False,
) -> Translated:
    """The plan of a query over relations. `columns` renames its columns; with `is_full`, the plan
    computes the query anew.

    Raises `InvalidSql`, or `UnsupportedSql` naming the node.
    """
    planner = _planner(session.sparkContext)
    with planner.lock:
        return planner.translate(query, relations, columns, is_full)


@lru_cache(1)
def _planner(context: SparkContext) -> _Planner:
    return _Planner(SparkSession(context))


class _Planner:
    """A session of Spark that only plans, and the relations that it knows."""

    def __init__(self, session: SparkSession) -> None:
        self.lock = Lock()
        self._spark = session.newSession()
        self._spark.conf.set("spark.sql.optimizer.excludedRules", EXCLUDED)
        self._spark.conf.set("spark.sql.session.timeZone", "UTC")
        self._relations: dict[str, tuple[Column, ...]] = {}

    def translate(
        self,
        query: str,
        relations: Mapping[str, tuple[Column, ...]],
        columns: Sequence[str],
        is_full: bool,
    ) -> Translated:
        try:
            self._show(query, relations)
            frame = ask(self._spark, query, relations)
            names = _named(frame.schema.names, columns)
            execution: Any = frame._jdf.queryExecution()
            _check_steady(self._spark, execution.analyzed())
            plan: Any = execution.optimizedPlan()
        except PySparkException as error:
            raise readable(error) from error
        except Py4JJavaError as error:
            reason = str(error.java_exception.getMessage()).splitlines()[0]
            raise UnsupportedSql(f"Spark itself fails to plan this query: {reason}") from error
        translation = Translation(self._spark)
        if is_full:
            node = translation.view(whole(translation, plan, query, relations), plan, names)
            check_plan(node)
            return Translated(node, translation.order(plan, names), False)
        node = translation.view(translation.node(plan), plan, names)
        order = translation.order(plan, names)
        check_ordered(node, order)
        check_plan(node)
        check_texts(self._spark, node)
        return Translated(node, order, bool(translation.choices))

    def _show(self, query: str, relations: Mapping[str, tuple[Column, ...]]) -> None:
        """Make the relations known to the session, and drop others that the query names."""
        named, text = {name.lower() for name in relations}, query.lower()
        gone = [name for name in self._relations if name not in named and name in text]
        for name in gone:
            del self._relations[name]
            self._spark.catalog.dropTempView(name)  # unlike what creates it, this takes no quotes
        for name, columns in relations.items():
            if self._relations.get(name.lower()) != columns:
                frame = self._spark.createDataFrame([], _schema_of(name, columns))
                frame.createOrReplaceTempView(quoted(name))
                self._relations[name.lower()] = columns


def _named(outputs: Sequence[str], columns: Sequence[str]) -> Sequence[str]:
    """The names of a view's columns: those in its definition, or those of its query."""
    if columns and len(columns) != len(outputs):
        raise InvalidSql(
            f"the view names {len(columns)} column{'s' * (len(columns) > 1)} "
            f"({', '.join(columns)}) and its query gives {len(outputs)} ({', '.join(outputs)}); "
            "name each of them, or none"
        )
    return columns or outputs


def _check_steady(spark: SparkSession, plan: Any) -> None:
    """Refuse functions that Spark replaces by their value of this moment."""
    jvm: Any = spark._jvm
    patterns = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    if not plan.containsPattern(patterns.CURRENT_LIKE()):
        return
    functions = [
        str(part.sql())
        for node in walk(plan)
        for expression in each(node.expressions())
        for part in walk(expression)
        if kind(part) in _OF_THE_MOMENT
    ]
    in_subquery = "a function of the moment, such as current_date(), in a subquery,"
    what = functions[0] if functions else in_subquery
    raise UnsupportedSql(
        f"{what} changes by itself, which no change of a table tells; store the moment in a "
        "column and compare with that"
    )


def _schema_of(name: str, columns: tuple[Column, ...]) -> StructType:
    """The schema of a relation for Spark; each column names the relation in its metadata."""
    metadata = {"table": name}
    return StructType(
        [StructField(c.name, _parsed(sql_name(c.type)), c.nullable, metadata) for c in columns]
    )


@lru_cache(1024)
def _parsed(type_: str) -> DataType:
    parsed: Any = StructType.fromDDL(f"c {type_}")
    spark_type: DataType = parsed[0].dataType
    return spark_type
