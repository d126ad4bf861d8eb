"""Spark's optimizer as our SQL front end: a query's optimized plan, translated into plan nodes.

The only code that looks into Spark. Tables are shown to Spark empty, with their types and
nullability; a view's columns have the names, types and nullability that Spark gives them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from everview.errors import InvalidSql, UnsupportedSql
from everview.plan.nodes import Aggregate, Call, Filter, Node, Project, Source
from everview.run.engine import readable
from everview.schema import Column, TableSchema, arrow_type, quoted, sql_name

_RULES = "org.apache.spark.sql.catalyst.optimizer."
EXCLUDED = ",".join(
    _RULES + rule
    for rule in (
        "DecimalAggregates",
        "MergeScalarSubqueries",
        "InferWindowGroupLimit",
        "InjectRuntimeFilter",
        "ConvertToLocalRelation",
        "PropagateEmptyRelation",
        "NormalizeFloatingNumbers",
    )
)
_FUNCTIONS = {"Count": "count", "Sum": "sum", "Average": "avg"}
_OF_THE_MOMENT = {
    *("CurrentDate", "CurrentTimestamp", "CurrentTime", "CurrentBatchTimestamp", "Now"),
    *("LocalTimestamp", "CurrentUser", "CurrentDatabase", "CurrentCatalog", "CurrentTimeZone"),
}


def translate(session: SparkSession, query: str, tables: list[TableSchema]) -> Node:
    """The plan of a query over tables. Raises `InvalidSql`, or `UnsupportedSql` naming the node."""
    spark = session.newSession()
    spark.conf.set("spark.sql.optimizer.excludedRules", EXCLUDED)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        for table in tables:
            frame = spark.createDataFrame([], _shown(table))
            frame.createOrReplaceTempView(f"`{table.name}`")
        frame = spark.sql(query)
        names = frame.schema.names
        execution: Any = frame._jdf.queryExecution()
        _check_steady(execution.analyzed())
        plan: Any = execution.optimizedPlan()
    except PySparkException as error:
        raise readable(error) from error
    return _Translation(spark).view(plan, names)


def _check_steady(plan: Any) -> None:
    """Refuse what Spark would replace by its value of this moment."""
    for node in _walk(plan):
        for expression in _each(node.expressions()):
            for part in _walk(expression):
                if _kind(part) in _OF_THE_MOMENT:
                    raise UnsupportedSql(
                        f"{part.sql()} changes by itself, which no change of a table tells; "
                        "store the moment in a column and compare with that"
                    )


def _shown(table: TableSchema) -> StructType:
    """The table as Spark is to see it; each column knows which table it is of."""
    of = {"table": table.name}
    return StructType(
        [StructField(column.name, _parsed(column), column.nullable, of) for column in table.columns]
    )


def _parsed(column: Column) -> DataType:
    parsed: Any = StructType.fromDDL(f"c {sql_name(column.type)}")
    spark_type: DataType = parsed[0].dataType
    return spark_type


class _Translation:
    """One walk over an optimized plan."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._names: dict[int, str] = {}

    def view(self, plan: Any, names: list[str]) -> Node:
        """The plan with the view's own column names at its top."""
        lower = [name.lower() for name in names]
        if twice := [name for name in names if lower.count(name.lower()) > 1]:
            raise InvalidSql(
                f"the view would have two columns {twice[0]}; name one of them AS else"
            )
        node = self._node(plan)
        columns = tuple(
            Column(name, column.type, column.nullable)
            for name, column in zip(names, node.columns, strict=True)
        )
        return Project(columns, node, tuple(quoted(column.name) for column in node.columns))

    def _node(self, plan: Any) -> Node:
        kind = plan.getClass().getSimpleName()
        translate = getattr(self, f"_{kind.lower()}", None)
        if translate is None:
            raise UnsupportedSql(
                f"a view with {kind} can't be maintained yet; views may select, filter and "
                "aggregate (count, sum, avg) the rows of one table"
            )
        node: Node = translate(plan)
        return node

    def _logicalrdd(self, plan: Any) -> Node:
        attributes = list(_each(plan.output()))
        table = json.loads(attributes[0].metadata().json())["table"]
        columns = tuple(self._column(attribute) for attribute in attributes)
        return Source(columns, table, tuple(attribute.name() for attribute in attributes))

    def _filter(self, plan: Any) -> Node:
        node = self._node(plan.child())
        return Filter(node.columns, node, self._text(plan.condition()))

    def _sort(self, plan: Any) -> Node:
        """ORDER BY without LIMIT is only an order of reading."""
        return self._node(plan.child())

    def _project(self, plan: Any) -> Node:
        node = self._node(plan.child())
        outputs = list(_each(plan.projectList()))
        texts = tuple(self._cast(_value(output)) for output in outputs)
        return Project(tuple(self._column(output) for output in outputs), node, texts)

    def _aggregate(self, plan: Any) -> Node:
        """Arguments computed, then aggregated, then the outputs computed from the results."""
        node = self._node(plan.child())
        given = _Given(node)
        groups = [
            given.name_of(self._cast(expression), self._typed("group", expression))
            for expression in _each(plan.groupingExpressions())
        ]
        calls: dict[Call, Column] = {}
        outputs = list(_each(plan.aggregateExpressions()))
        texts = tuple(self._output(_value(output), given, groups, calls) for output in outputs)
        columns = [given.columns[name] for name in groups] + list(calls.values())
        aggregate = Aggregate(tuple(columns), given.project(), tuple(groups), tuple(calls))
        return Project(tuple(self._column(output) for output in outputs), aggregate, texts)

    def _output(
        self, expression: Any, given: _Given, groups: list[str], calls: dict[Call, Column]
    ) -> str:
        """An output as text over groups and calls; notes the calls found in it."""

        def replace(found: Any) -> Any:
            if _kind(found) == "AggregateExpression":
                call = self._call(found, given)
                column = Column(
                    f"call_{len(calls)}", arrow_type(found.dataType().sql()), found.nullable()
                )
                return self._reference(found, calls.setdefault(call, column).name)
            known = given.texts.get(self._cast(found))
            return self._reference(found, known) if known in groups else None

        return self._cast(self._rewrite(expression, replace))

    def _call(self, expression: Any, given: _Given) -> Call:
        function = expression.aggregateFunction()
        name = _FUNCTIONS.get(_kind(function))
        if name is None or expression.isDistinct() or expression.filter().isDefined():
            raise UnsupportedSql(
                f"the aggregate {expression.sql()} can't be maintained yet; count, sum and avg can"
            )
        arguments = list(_each(function.children()))
        if name == "count" and all(_kind(one) == "Literal" for one in arguments):
            return Call("count", None)
        column = self._typed("argument", arguments[0])
        if len(arguments) > 1 or (name != "count" and pa.types.is_floating(column.type)):
            raise UnsupportedSql(
                f"{expression.sql()} can't be maintained yet: sums are exact, of integers and "
                "decimals; cast the argument to DECIMAL"
            )
        return Call(name, given.name_of(self._cast(arguments[0]), column))

    def _typed(self, name: str, expression: Any) -> Column:
        return Column(name, arrow_type(expression.dataType().sql()), expression.nullable())

    def _column(self, named: Any) -> Column:
        """A named expression as a column; the same one has the same name everywhere."""
        number = named.exprId().id()
        if number not in self._names:
            plain = re.sub(r"\W", "_", named.name())
            self._names[number] = f"{plain}_{len(self._names)}"
        return self._typed(self._names[number], named)

    def _cast(self, expression: Any) -> str:
        """The expression as text, of exactly the type that Spark resolved, on any engine."""
        text = self._text(expression)
        plain = _kind(expression) in ("AttributeReference", "Literal")
        return text if plain else f"CAST({text} AS {expression.dataType().sql()})"

    def _text(self, expression: Any) -> str:
        """The expression as text over our column names."""

        def replace(found: Any) -> Any:
            if _kind(found) == "AttributeReference" and found.exprId().id() in self._names:
                return self._reference(found, self._names[found.exprId().id()])
            return None

        if not expression.deterministic():
            raise UnsupportedSql(
                f"{expression.sql()} gives another value each time, so no view can follow it; "
                "store the value in a column"
            )
        return str(self._rewrite(expression, replace).sql())

    def _rewrite(self, expression: Any, replace: Callable[[Any], Any]) -> Any:
        """The expression with parts replaced, from the top down."""
        replaced = replace(expression)
        if replaced is not None:
            return replaced
        if _kind(expression).endswith("Subquery"):
            raise UnsupportedSql("a view with a subquery can't be maintained yet; use literals")
        children = [self._rewrite(child, replace) for child in _each(expression.children())]
        return expression.withNewChildren(self._sequence(children)) if children else expression

    def _reference(self, expression: Any, name: str) -> Any:
        catalyst = self._jvm.org.apache.spark.sql.catalyst.expressions
        return catalyst.AttributeReference(
            name,
            expression.dataType(),
            expression.nullable(),
            self._jvm.org.apache.spark.sql.types.Metadata.empty(),
            catalyst.NamedExpression.newExprId(),
            self._sequence([]),
        )

    def _sequence(self, items: list[Any]) -> Any:
        java = self._jvm.java.util.ArrayList()
        for item in items:
            java.add(item)
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(java).toSeq()


class _Given:
    """What an aggregate is given: its input's columns, and more for computed arguments."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.columns: dict[str, Column] = {}
        self.texts: dict[str, str] = {}

    def name_of(self, text: str, column: Column) -> str:
        """The name of the column with that text, added when it is new."""
        if text not in self.texts:
            name = f"{column.name}_{len(self.texts)}"
            self.texts[text] = name
            self.columns[name] = Column(name, column.type, column.nullable)
        return self.texts[text]

    def project(self) -> Node:
        return Project(tuple(self.columns.values()), self._node, tuple(self.texts))


def _value(output: Any) -> Any:
    return output.child() if _kind(output) == "Alias" else output


def _kind(thing: Any) -> str:
    return str(thing.getClass().getSimpleName())


def _each(sequence: Any) -> Iterator[Any]:
    items = sequence.iterator()
    while items.hasNext():
        yield items.next()


def _walk(tree: Any) -> Iterator[Any]:
    yield tree
    for child in _each(tree.children()):
        yield from _walk(child)
