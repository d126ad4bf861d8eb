"""Catalyst's aggregates: those maintained by counts and sums, and those recomputed for the groups
that a change touches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from everview.errors import UnsupportedSql
from everview.functions import AggregateFunction, of_catalyst
from everview.plan.expressions import (
    Lit,
    Ref,
    Tree,
    all_of,
    call,
    cast,
    field_of,
    named_struct,
    not_on_sail,
    places,
    sql,
)
from everview.plan.nodes import Aggregate, Call, Join, Node, Recompute, Replace, Touched
from everview.schema import Column
from everview.spark.trees import (
    children_of,
    data_type,
    descending,
    each,
    kind,
    numbers,
    sql_type,
    value,
    walk,
)
from everview.sql.catalyst.building import InputColumns, project, same_bits, unused
from everview.sql.catalyst.sail import ordinary
from everview.sql.catalyst.scalars import attached

if TYPE_CHECKING:
    from everview.sql.catalyst.translation import Translation

BY_TOUCHED_GROUP = {
    *("Skewness", "Kurtosis", "RegrSlope", "RegrIntercept", "RegrR2", "RegrSXY"),
    *("RegrReplacement", "BitAndAgg", "BitOrAgg"),
    *("Percentile", "PercentileCont", "PercentileDisc", "Median", "Mode"),
    *("MaxBy", "MinBy", "MaxMinByK", "CollectList", "CollectSet", "ListAgg"),
}
APPROXIMATE = {
    "HyperLogLogPlusPlus": "count(DISTINCT ...)",
    "ApproximatePercentile": "percentile(...)",
    "HistogramNumeric": "a GROUP BY of ranges",
    "CountMinSketchAgg": "a GROUP BY",
    "BloomFilterAggregate": "a join",
}
_LISTS = ("CollectList", "CollectSet")
# regr_r2: engines differ if one of the two arguments doesn't vary
_FIT = (
    "CASE WHEN regr_sxx({0}, {1}) > 0 THEN coalesce(regr_sxy({0}, {1}) * regr_sxy({0}, {1}) / "
    "nullif(regr_sxx({0}, {1}) * regr_syy({0}, {1}), 0), 1.0D) END"
)
_BY_BITS = {"Percentile", "Mode", "CollectSet"}  # Sail treats -0.0 and NaN otherwise in these
_CHOICES = {
    *(*_LISTS, "First", "Last", "AnyValue", "MaxBy", "MinBy", "MaxMinByK", "ListAgg", "Mode"),
}


def aggregate(translation: Translation, plan: Any) -> Node:
    """Computes the arguments, aggregates them, and computes the outputs from the results."""
    node = translation.node(plan.child())
    outputs = list(each(plan.aggregateExpressions()))
    groupings = list(each(plan.groupingExpressions()))
    parts = [part for output in outputs for part in _outermost(output)]
    functions = [part for part in parts if kind(part) == "AggregateExpression"]
    node = attached(translation, node, [*groupings, *functions])
    _check_sessions(groupings)
    columns, trees = InputColumns(node), translation.expressions
    groups = [columns.name_of(trees.cast(part), trees.typed("group", part)) for part in groupings]
    calls = _Calls(translation, columns, tuple(dict.fromkeys(groups)))
    for function in functions:
        calls.reference(function)
    scalars = [part for part in parts if kind(part) == "ScalarSubquery"]
    node = attached(translation, calls.node(), scalars)
    output_trees = tuple(calls.output(value(output)) for output in outputs)
    return project(node, trees.columns(outputs), output_trees)


def _outermost(expression: Any) -> Iterator[Any]:
    """The aggregate functions and scalar subqueries of an output that are within no other."""
    if kind(expression) in ("AggregateExpression", "ScalarSubquery"):
        yield expression
    else:
        for child in children_of(expression):
            yield from _outermost(child)


def _check_sessions(groupings: list[Any]) -> None:
    """Refuse session windows: Spark merges them when it runs a plan, which doesn't show it."""
    for grouping in groupings:
        is_column = kind(grouping) == "AttributeReference"
        if is_column and "spark.sessionWindow" in grouping.metadata().json():
            raise UnsupportedSql(
                "session_window can't be maintained; find where a session begins with lag() OVER "
                "(PARTITION BY ... ORDER BY the time) and number them with sum() OVER"
            )


