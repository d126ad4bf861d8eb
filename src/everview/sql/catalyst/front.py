"""A query given to Spark's optimizer, and what it refuses at once."""

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
    """The plan of a query, the order its rows are read in, and whether SQL leaves its answer open:
    then Spark may have another."""

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
    """The plan of a query over relations, with other names for its columns if there are any; one
    that computes it anew if `is_full`.

    Raises `InvalidSql`, or `UnsupportedSql` naming the node.
    """
    planner = _planner(session.sparkContext)
    with planner.lock:
        return planner.translate(query, relations, columns, is_full)


@lru_cache(1)
def _planner(context: SparkContext) -> _Planner:
    return _Planner(SparkSession(context))


class _Planner:
    """A session of Spark's that only plans, and keeps the relations that it was shown."""

    def __init__(self, session: SparkSession) -> None:
        self.lock = Lock()
        self._spark = session.newSession()
        self._spark.conf.set("spark.sql.optimizer.excludedRules", EXCLUDED)
        self._spark.conf.set("spark.sql.session.timeZone", "UTC")
        self._shown: dict[str, tuple[Column, ...]] = {}

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
            said = str(error.java_exception.getMessage()).splitlines()[0]
            raise UnsupportedSql(f"Spark itself fails to plan this query: {said}") from error
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
        """Have the session know the relations, and no others that the query names."""
        named, text = {name.lower() for name in relations}, query.lower()
        gone = [name for name in self._shown if name not in named and name in text]
        for name in gone:
            del self._shown[name]
            self._spark.catalog.dropTempView(name)  # unlike what creates it, this takes no quotes
        for name, columns in relations.items():
            if self._shown.get(name.lower()) != columns:
                frame = self._spark.createDataFrame([], _shown(name, columns))
                frame.createOrReplaceTempView(quoted(name))
                self._shown[name.lower()] = columns


def _named(given: Sequence[str], columns: Sequence[str]) -> Sequence[str]:
    """The names of a view's columns: those that it lists, one for each that its query gives."""
    if columns and len(columns) != len(given):
        raise InvalidSql(
            f"the view names {len(columns)} column{'s' * (len(columns) > 1)} "
            f"({', '.join(columns)}) and its query gives {len(given)} ({', '.join(given)}); name "
            "each of them, or none"
        )
    return columns or given


def _check_steady(spark: SparkSession, plan: Any) -> None:
    """Refuse what Spark would replace by its value of this moment."""
    jvm: Any = spark._jvm
    patterns = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    if not plan.containsPattern(patterns.CURRENT_LIKE()):
        return
    found = [
        str(part.sql())
        for node in walk(plan)
        for expression in each(node.expressions())
        for part in walk(expression)
        if kind(part) in _OF_THE_MOMENT
    ]
    what = found[0] if found else "a function of the moment, such as current_date(), in a subquery,"
    raise UnsupportedSql(
        f"{what} changes by itself, which no change of a table tells; store the moment in a "
        "column and compare with that"
    )


def _shown(name: str, columns: tuple[Column, ...]) -> StructType:
    """A relation as Spark is to see it; each column knows which one it is of."""
    of = {"table": name}
    return StructType(
        [StructField(c.name, _parsed(sql_name(c.type)), c.nullable, of) for c in columns]
    )


@lru_cache(1024)
def _parsed(type_: str) -> DataType:
    parsed: Any = StructType.fromDDL(f"c {type_}")
    spark_type: DataType = parsed[0].dataType
    return spark_type
