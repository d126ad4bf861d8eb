"""The aggregate functions that a SELECT calls: those maintained by counts and sums, and those
recomputed for the groups that a change touches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from everview.errors import UnsupportedSql
from everview.functions import AggregateFunction, of_catalyst
from everview.plan.expressions import Ref, Tree, all_of, call, cast, sql
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
    walk,
)
from everview.sql.catalyst.aggregate_trees import LISTS, by, recomputed_tree
from everview.sql.catalyst.building import InputColumns, same_bits, unused
from everview.sql.catalyst.sail import ordinary

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
_BY_BITS = {"Percentile", "Mode", "CollectSet"}  # Sail treats -0.0 and NaN otherwise in these
_CHOICES = {
    *(*LISTS, "First", "Last", "AnyValue", "MaxBy", "MinBy", "MaxMinByK", "ListAgg", "Mode"),
}


@dataclass
class Calls:
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
        definition = _definition(function)
        if definition is not None and definition.twin is not None:
            typed = children[0], data_type(first)
            return by(definition.twin, typed, typed)
        return recomputed_tree(trees.forms, expression, children)

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