@dataclass
class _Calls:
    """The aggregate functions of one SELECT, by how they are maintained."""

    translation: Translation
    columns: InputColumns
    groups: tuple[str, ...]
    maintained: dict[Call, Column] = field(default_factory=dict)
    recomputed: dict[Tree, Column] = field(default_factory=dict)
    references: dict[int, Tree] = field(default_factory=dict)

    def output(self, expression: Any) -> Tree:
        """An output over groups, calls and scalar subqueries."""
        trees = self.translation.expressions

        def replaced(part: Any) -> Tree | None:
            if kind(part) == "AggregateExpression":
                return self.reference(part)
            if kind(part) == "ScalarSubquery":
                return Ref(trees.scalars[part.exprId().id()])
            if any(kind(inner) == "AggregateExpression" for inner in walk(part)):
                return None
            known = self.columns.trees.get(trees.cast(part))
            return Ref(known) if known in self.groups else None

        return trees.cast(expression, trees.rewrite(expression, replaced))

    def reference(self, expression: Any) -> Tree:
        """The tree that stands for a call in an output; adds the call if it is new."""
        number = expression.resultId().id()
        if number not in self.references:
            if kind(expression.aggregateFunction()) == "PivotFirst":
                self.references[number] = call("array", *self._pivoted(expression))
            else:
                self.references[number] = Ref(self._column_of(expression).name)
        return self.references[number]

    def node(self) -> Node:
        """The aggregate; two, joined by their groups, if its calls are maintained in two ways."""
        below = self.columns.project()
        groups = tuple(self.columns.columns[name] for name in self.groups)
        maintained = Aggregate(
            (*groups, *self.maintained.values()), below, self.groups, tuple(self.maintained)
        )
        if not self.recomputed:
            return maintained
        touched = Touched(below.columns, below, self.groups)
        columns = (*groups, *self.recomputed.values())
        computed = Recompute(columns, touched, tuple(self.recomputed), False)
        replaced = Replace(columns, computed, self.groups, always=not self.groups)
        if not self.maintained:
            return replaced
        again = [replace(c, name=unused(c.name, maintained.names())) for c in groups]
        return Join(
            (*maintained.columns, *again, *self.recomputed.values()),
            maintained,
            replaced,
            "inner",
            self.groups,
            self.groups,
            (True,) * len(groups),
            replicated=not groups,
        )

    def _pivoted(self, expression: Any) -> list[Tree]:
        """PIVOT: for each value of its column, the one row that has it."""
        function, trees = expression.aggregateFunction(), self.translation.expressions
        by, values = trees.tree(function.pivotColumn()), function.valueColumn()
        column = replace(trees.typed("argument", values), nullable=True)
        trees_of_values: list[Tree] = []
        for pivot_value in each(function.pivotColumnValues()):
            literal = trees.literal(pivot_value, function.pivotColumn())
            tree = sql("CASE WHEN {0} <=> {1} THEN {2} END", by, literal, trees.cast(values))
            maximum = Call("max", self.columns.name_of(tree, column))
            result = replace(column, name=f"call_{len(self.maintained) + len(self.recomputed)}")
            trees_of_values.append(Ref(self.maintained.setdefault(maximum, result).name))
        return trees_of_values

    def _column_of(self, expression: Any) -> Column:
        function = expression.aggregateFunction()
        name = kind(function)
        number = len(self.maintained) + len(self.recomputed)
        column = self.translation.expressions.typed(f"call_{number}", expression)
        if name in _CHOICES:
            self.translation.choices.add(name)
        definition = _definition(function)
        _check_pairs(expression, definition)
        recomputed = _tells_nested_apart(expression) or (
            definition is not None and not definition.gives(column.type)
        )
        if definition is not None and not recomputed:
            return self.maintained.setdefault(self._call(expression, definition), column)
        if name in BY_TOUCHED_GROUP or recomputed:
            return self.recomputed.setdefault(self._tree(expression), column)
        check_exact(function, expression)
        raise UnsupportedSql(
            f"the aggregate {expression.sql()} can't be maintained; count, sum, avg, min, max, "
            "stddev, variance, corr, bit_and, max_by, collect_list, listagg, percentile and "
            "others can"
        )

    def _call(self, expression: Any, function: AggregateFunction) -> Call:
        """A maintained aggregate; rows that fail a FILTER are NULL to it."""
        arguments = children_of(expression.aggregateFunction())
        counted = [argument for argument in arguments if argument.nullable() or not function.counts]
        distinct = expression.isDistinct() and not function.ignores_distinct
        condition = self._condition(expression)
        if function.counts and not counted and not distinct and condition is None:
            return Call(function.name, None)
        if function.arguments == 2:
            return self._of_pairs(function.name, arguments, condition)
        if (function.counts and len(counted) > 1) or (distinct and len(arguments) > 1):
            return self._count_of_all(arguments if distinct else counted, condition, distinct)
        argument = self._argument(expression, (counted or arguments)[0])
        return Call(function.name, argument, distinct)

    def _argument(self, call: Any, expression: Any) -> str:
        """The name of a column with an argument of a call; NULL if its FILTER doesn't hold."""
        trees, filter_ = self.translation.expressions, call.filter()
        column = trees.typed("argument", expression)
        by_bits = kind(call.aggregateFunction()) in _BY_BITS
        guards = [filter_.get()] if filter_.isDefined() else []
        tree = trees.cast(expression, guards=guards)
        tree = ordinary(tree) if by_bits and _is_real(expression) else tree
        if not guards:
            return self.columns.name_of(tree, column)
        tree = sql("CASE WHEN {0} THEN {1} END", trees.tree(filter_.get()), tree)
        return self.columns.name_of(tree, replace(column, nullable=True))

    def _of_pairs(self, name: str, arguments: list[Any], condition: Tree | None) -> Call:
        """A function of two arguments, which leaves out rows in which one of them is NULL."""
        trees, column = self.translation.expressions, Column("argument", pa.float64())
        passes = _passes([trees.tree(argument) for argument in arguments], condition)
        guarded = [sql("CASE WHEN {0} THEN {1} END", passes, trees.cast(a)) for a in arguments]
        first, second = (self.columns.name_of(tree, column) for tree in guarded)
        return Call(name, first, False, second)

    def _count_of_all(self, arguments: list[Any], condition: Tree | None, distinct: bool) -> Call:
        """A count of rows without NULL arguments; distinct ones by a text of all arguments."""
        trees = self.translation.expressions
        nullable = [trees.tree(argument) for argument in arguments if argument.nullable()]
        passes = _passes(nullable, condition)
        texts = [_text_of(trees.tree(argument), sql_type(argument)) for argument in arguments]
        parts = [sql("length({0}), ':', {0}", text) for text in texts]
        counted = call("concat", *parts) if distinct else sql("1")
        tree = sql("CASE WHEN {0} THEN {1} END", passes, counted)
        type_ = pa.string() if distinct else pa.int32()
        return Call("count", self.columns.name_of(tree, Column("argument", type_)), distinct)

    def _condition(self, expression: Any) -> Tree | None:
        """The condition of a FILTER clause."""
        filter_ = expression.filter()
        return self.translation.expressions.tree(filter_.get()) if filter_.isDefined() else None

    def _tree(self, expression: Any) -> Tree:
        """A recomputed aggregate, as a tree over columns of the input."""
        trees = self.translation.expressions

        def replaced(part: Any) -> Tree | None:
            if kind(part) == "SortOrder" or not numbers(part.references()):
                return None
            return Ref(self._argument(expression, part))

        function = expression.aggregateFunction()
        first, *others = children_of(function)
        is_text = not kind(first.dataType()).startswith("Binary")
        if kind(function) == "ListAgg" and expression.isDistinct() and is_text:
            return self._listed_once(expression, first, *others)
        # a constant too: for a group without rows it is NULL
        children: list[Tree] = [Ref(self._argument(expression, first))]
        children += [trees.rewrite(child, replaced) for child in others]
        typed = list(zip(children, map(data_type, (first, *others)), strict=True))
        definition = _definition(function)
        if definition is not None and definition.twin is not None:
            return by(definition.twin, typed[0], typed[0])
        if kind(function) in ("MaxBy", "MinBy"):
            return by(function.prettyName(), *typed)
        if kind(function) == "MaxMinByK":
            return several(function, typed[0], typed[1])
        if kind(function) == "ListAgg":
            return _listed(function, children, expression.isDistinct())
        if kind(function) == "RegrR2":
            return sql(_FIT, *children[:2])
        if kind(function) == "RegrReplacement":
            return sql("var_pop({0}) * count({0})", children[0])
        if (tree := respelled(function, children)) is not None:
            return tree
        if kind(function) == "Mode":
            return sql("mode() WITHIN GROUP (ORDER BY {0})", children[0])
        tree = trees.forms.aggregated(function, children, expression.isDistinct())
        if kind(function) == "Percentile" and _is_percentile_of_its_own(expression):
            return not_on_sail(tree, "Sail counts values otherwise in this percentile")
        return call("sort_array", tree) if kind(function) in _LISTS else tree

    def _listed_once(self, expression: Any, listed: Any, delimiter: Any, *orders: Any) -> Tree:
        """listagg of distinct values, in their own order and not in that of their texts. Sail's own
        listagg always sorts them ascending."""
        trees, is_cast = self.translation.expressions, kind(listed) == "Cast"
        listed = listed.child() if is_cast else listed
        once = call("collect_set", Ref(self._argument(expression, listed)))
        ascending = not any(map(descending, orders))
        values = sql(f"sort_array({{0}}, {str(ascending).lower()})", once)
        values = sql("transform({0}, one -> CAST(one AS STRING))", values) if is_cast else values
        between = sql("''") if delimiter.value() is None else trees.tree(delimiter)
        joined = call("array_join", values, between)
        return sql("CASE WHEN size({0}) > 0 THEN {1} END", once, joined)


