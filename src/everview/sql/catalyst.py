"""Spark's optimizer as our SQL front end: a query's optimized plan, translated into plan nodes.

The only code that looks into Spark. Tables are shown to Spark empty, with their types and
nullability; a view's columns have the names, types and nullability that Spark gives them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructField, StructType
from sqlglot.dialects import Spark

from everview.errors import EverviewError, InvalidSql, UnsupportedSql
from everview.plan.nodes import (
    Aggregate,
    Call,
    Filter,
    Join,
    Node,
    Order,
    Project,
    Source,
    Threshold,
    TopK,
    Union,
)
from everview.run.engine import readable
from everview.schema import Column, TableSchema, arrow_type, quoted, sql_name, unquoted

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
_FUNCTIONS = {"Count": "count", "Sum": "sum", "Average": "avg", "Min": "min", "Max": "max"}
_JOINS = {
    "INNER": "inner",
    "CROSS": "inner",
    "LEFT OUTER": "left",
    "RIGHT OUTER": "left",
    "LEFT SEMI": "semi",
    "LEFT ANTI": "anti",
}
_COMPARISONS = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MAINTAINED = (
    "views may select, filter, join (inner, left, semi, anti), aggregate, UNION ALL, and ORDER BY "
    "with LIMIT"
)
_REMEDIES = {
    "Window": "aggregate in a view of its own and join with it",
    "Expand": "write each grouping as a view of its own",
    "Generate": "store one row for each element",
    "Offset": "use LIMIT without OFFSET",
}
_WORDS = set(Spark.Tokenizer.KEYWORDS) | {
    *("BY", "GROUP", "ORDER", "USER", "SESSION_USER", "CURRENT_USER", "SORT", "CLUSTER"),
    *("CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "DISTRIBUTE"),
}
_OF_THE_MOMENT = {
    *("CurrentDate", "CurrentTimestamp", "CurrentTime", "CurrentBatchTimestamp", "Now"),
    *("LocalTimestamp", "CurrentUser", "CurrentDatabase", "CurrentCatalog", "CurrentTimeZone"),
}


def translate(
    session: SparkSession, query: str, tables: list[TableSchema]
) -> tuple[Node, tuple[Order, ...]]:
    """The plan of a query over tables, and the order its rows are read in.

    Raises `InvalidSql`, or `UnsupportedSql` naming the node.
    """
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
    translation = _Translation(spark.sparkContext._jvm)
    return translation.view(plan, names), translation.order(plan, names)


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
    """One walk over an optimized plan, from the leaves up.

    Catalyst tells columns apart by numbers; `_names` has what the column of a number is called in
    the node translated last that has it.
    """

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._names: dict[int, str] = {}
        self._scalars: dict[int, str] = {}

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
            for name, column in zip(names, self._shown(node, plan), strict=True)
        )
        texts = tuple(quoted(column.name) for column in self._shown(node, plan))
        return Project(columns, node, texts)

    def _shown(self, node: Node, plan: Any) -> list[Column]:
        """The columns of a node that are the output of Catalyst's plan, in its order."""
        return [node.column(self._names[out.exprId().id()]) for out in _each(plan.output())]

    def order(self, plan: Any, names: list[str]) -> tuple[Order, ...]:
        """The order in which the view is to be read, as far as its columns say it."""
        numbers = [output.exprId().id() for output in _each(plan.output())]
        while _kind(plan) in ("Project", "GlobalLimit", "LocalLimit"):
            plan = plan.child()
        found = []
        for order in _each(plan.order()) if _kind(plan) == "Sort" else ():
            column = order.child()
            if _kind(column) != "AttributeReference" or column.exprId().id() not in numbers:
                break
            name = names[numbers.index(column.exprId().id())]
            found.append(Order(name, _descending(order), _nulls_first(order)))
        return tuple(found)

    def _node(self, plan: Any) -> Node:
        kind = _kind(plan)
        translate = getattr(self, f"_{kind.lower()}", None)
        if translate is None:
            raise UnsupportedSql(
                f"a view with {kind} can't be maintained yet; {_REMEDIES.get(kind, _MAINTAINED)}"
            )
        node: Node = translate(plan)
        return node

    def _logicalrdd(self, plan: Any) -> Node:
        attributes = list(_each(plan.output()))
        table = json.loads(attributes[0].metadata().json())["table"]
        read = tuple(attribute.name() for attribute in attributes)
        return Source(self._columns(attributes), table, read)

    def _filter(self, plan: Any) -> Node:
        node = self._node(plan.child())
        conditions = list(_conjuncts(plan.condition()))
        if plain := [one for one in conditions if not _subqueries(one)]:
            node = self._filtered(node, plain)
        for condition in conditions:
            if _subqueries(condition):
                node = self._compared(node, condition)
        return node

    def _filtered(self, node: Node, conditions: list[Any]) -> Node:
        if not conditions:
            return node
        return Filter(node.columns, node, " AND ".join(map(self._text, conditions)))

    def _compared(self, node: Node, condition: Any) -> Node:
        """Rows that compare with a scalar subquery."""
        sides = list(_each(condition.children()))
        comparison = _COMPARISONS.get(_kind(condition))
        if comparison is not None and _subqueries(sides[0]):
            sides, comparison = sides[::-1], _FLIPPED[comparison]
        alone = len(sides) == 2 and not _subqueries(sides[0]) and _is_scalar(sides[1])
        if comparison is None or not alone:
            attached = self._attached(node, [condition])
            return _only(self._filtered(attached, [condition]), node)
        (subquery,) = _subqueries(sides[1])
        inner, name = self._scalar(subquery)

        def replace(found: Any) -> Any:
            same = _kind(found) == "ScalarSubquery"
            return self._reference(found, name) if same else None

        value = self._typed("scalar", sides[1])
        text = self._cast(self._rewrite(sides[1], replace))
        scalar = Project((value,), inner, (text,))
        given, (column,) = self._with(node, [sides[0]], "compared")
        return _only(Threshold(given.columns, given, scalar, column, comparison), node)

    def _scalar(self, subquery: Any) -> tuple[Node, str]:
        """The plan of a scalar subquery, and its column."""
        inner = _Translation(self._jvm)
        plan = subquery.plan()
        node = inner._node(plan)
        return node, inner._shown(node, plan)[0].name

    def _attached(self, node: Node, expressions: list[Any]) -> Node:
        """The node with a column for every scalar subquery in the expressions."""
        for subquery in [found for one in expressions for found in _subqueries(one)]:
            number = subquery.exprId().id()
            if number in self._scalars and self._scalars[number] in node.names():
                continue
            inner, name = self._scalar(subquery)
            column = replace(inner.column(name), name="scalar", nullable=True)
            scalar = Project((column,), inner, (quoted(name),))
            shown = replace(column, name=_unused("scalar", node.names()))
            self._scalars[number] = shown.name
            node = Join((*node.columns, shown), node, scalar, "left", (), (), (), True)
        return node

    def _sort(self, plan: Any) -> Node:
        """ORDER BY without LIMIT is only an order of reading."""
        return self._node(plan.child())

    def _globallimit(self, plan: Any) -> Node:
        """With the ORDER BY below it, the first rows; without one, any rows, always the same."""
        below, limit = plan.child(), plan.limitExpr()
        while _kind(below) == "LocalLimit":
            below = below.child()
        orders = list(_each(below.order())) if _kind(below) == "Sort" else []
        node = self._node(below)
        given, names = self._with(node, [order.child() for order in orders], "order")
        by = tuple(
            Order(name, _descending(order), _nulls_first(order))
            for name, order in zip(names, orders, strict=True)
        )
        return _only(TopK(given.columns, given, by, int(limit.value())), node)

    def _locallimit(self, plan: Any) -> Node:
        """Catalyst's hint to take few rows early; the limit itself is further up."""
        return self._node(plan.child())

    def _project(self, plan: Any) -> Node:
        node = self._node(plan.child())
        outputs = list(_each(plan.projectList()))
        node = self._attached(node, outputs)
        texts = tuple(self._cast(_value(output)) for output in outputs)
        return _project(node, self._columns(outputs), texts)

    def _union(self, plan: Any) -> Node:
        parts = [self._part(child) for child in _each(plan.children())]
        columns = self._columns(list(_each(plan.output())))
        named = [_project(part, columns, tuple(map(quoted, part.names()))) for part in parts]
        return Union(columns, tuple(named))

    def _part(self, plan: Any) -> Node:
        """A part of a union; its columns may have the numbers of another part's."""
        inner = _Translation(self._jvm)
        node = inner._node(plan)
        columns = tuple(inner._shown(node, plan))
        return _project(node, columns, tuple(quoted(column.name) for column in columns))

    def _join(self, plan: Any) -> Node:
        if _kind(plan.joinType()) == "ExistenceJoin":
            raise UnsupportedSql(
                "a view with IN or EXISTS beside an OR can't be maintained yet; write a SELECT for "
                "each side of the OR and put UNION between them"
            )
        how = _JOINS.get(plan.joinType().sql())
        if how is None:
            raise UnsupportedSql(
                f"a view with a {plan.joinType().sql()} join can't be maintained yet; inner, left, "
                "semi and anti joins (EXISTS, IN, NOT EXISTS, NOT IN) can"
            )
        flipped = plan.joinType().sql() == "RIGHT OUTER"
        sides = (plan.right(), plan.left()) if flipped else (plan.left(), plan.right())
        left, right = self._node(sides[0]), self._node(sides[1])
        condition = plan.condition()
        conditions = list(_conjuncts(condition.get())) if condition.isDefined() else []
        if how == "anti" and (equality := _null_aware(conditions)) is not None:
            return self._null_aware_anti(left, right, sides, equality)
        pairs, rest = self._equalities(conditions, sides)
        if not pairs:
            raise UnsupportedSql(
                "a join without an equality between its two sides can't be maintained yet; add one "
                "to its ON or WHERE, as in a.key = b.key"
            )
        keyed_left, left_keys = self._with(left, [one for one, _, _ in pairs], "key")
        keyed_right, right_keys = self._with(right, [other for _, other, _ in pairs], "key")
        safe = tuple(safe for _, _, safe in pairs)
        join = partial(
            Join,
            left=keyed_left,
            right=keyed_right,
            left_keys=left_keys,
            right_keys=right_keys,
            null_safe=safe,
            replicated=False,
        )
        if how in ("semi", "anti") and not rest:
            return _only(join(keyed_left.columns, how=how), left)
        columns = self._side_by_side(keyed_left, keyed_right, sides[1])
        if how == "left" and not rest:
            nullable = tuple(replace(c, nullable=True) for c in columns[len(keyed_left.columns) :])
            return join((*keyed_left.columns, *nullable), how="left")
        paired = self._filtered(join(columns, how="inner"), rest)
        return paired if how == "inner" else _by_matches(left, paired, how)

    def _null_aware_anti(self, left: Node, right: Node, sides: Any, equality: Any) -> Node:
        """NOT IN: nothing if the right has a NULL, and left NULLs only if the right is empty."""
        pairs, _ = self._equalities([equality], sides)
        if not pairs:
            raise UnsupportedSql(
                "this NOT IN can't be maintained yet; write NOT EXISTS with an equality"
            )
        ((key, other, _),) = pairs
        keyed, (name,) = self._with(left, [key], "key")
        keyed_right, (of_right,) = self._with(right, [other], "key")
        counted = Aggregate(
            (Column("call_0", pa.int64(), False), Column("call_1", pa.int64(), False)),
            _project(keyed_right, (keyed_right.column(of_right),), (quoted(of_right),)),
            (),
            (Call("count", None), Call("count", of_right)),
        )
        flags = (Column("empty", pa.bool_(), False), Column("whole", pa.bool_(), False))
        facts = Project(flags, counted, ("call_0 = 0", "call_0 = call_1"))
        anti = Join(
            keyed.columns, keyed, keyed_right, "anti", (name,), (of_right,), (False,), False
        )
        shown = tuple(
            replace(flag, name=_unused(flag.name, keyed.names()), nullable=True) for flag in flags
        )
        joined = Join((*keyed.columns, *shown), anti, facts, "left", (), (), (), True)
        empty, whole = (quoted(flag.name) for flag in shown)
        condition = f"{empty} OR ({whole} AND {quoted(name)} IS NOT NULL)"
        return _only(Filter(joined.columns, joined, condition), left)

    def _equalities(
        self, conditions: list[Any], sides: tuple[Any, Any]
    ) -> tuple[list[tuple[Any, Any, bool]], list[Any]]:
        """Pairs of equal expressions of the two sides, NULL-safe or not; and what else is asked."""
        left, right = (_numbers(side.output()) for side in sides)
        pairs, rest = [], []
        for condition in conditions:
            if _kind(condition) in ("EqualTo", "EqualNullSafe"):
                one, other = _each(condition.children())
                if _numbers(one.references()) <= right and _numbers(other.references()) <= left:
                    one, other = other, one
                used = _numbers(one.references()), _numbers(other.references())
                if all(used) and used[0] <= left and used[1] <= right:
                    pairs.append((one, other, _kind(condition) == "EqualNullSafe"))
                    continue
            rest.append(condition)
        return pairs, rest

    def _side_by_side(self, left: Node, right: Node, plan: Any) -> tuple[Column, ...]:
        """The columns of both sides; those of the right get other names where both have one."""
        taken = [*left.names()]
        columns = []
        for column in right.columns:
            columns.append(replace(column, name=_unused(column.name, taken)))
            taken.append(columns[-1].name)
        renamed = dict(zip(right.names(), columns, strict=True))
        for output in _each(plan.output()):
            number = output.exprId().id()
            self._names[number] = renamed[self._names[number]].name
        return (*left.columns, *columns)

    def _with(self, node: Node, expressions: list[Any], name: str) -> tuple[Node, tuple[str, ...]]:
        """The node with columns for the expressions, and their names; as it is if it has them."""
        node = self._attached(node, expressions)
        given = _Given(node, keep=True)
        names = [given.name_of(self._cast(one), self._typed(name, one)) for one in expressions]
        return given.project(), tuple(names)

    def _aggregate(self, plan: Any) -> Node:
        """Arguments computed, then aggregated, then the outputs computed from the results."""
        node = self._node(plan.child())
        outputs = list(_each(plan.aggregateExpressions()))
        groupings = list(_each(plan.groupingExpressions()))
        node = self._attached(node, [*groupings, *outputs])
        given = _Given(node)
        groups = [
            given.name_of(self._cast(expression), self._typed("group", expression))
            for expression in groupings
        ]
        calls: dict[Call, Column] = {}
        texts = tuple(self._output(_value(output), given, groups, calls) for output in outputs)
        columns = [given.columns[name] for name in groups] + list(calls.values())
        aggregate = Aggregate(tuple(columns), given.project(), tuple(groups), tuple(calls))
        return _project(aggregate, self._columns(outputs), texts)

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

        return self._cast(self._rewrite(expression, replace), renamed=True)

    def _call(self, expression: Any, given: _Given) -> Call:
        function = expression.aggregateFunction()
        name = _FUNCTIONS.get(_kind(function))
        arguments = list(_each(function.children()))
        counted = [one for one in arguments if one.nullable() or name != "count"]
        if name is None or expression.filter().isDefined() or len(counted) > 1:
            raise UnsupportedSql(
                f"the aggregate {expression.sql()} can't be maintained yet; count, sum, avg, min "
                "and max of one argument can, with or without DISTINCT"
            )
        distinct = expression.isDistinct() and name not in ("min", "max")
        if name == "count" and not counted and not distinct:
            return Call("count", None)
        if distinct and len(arguments) > 1:
            raise UnsupportedSql(
                f"{expression.sql()} can't be maintained yet; count distinct values of one column"
            )
        argument = (counted or arguments)[0]
        column = self._typed("argument", argument)
        return Call(name, given.name_of(self._cast(argument), column), distinct)

    def _typed(self, name: str, expression: Any) -> Column:
        try:
            arrow = arrow_type(expression.dataType().sql())
        except EverviewError as error:
            raise UnsupportedSql(
                f"{expression.sql()} is of type {expression.dataType().sql()}, which views don't "
                f"have yet: {error}"
            ) from error
        return Column(name, arrow, expression.nullable())

    def _columns(self, outputs: list[Any]) -> tuple[Column, ...]:
        """Named expressions as the columns of a node; what passes through keeps its name."""
        numbers = [output.exprId().id() for output in outputs]
        passing = [
            self._names[number]
            for output, number in zip(outputs, numbers, strict=True)
            if _kind(output) == "AttributeReference" and number in self._names
        ]
        taken = list(passing)
        columns = []
        for output, number in zip(outputs, numbers, strict=True):
            if _kind(output) == "AttributeReference" and self._names.get(number) in passing:
                name = self._names[number]
                passing.remove(name)
            else:
                name = _unused(_plain(output.name()), taken)
                taken.append(name)
                self._names[number] = name
            columns.append(self._typed(name, output))
        return tuple(columns)

    def _cast(self, expression: Any, renamed: bool = False) -> str:
        """The expression as text, of exactly the type that Spark resolved, on any engine."""
        text = str(expression.sql()) if renamed else self._text(expression)
        plain = _kind(expression) in ("AttributeReference", "Literal")
        return text if plain else f"CAST({text} AS {expression.dataType().asNullable().sql()})"

    def _text(self, expression: Any) -> str:
        """The expression as text over our column names."""

        def replace(found: Any) -> Any:
            kind = _kind(found)
            if kind == "AttributeReference" and found.exprId().id() in self._names:
                return self._reference(found, self._names[found.exprId().id()])
            if kind == "ScalarSubquery" and found.exprId().id() in self._scalars:
                return self._reference(found, self._scalars[found.exprId().id()])
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
            raise UnsupportedSql(
                f"a view with a subquery here can't be maintained yet: {expression.sql()[:80]}"
            )
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
    """Columns for expressions: the input's own where they are no more than that, else computed.

    With `keep`, the input's columns come first, needed or not.
    """

    def __init__(self, node: Node, keep: bool = False) -> None:
        self._node = node
        kept = node.columns if keep else ()
        self.columns = {column.name: column for column in kept}
        self.texts = {column.name: column.name for column in kept}

    def name_of(self, text: str, column: Column) -> str:
        """The name of the column with that text, added when it is new."""
        if text not in self.texts:
            own = text in self._node.names()
            name = text if own else _unused(column.name, [*self.columns, *self._node.names()])
            self.texts[text] = name
            self.columns[name] = replace(column, name=name)
        return self.texts[text]

    def project(self) -> Node:
        return _project(self._node, tuple(self.columns.values()), tuple(self.texts))


