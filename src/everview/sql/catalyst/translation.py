"""Catalyst's logical plans as plan nodes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from everview.errors import InvalidSql, UnsupportedSql
from everview.plan.expressions import (
    Lit,
    Ref,
    all_of,
    call,
    cast,
    named_struct,
    null,
    sql,
    string,
)
from everview.plan.nodes import (
    Constant,
    Filter,
    Generate,
    Node,
    Order,
    Project,
    Source,
    TopK,
    Union,
)
from everview.schema import Column, is_nested, quoted
from everview.spark.trees import (
    can_fail,
    children_of,
    conjuncts,
    descending,
    each,
    kind,
    nulls_first,
    numbers,
    sql_type,
    subqueries,
    value,
    walk,
)
from everview.sql.catalyst.aggregates import aggregate
from everview.sql.catalyst.building import InputColumns, only, plain, project, unused
from everview.sql.catalyst.checking import overflows
from everview.sql.catalyst.expressions import Expressions
from everview.sql.catalyst.joins import join
from everview.sql.catalyst.scalars import attached, compared
from everview.sql.catalyst.windows import window

MOST_CONSTANTS = 10_000
_REFUSED = {
    "UnionLoop": "a recursive WITH; join the table with itself as often as there may be levels, or "
    "create the view WITH (refresh = 'full'), which computes all of it anew",
    "Sample": "TABLESAMPLE; select by a condition, such as hash(key) % 10 = 0",
}
_OUTER = {"Explode": "explode", "PosExplode": "posexplode", "Inline": "inline"}


class Translation:
    """One walk over an optimized plan, from the leaves up.

    `choices` has the functions whose answer SQL leaves open, so that Spark's may differ.
    """

    def __init__(self, session: SparkSession, choices: set[str] | None = None) -> None:
        self._session = session
        self.expressions = Expressions(session._jvm)
        self.choices: set[str] = set() if choices is None else choices

    def view(self, node: Node, plan: Any, names: Sequence[str]) -> Node:
        """The node of a plan, with a projection to the view's own column names."""
        times = Counter(name.lower() for name in names)
        if twice := [name for name in names if times[name.lower()] > 1]:
            raise InvalidSql(
                f"the view would have two columns {twice[0]}; name one of them AS else"
            )
        outputs = self.outputs(node, plan)
        columns = tuple(
            Column(name, column.type, column.nullable)
            for name, column in zip(names, outputs, strict=True)
        )
        return Project(columns, node, tuple(Ref(column.name) for column in outputs))

    def outputs(self, node: Node, plan: Any) -> list[Column]:
        """The columns of a node that are the outputs of Catalyst's plan, in its order."""
        names = self.expressions.names
        columns = {column.name: column for column in node.columns}
        return [columns[names[output.exprId().id()]] for output in each(plan.output())]

    def order(self, plan: Any, names: Sequence[str]) -> tuple[Order, ...]:
        """The order in which to read the view, as far as its columns allow."""
        numbers = [output.exprId().id() for output in each(plan.output())]
        while kind(plan) in ("Project", "GlobalLimit", "LocalLimit", "Offset"):
            plan = plan.child()
        orders = []
        for order in each(plan.order()) if kind(plan) == "Sort" else ():
            column = order.child()
            if kind(column) != "AttributeReference" or column.exprId().id() not in numbers:
                break
            name = names[numbers.index(column.exprId().id())]
            orders.append(Order(name, descending(order), nulls_first(order)))
        return tuple(orders)

    def node(self, plan: Any) -> Node:
        translate = NODES.get(kind(plan))
        if translate is None and kind(plan) in _REFUSED:
            what, remedy = _REFUSED[kind(plan)].split("; ")
            raise UnsupportedSql(f"a view with {what} can't be maintained; {remedy}")
        if translate is None:
            raise UnsupportedSql(
                f"a view with {kind(plan)} can't be maintained; views may select, filter, join, "
                "aggregate, explode, use windows and set operations, and ORDER BY with LIMIT"
            )
        return translate(self, plan)

    def apart(self, plan: Any) -> tuple[Node, list[Column]]:
        """The node and the output columns of a plan whose columns may have the same numbers as
        those of another part."""
        inner = Translation(self._session, self.choices)
        node = inner.node(plan)
        return node, inner.outputs(node, plan)

    def filtered(self, node: Node, conditions: list[Any]) -> Node:
        """The rows for which all conditions hold; conditions that can fail are evaluated only where
        the others hold."""
        if not conditions:
            return node
        parted: tuple[list[Any], list[Any]] = ([], [])
        for condition in conditions:
            is_risky = any(can_fail(part) or overflows(part) for part in walk(condition))
            parted[is_risky].append(condition)
        safe, risky = parted
        trees = [self.expressions.tree(condition) for condition in safe]
        trees += [self.expressions.tree(condition, safe) for condition in risky]
        return Filter(node.columns, node, all_of(trees))

    def computed(
        self, node: Node, expressions: list[Any], name: str
    ) -> tuple[Node, tuple[str, ...]]:
        """The node with columns for the expressions, and the names of these columns."""
        node = attached(self, node, expressions)
        columns, trees = InputColumns(node, keep=True), self.expressions
        names = [columns.name_of(trees.cast(part), trees.typed(name, part)) for part in expressions]
        return columns.project(), tuple(names)

    def values(self, plan: Any) -> list[tuple[Any, ...]]:
        """The rows of a plan that reads no table, as texts, with None for NULL. The text of an
        array, struct or map is SQL."""
        jvm: Any = self._session._jvm
        rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._session._jsparkSession, plan)
        frame = DataFrame(rows, self._session)
        texts = [
            f"{'hex' if kind_ == 'binary' else 'string'}({quoted(f'c{i}')})"
            for i, (_, kind_) in enumerate(frame.dtypes)
        ]
        named = frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))
        values = [list(row) for row in named.limit(MOST_CONSTANTS + 1).selectExpr(*texts).collect()]
        for i, attribute in enumerate(each(plan.output())):
            if is_nested(self.expressions.typed("", attribute).type):
                for row, inner in zip(values, each(plan.data()), strict=False):
                    row[i] = self.expressions.nested(inner, i, attribute)
        return [tuple(row) for row in values]