def _passes(arguments: list[Tree], condition: Tree | None) -> Tree:
    """The condition that no argument is NULL, and that of a FILTER."""
    conditions: list[Tree] = [sql("({0}) IS NOT NULL", argument) for argument in arguments]
    conditions = [*conditions, *([sql("({0})", condition)] if condition else [])]
    return all_of(conditions) if conditions else sql("true")


def _definition(function: Any) -> AggregateFunction | None:
    """Our function that maintains a function of Catalyst, if there is one."""
    return of_catalyst(kind(function), lambda: str(function.prettyName()))


def _is_real(expression: Any) -> bool:
    return sql_type(expression) in ("FLOAT", "DOUBLE")


def _is_percentile_of_its_own(call: Any) -> bool:
    """Whether a percentile has frequencies, or distinct values and several percentages."""
    function = call.aggregateFunction()
    often = function.frequencyExpression()
    several_ = kind(function.percentageExpression().dataType()) == "ArrayType"
    return not (kind(often) == "Literal" and often.value() == 1) or (
        bool(call.isDistinct()) and several_
    )


def check_exact(function: Any, expression: Any) -> None:
    if (exact := APPROXIMATE.get(kind(function))) is not None:
        raise UnsupportedSql(
            f"{expression.sql()} is an estimate, which may differ from one epoch to the next; "
            f"use {exact}, which a view keeps exactly"
        )