def _by_matches(left: Node, paired: Node, how: str) -> Node:
    """A left, semi or anti join with more conditions than equal keys, from its pairs.

    A row of the left has a match if it is among the pairs, whole.
    """
    names = tuple(left.names())
    matched = _project(paired, left.columns, tuple(map(quoted, names)))
    safe = (True,) * len(names)
    kind = "anti" if how == "left" else how
    join = Join(left.columns, left, matched, kind, names, names, safe, False)
    if how != "left":
        return join
    columns = tuple(
        column if column.name in names else replace(column, nullable=True)
        for column in paired.columns
    )
    texts = tuple(
        quoted(column.name) if column.name in names else f"CAST(NULL AS {sql_name(column.type)})"
        for column in columns
    )
    return Union(columns, (paired, Project(columns, join, texts)))


def _project(node: Node, columns: tuple[Column, ...], texts: tuple[str, ...]) -> Node:
    """A projection; none where it would give the node's own columns."""
    plain = tuple(unquoted(text) for text in texts)
    if plain == tuple(node.names()) == tuple(column.name for column in columns):
        return node
    return Project(columns, node, texts)


def _only(node: Node, wanted: Node) -> Node:
    """The node with no more columns than those of another."""
    return _project(node, wanted.columns, tuple(map(quoted, wanted.names())))