def _source(translation: Translation, plan: Any) -> Node:
    attributes = list(each(plan.output()))
    table = json.loads(attributes[0].metadata().json())["table"]
    read = tuple(attribute.name() for attribute in attributes)
    return Source(translation.expressions.columns(attributes), table, read)


def _one_row(translation: Translation, plan: Any) -> Node:
    return Constant((), ((),))


def _constant(translation: Translation, plan: Any) -> Node:
    columns = translation.expressions.columns(list(each(plan.output())))
    empty = kind(plan) == "LocalRelation" and plan.data().isEmpty()
    rows = [] if empty else translation.values(plan)
    if len(rows) > MOST_CONSTANTS:
        raise UnsupportedSql(
            f"a view may have constants of {MOST_CONSTANTS:,} rows; put more of them in a table"
        )
    types = [sql_type(attribute) for attribute in each(plan.output())]
    return Constant(columns, tuple(tuple(map(_literal, row, types)) for row in rows))


def _literal(text: str | None, type_: str) -> Lit:
    if text is None:
        return null(type_)
    if type_ == "BINARY":
        return Lit(f"X'{text}'", type_)
    if type_.startswith(("ARRAY", "STRUCT", "MAP")):
        return Lit(f"CAST({text} AS {type_})", type_)
    written = string(text)
    return written if type_ == "STRING" else Lit(f"CAST({written.text} AS {type_})", type_)


def _filter(translation: Translation, plan: Any) -> Node:
    node = translation.node(plan.child())
    conditions = list(conjuncts(plan.condition()))
    node = translation.filtered(node, [part for part in conditions if not subqueries(part)])
    for condition in conditions:
        if subqueries(condition):
            node = compared(translation, node, condition)
    return node


def _arranged(translation: Translation, plan: Any) -> Node:
    """ORDER BY without LIMIT only orders the reading; DISTRIBUTE BY and hints about partitions
    change nothing."""
    return translation.node(plan.child())


def _limit(translation: Translation, plan: Any) -> Node:
    """With the ORDER BY below it, the first rows; without one, any rows, always the same.

    Catalyst may have moved projections between the two: they come after the first rows.
    """
    limit, below, offset = int(plan.limitExpr().value()), plan.child(), 0
    while kind(below) in ("LocalLimit", "Offset"):
        if kind(below) == "Offset":
            offset = int(below.offsetExpr().value())
        below = below.child()
    projections, sort = [], below
    while kind(sort) == "Project":
        projections.append(sort)
        sort = sort.child()
    if kind(sort) != "Sort":
        node = translation.node(below)
        return TopK(node.columns, node, (), limit, offset)
    orders = list(each(sort.order()))
    node = translation.node(sort)
    ordered, names = translation.computed(node, [order.child() for order in orders], "order")
    by = tuple(
        Order(name, descending(order), nulls_first(order))
        for name, order in zip(names, orders, strict=True)
    )
    node = only(TopK(ordered.columns, ordered, by, limit, offset), node)
    for projection in reversed(projections):
        node = _projected(translation, node, projection)
    return node