def _check_pairs(expression: Any, definition: AggregateFunction | None) -> None:
    function = expression.aggregateFunction()
    takes_pairs = definition is not None and definition.arguments == 2
    pairs = takes_pairs or kind(function).startswith("Regr")
    if expression.isDistinct() and pairs:
        raise UnsupportedSql(
            f"{expression.sql()} can't be maintained; make its pairs distinct first, in a subquery "
            "in FROM: SELECT DISTINCT ..."
        )


def _tells_nested_apart(expression: Any) -> bool:
    """Whether it counts distinct combinations of arguments of which one is nested. No text tells
    these apart: array('a, b') has the same text as array('a', 'b')."""
    arguments = children_of(expression.aggregateFunction())
    nested = [a for a in arguments if kind(a.dataType()) in ("ArrayType", "StructType")]
    return bool(expression.isDistinct() and len(arguments) > 1 and nested)


def _text_of(tree: Tree, type_: str) -> Tree:
    """A text of a value, equal only for equal values."""
    return call("hex", tree) if type_ == "BINARY" else cast(same_bits(tree, type_), "STRING")


def by(function: str, result: tuple[Tree, Any], compared: tuple[Tree, Any]) -> Tree:
    """max_by or min_by. Among rows that compare equal, the result decides. Both `result` and
    `compared` are trees with their types."""
    both = struct_of([*_comparable(*compared), *_comparable(*result)])
    place = sql("CASE WHEN {0} IS NOT NULL THEN {1} END", compared[0], both)
    return call(function, result[0], place)