def _plain(name: str) -> str:
    """A name that needs no quotes on any engine."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not plain[:1].isalpha():
        return f"c{plain}"
    return f"{plain}_" if plain.upper() in _WORDS else plain


def _unused(name: str, taken: Iterable[str]) -> str:
    """The name, with a number if another has it; names that differ only in case are the same."""
    lower = {one.lower() for one in taken}
    if name.lower() not in lower:
        return name
    return next(new for n in count(2) if (new := f"{name}_{n}").lower() not in lower)


def _conjuncts(condition: Any) -> Iterator[Any]:
    if _kind(condition) == "And":
        for child in _each(condition.children()):
            yield from _conjuncts(child)
    else:
        yield condition


def _subqueries(expression: Any) -> list[Any]:
    return [part for part in _walk(expression) if _kind(part) == "ScalarSubquery"]


def _is_scalar(expression: Any) -> bool:
    """No more than one subquery and no column in it."""
    return len(_subqueries(expression)) == 1 and not _numbers(expression.references())


def _numbers(attributes: Any) -> set[int]:
    return {attribute.exprId().id() for attribute in _each(attributes)}


def _null_aware(conditions: list[Any]) -> Any | None:
    """The equality of a NOT IN whose sides may be NULL: (a = b) OR isnull(a = b)."""
    if len(conditions) != 1 or _kind(conditions[0]) != "Or":
        return None
    one, other = _each(conditions[0].children())
    return one if _kind(one) == "EqualTo" and _kind(other) == "IsNull" else None


def _descending(order: Any) -> bool:
    return _kind(order.direction()) == "Descending$"


def _nulls_first(order: Any) -> bool:
    return _kind(order.nullOrdering()) == "NullsFirst$"


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