def _offset(translation: Translation, plan: Any) -> Node:
    raise UnsupportedSql(
        "a view with OFFSET and no LIMIT can't be maintained; write LIMIT n OFFSET m, which keeps "
        "the n rows after the first m"
    )


def _local_limit(translation: Translation, plan: Any) -> Node:
    """Catalyst's hint to take few rows early; the limit itself is further up."""
    return translation.node(plan.child())


def _project(translation: Translation, plan: Any) -> Node:
    return _projected(translation, translation.node(plan.child()), plan)


def _projected(translation: Translation, node: Node, plan: Any) -> Node:
    outputs = list(each(plan.projectList()))
    node = attached(translation, node, outputs)
    trees = tuple(translation.expressions.cast(value(output)) for output in outputs)
    return project(node, translation.expressions.columns(outputs), trees)


def _union(translation: Translation, plan: Any) -> Node:
    parts = [translation.apart(child) for child in children_of(plan)]
    columns = translation.expressions.columns(list(each(plan.output())))
    named = [
        project(node, columns, tuple(Ref(column.name) for column in outputs))
        for node, outputs in parts
    ]
    return Union(columns, tuple(named))


def _expand(translation: Translation, plan: Any) -> Node:
    """Each row several times, with other values each time: inlines an array of structs."""
    node = translation.node(plan.child())
    trees = translation.expressions
    outputs = list(each(plan.output()))
    projections = [list(each(projection)) for projection in each(plan.projections())]
    node = attached(translation, node, [part for parts in projections for part in parts])
    types = [sql_type(output) for output in outputs]
    structs = []
    for expressions in projections:
        typed = zip(expressions, types, strict=True)
        fields = [cast(trees.tree(expression), type_) for expression, type_ in typed]
        structs.append(named_struct((f"c{i}", field) for i, field in enumerate(fields)))
    return Generate(trees.columns(outputs), node, (), call("inline", call("array", *structs)))


def _generate(translation: Translation, plan: Any) -> Node:
    """LATERAL VIEW, and functions of the SELECT list that return several rows."""
    node = translation.node(plan.child())
    generator = plan.generator()
    node = attached(translation, node, [generator])
    trees = translation.expressions
    if kind(generator) == "ReplicateRows":
        return _replicated(translation, node, plan)
    generated = list(each(plan.generatorOutput()))
    fresh = numbers(plan.generatorOutput())
    passed = [output for output in each(plan.output()) if output.exprId().id() not in fresh]
    tree = trees.tree(generator)
    if plan.outer():
        name = _OUTER.get(kind(generator))
        if name is None:
            raise UnsupportedSql(
                f"LATERAL VIEW OUTER {generator.sql()} can't be maintained; explode, posexplode "
                "and inline can"
            )
        tree = call(f"{name}_outer", *tree.parts())
    passing = tuple(trees.names[output.exprId().id()] for output in passed)
    columns = [node.column(name) for name in passing]
    for output in generated:
        name = unused(plain(output.name()), [column.name for column in columns])
        trees.names[output.exprId().id()] = name
        columns.append(trees.typed(name, output))
    return Generate(tuple(columns), node, passing, tree)


def _replicated(translation: Translation, node: Node, plan: Any) -> Node:
    """Rows as often as their first column says: EXCEPT ALL and INTERSECT ALL."""
    times, *columns = children_of(plan.generator())
    trees = translation.expressions
    names = tuple(trees.names[column.exprId().id()] for column in columns)
    for output, name in zip(each(plan.generatorOutput()), names, strict=True):
        trees.names[output.exprId().id()] = name
    time = Column(unused("time", names), pa.int32(), False)
    tree = sql("explode(array_repeat(0, {0}))", cast(trees.tree(times), "INT"))
    return Generate((*map(node.column, names), time), node, names, tree)


NODES: dict[str, Callable[[Translation, Any], Node]] = {
    "LogicalRDD": _source,
    "OneRowRelation": _one_row,
    "LocalRelation": _constant,
    "Range": _constant,
    "Filter": _filter,
    "Project": _project,
    "Union": _union,
    "Expand": _expand,
    "Generate": _generate,
    "Sort": _arranged,
    "RepartitionByExpression": _arranged,
    "Repartition": _arranged,
    "RebalancePartitions": _arranged,
    "GlobalLimit": _limit,
    "LocalLimit": _local_limit,
    "Offset": _offset,
    "Join": join,
    "Aggregate": aggregate,
    "Window": window,
}