def struct_of(parts: list[Tree]) -> Tree:
    """A struct of the parts, each once."""
    return named_struct((f"c{i}", part) for i, part in enumerate(dict.fromkeys(parts)))


def several(
    function: Any, result: tuple[Tree, Any], compared: tuple[Tree, Any], over: Tree | None = None
) -> Tree:
    """max_by or min_by of the first k rows, in an order without ties."""
    both = struct_of([*_comparable(*compared), *_comparable(*result)])
    place = named_struct([("place", both), ("shown", result[0])])
    place = sql("CASE WHEN {0} IS NOT NULL THEN {1} END", compared[0], place)
    rows = over_rows(call("collect_list", place), over)
    not_null = sql("filter({0}, one -> one IS NOT NULL)", rows)
    way = str(function.reverse()).lower()
    first = sql(f"slice(sort_array({{0}}, {way}), 1, {function.k()})", not_null)
    results = sql("transform({0}, one -> one.shown)", first)
    count = over_rows(call("count", compared[0]), over)
    return sql("CASE WHEN {0} > 0 THEN {1} END", count, results)


def over_rows(tree: Tree, over: Tree | None) -> Tree:
    """A function, with its window if it has one."""
    return tree if over is None else sql("{0} {1}", tree, over)


def respelled(function: Any, arguments: list[Tree]) -> Tree | None:
    """A function over arguments, in other words than Catalyst's, if these name another order or
    mean something else to an engine; else None."""
    if kind(function) == "Percentile" and function.reverse():
        form = "percentile_cont({0}) WITHIN GROUP (ORDER BY {1} DESC)"
        return sql(form, arguments[1], arguments[0])
    if kind(function) == "Mode" and function.reverseOpt().isDefined():
        way = "" if function.reverseOpt().get() else " DESC"
        return sql(f"mode() WITHIN GROUP (ORDER BY {{0}}{way})", arguments[0])
    if kind(function) == "ListAgg" and arguments[1:] == [Lit("NULL", "VOID")]:
        return sql("listagg({0}, '')", arguments[0])
    return None


def _comparable(tree: Tree, type_: Any) -> list[Tree]:
    """The values to compare in place of one that may be NULL, or have NULLs in it: NULLs come
    first, as engines differ in where they sort them within a struct."""
    not_null = sql("{0} IS NOT NULL", tree)
    if kind(type_) == "MapType":  # they are in no order
        return [not_null]
    if kind(type_) != "StructType":
        return [not_null, tree]
    fields = ((field_of(tree, field.name()), field.dataType()) for field in type_.fields())
    return [not_null, *(part for field in fields for part in _comparable(*field))]


def _listed(function: Any, children: list[Tree], distinct: bool) -> Tree:
    """listagg, sorted by its ORDER BY and then by its values. No column comes twice in it, as Sail
    fails then."""
    listed, delimiter, *orders = children
    first, between = children_of(function)[:2]
    none = "X''" if kind(first.dataType()).startswith("Binary") else "''"
    delimiter = sql(none) if between.value() is None else delimiter
    if listed not in [order.parts()[0] for order in orders]:
        orders.append(listed)
    listing = f"listagg({'DISTINCT ' if distinct else ''}{{0}}, {{1}})"
    form = f"{listing} WITHIN GROUP (ORDER BY {places(len(orders), first=2)})"
    return sql(form, listed, delimiter, *orders)
