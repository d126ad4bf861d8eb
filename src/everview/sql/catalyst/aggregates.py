"""Catalyst's aggregates: those kept up to date by counts and sums, and those recomputed for the
groups that a change touched."""

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
from everview.sql.catalyst.building import Given, project, same_bits, unused
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
# regr_r2: engines differ in what it is where one of the two doesn't vary
_FIT = (
    "CASE WHEN regr_sxx({0}, {1}) > 0 THEN coalesce(regr_sxy({0}, {1}) * regr_sxy({0}, {1}) / "
    "nullif(regr_sxx({0}, {1}) * regr_syy({0}, {1}), 0), 1.0D) END"
)
_BY_BITS = {"Percentile", "Mode", "CollectSet"}  # in which Sail takes -0.0 and NaN otherwise
_CHOICES = {
    *(*_LISTS, "First", "Last", "AnyValue", "MaxBy", "MinBy", "MaxMinByK", "ListAgg", "Mode"),
}


def aggregate(given: Translation, plan: Any) -> Node:
    """Arguments computed, then aggregated, then the outputs computed from the results."""
    node = given.node(plan.child())
    outputs = list(each(plan.aggregateExpressions()))
    groupings = list(each(plan.groupingExpressions()))
    parts = [part for output in outputs for part in _outermost(output)]
    functions = [part for part in parts if kind(part) == "AggregateExpression"]
    node = attached(given, node, [*groupings, *functions])
    _check_sessions(groupings)
    columns, trees = Given(node), given.expressions
    groups = [columns.name_of(trees.cast(one), trees.typed("group", one)) for one in groupings]
    calls = _Calls(given, columns, tuple(dict.fromkeys(groups)))
    for function in functions:
        calls.noted(function)
    node = attached(given, calls.node(), [part for part in parts if kind(part) == "ScalarSubquery"])
    made = tuple(calls.output(value(output)) for output in outputs)
    return project(node, trees.columns(outputs), made)


def _outermost(expression: Any) -> Iterator[Any]:
    """The aggregate functions and scalar subqueries of an output that are within no other."""
    if kind(expression) in ("AggregateExpression", "ScalarSubquery"):
        yield expression
    else:
        for child in children_of(expression):
            yield from _outermost(child)


def _check_sessions(groupings: list[Any]) -> None:
    """Spark merges the windows of sessions when it runs a plan, of which the plan says nothing."""
    for one in groupings:
        if kind(one) == "AttributeReference" and "spark.sessionWindow" in one.metadata().json():
            raise UnsupportedSql(
                "session_window can't be maintained; find where a session begins with lag() OVER "
                "(PARTITION BY ... ORDER BY the time) and number them with sum() OVER"
            )


@dataclass
class _Calls:
    """The aggregate functions of one SELECT, by how they are maintained."""

    given: Translation
    columns: Given
    groups: tuple[str, ...]
    kept: dict[Call, Column] = field(default_factory=dict)
    recomputed: dict[Tree, Column] = field(default_factory=dict)
    references: dict[int, Tree] = field(default_factory=dict)

    def output(self, expression: Any) -> Tree:
        """An output over groups, calls and scalar subqueries."""
        trees = self.given.expressions

        def replaced(found: Any) -> Tree | None:
            if kind(found) == "AggregateExpression":
                return self.noted(found)
            if kind(found) == "ScalarSubquery":
                return Ref(trees.scalars[found.exprId().id()])
            if any(kind(part) == "AggregateExpression" for part in walk(found)):
                return None
            known = self.columns.trees.get(trees.cast(found))
            return Ref(known) if known in self.groups else None

        return trees.cast(expression, trees.rewrite(expression, replaced))

    def noted(self, expression: Any) -> Tree:
        """What stands for a call in an output; the call is noted when it is new."""
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
        if not self.recomputed:
            return Aggregate((*groups, *self.kept.values()), below, self.groups, tuple(self.kept))
        touched = Touched(below.columns, below, self.groups)
        made = (*groups, *self.recomputed.values())
        computed = Recompute(made, touched, tuple(self.recomputed), False)
        replaced = Replace(made, computed, self.groups, always=not self.groups)
        if not self.kept:
            return replaced
        kept = Aggregate((*groups, *self.kept.values()), below, self.groups, tuple(self.kept))
        again = [replace(c, name=unused(c.name, kept.names())) for c in groups]
        return Join(
            (*kept.columns, *again, *self.recomputed.values()),
            kept,
            replaced,
            "inner",
            self.groups,
            self.groups,
            (True,) * len(groups),
            replicated=not groups,
        )

    def _pivoted(self, expression: Any) -> list[Tree]:
        """PIVOT: of each value of its column the one row there is."""
        function, trees = expression.aggregateFunction(), self.given.expressions
        by, shown = trees.tree(function.pivotColumn()), function.valueColumn()
        column = replace(trees.typed("argument", shown), nullable=True)
        found: list[Tree] = []
        for wanted in each(function.pivotColumnValues()):
            literal = trees.literal(wanted, function.pivotColumn())
            one = sql("CASE WHEN {0} <=> {1} THEN {2} END", by, literal, trees.cast(shown))
            noted = Call("max", self.columns.name_of(one, column))
            made = replace(column, name=f"call_{len(self.kept) + len(self.recomputed)}")
            found.append(Ref(self.kept.setdefault(noted, made).name))
        return found

    def _column_of(self, expression: Any) -> Column:
        function = expression.aggregateFunction()
        name = kind(function)
        number = len(self.kept) + len(self.recomputed)
        column = self.given.expressions.typed(f"call_{number}", expression)
        if name in _CHOICES:
            self.given.choices.add(name)
        kept = _definition(function)
        _check_pairs(expression, kept)
        recomputed = _tells_nested_apart(expression) or (
            kept is not None and not kept.gives(column.type)
        )
        if kept is not None and not recomputed:
            return self.kept.setdefault(self._call(expression, kept), column)
        if name in BY_TOUCHED_GROUP or recomputed:
            return self.recomputed.setdefault(self._tree(expression), column)
        check_exact(function, expression)
        raise UnsupportedSql(
            f"the aggregate {expression.sql()} can't be maintained; count, sum, avg, min, max, "
            "stddev, variance, corr, bit_and, max_by, collect_list, listagg, percentile and "
            "others can"
        )

    def _call(self, expression: Any, function: AggregateFunction) -> Call:
        """An aggregate kept up to date; what a FILTER leaves out is NULL to it."""
        arguments = children_of(expression.aggregateFunction())
        counted = [one for one in arguments if one.nullable() or not function.counts]
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
        """A column with an argument of a call; NULL where its FILTER doesn't hold."""
        trees, wanted = self.given.expressions, call.filter()
        column = trees.typed("argument", expression)
        told_apart = kind(call.aggregateFunction()) in _BY_BITS
        guards = [wanted.get()] if wanted.isDefined() else []
        tree = trees.cast(expression, guards=guards)
        tree = ordinary(tree) if told_apart and _is_real(expression) else tree
        if not guards:
            return self.columns.name_of(tree, column)
        tree = sql("CASE WHEN {0} THEN {1} END", trees.tree(wanted.get()), tree)
        return self.columns.name_of(tree, replace(column, nullable=True))

    def _of_pairs(self, name: str, arguments: list[Any], condition: Tree | None) -> Call:
        """A function of two arguments, which leaves out rows in which one of them is NULL."""
        trees, column = self.given.expressions, Column("argument", pa.float64())
        wanted = _wanted([trees.tree(one) for one in arguments], condition)
        made = [sql("CASE WHEN {0} THEN {1} END", wanted, trees.cast(one)) for one in arguments]
        one, other = (self.columns.name_of(tree, column) for tree in made)
        return Call(name, one, False, other)

    def _count_of_all(self, arguments: list[Any], condition: Tree | None, distinct: bool) -> Call:
        """A count of rows in which no argument is NULL; of distinct ones, by a text of them all."""
        trees = self.given.expressions
        wanted = _wanted([trees.tree(one) for one in arguments if one.nullable()], condition)
        told = [_told(trees.tree(one), sql_type(one)) for one in arguments]
        parts = [sql("length({0}), ':', {0}", one) for one in told]
        shown = call("concat", *parts) if distinct else sql("1")
        tree = sql("CASE WHEN {0} THEN {1} END", wanted, shown)
        type_ = pa.string() if distinct else pa.int32()
        return Call("count", self.columns.name_of(tree, Column("argument", type_)), distinct)

    def _condition(self, expression: Any) -> Tree | None:
        """What a FILTER clause asks for."""
        wanted = expression.filter()
        return self.given.expressions.tree(wanted.get()) if wanted.isDefined() else None

    def _tree(self, expression: Any) -> Tree:
        """An aggregate as the engine computes it, over columns of the input."""
        trees = self.given.expressions

        def replaced(found: Any) -> Tree | None:
            if kind(found) == "SortOrder" or not numbers(found.references()):
                return None
            return Ref(self._argument(expression, found))

        function = expression.aggregateFunction()
        first, *others = children_of(function)
        is_text = not kind(first.dataType()).startswith("Binary")
        if kind(function) == "ListAgg" and expression.isDistinct() and is_text:
            return self._listed_once(expression, first, *others)
        # a constant too: for a group without rows it is NULL
        children: list[Tree] = [Ref(self._argument(expression, first))]
        children += [trees.rewrite(child, replaced) for child in others]
        told = list(zip(children, map(data_type, (first, *others)), strict=True))
        kept = _definition(function)
        if kept is not None and kept.twin is not None:
            return by(kept.twin, told[0], told[0])
        if kind(function) in ("MaxBy", "MinBy"):
            return by(function.prettyName(), *told)
        if kind(function) == "MaxMinByK":
            return several(function, told[0], told[1])
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
        made = trees.forms.aggregated(function, children, expression.isDistinct())
        if kind(function) == "Percentile" and _is_percentile_of_its_own(expression):
            return not_on_sail(made, "Sail counts values otherwise in this percentile")
        return call("sort_array", made) if kind(function) in _LISTS else made

    def _listed_once(self, expression: Any, shown: Any, delimiter: Any, *orders: Any) -> Tree:
        """listagg of different values, in their own order and not in that of their texts. Sail's
        own has them ascending in any case."""
        trees, is_cast = self.given.expressions, kind(shown) == "Cast"
        shown = shown.child() if is_cast else shown
        once = call("collect_set", Ref(self._argument(expression, shown)))
        way = not any(map(descending, orders))
        told = sql(f"sort_array({{0}}, {str(way).lower()})", once)
        told = sql("transform({0}, one -> CAST(one AS STRING))", told) if is_cast else told
        between = sql("''") if delimiter.value() is None else trees.tree(delimiter)
        joined = call("array_join", told, between)
        return sql("CASE WHEN size({0}) > 0 THEN {1} END", once, joined)


def _wanted(arguments: list[Tree], condition: Tree | None) -> Tree:
    """That no argument is NULL, and what a FILTER asks for."""
    there: list[Tree] = [sql("({0}) IS NOT NULL", one) for one in arguments]
    wanted = [*there, *([sql("({0})", condition)] if condition else [])]
    return all_of(wanted) if wanted else sql("true")


def _definition(function: Any) -> AggregateFunction | None:
    """What is kept up to date for a function of Catalyst, if anything is."""
    return of_catalyst(kind(function), lambda: str(function.prettyName()))


def _is_real(expression: Any) -> bool:
    return sql_type(expression) in ("FLOAT", "DOUBLE")


def _is_percentile_of_its_own(call: Any) -> bool:
    """Whether it has frequencies, or is of distinct values and several percentages."""
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


def _check_pairs(expression: Any, kept: AggregateFunction | None) -> None:
    function = expression.aggregateFunction()
    pairs = (kept is not None and kept.arguments == 2) or kind(function).startswith("Regr")
    if expression.isDistinct() and pairs:
        raise UnsupportedSql(
            f"{expression.sql()} can't be maintained; make its pairs distinct first, in a subquery "
            "in FROM: SELECT DISTINCT ..."
        )


def _tells_nested_apart(expression: Any) -> bool:
    """Whether it counts the distinct ones of several arguments, which no text tells apart if they
    are nested: that of array('a, b') is that of array('a', 'b')."""
    arguments = children_of(expression.aggregateFunction())
    nested = [one for one in arguments if kind(one.dataType()) in ("ArrayType", "StructType")]
    return bool(expression.isDistinct() and len(arguments) > 1 and nested)


def _told(tree: Tree, type_: str) -> Tree:
    """A text of a value, the same for equal values only; bytes need not be text."""
    return call("hex", tree) if type_ == "BINARY" else cast(same_bits(tree, type_), "STRING")


def by(function: str, shown: tuple[Tree, Any], compared: tuple[Tree, Any]) -> Tree:
    """max_by or min_by; of rows that are equal in what they are compared by, what they show
    decides. Both are trees with their types."""
    both = struct_of([*_comparable(*compared), *_comparable(*shown)])
    place = sql("CASE WHEN {0} IS NOT NULL THEN {1} END", compared[0], both)
    return call(function, shown[0], place)


def struct_of(parts: list[Tree]) -> Tree:
    """A struct of the parts, each once."""
    return named_struct((f"c{i}", part) for i, part in enumerate(dict.fromkeys(parts)))


def several(
    function: Any, shown: tuple[Tree, Any], compared: tuple[Tree, Any], over: Tree | None = None
) -> Tree:
    """max_by or min_by of the first so many rows, in an order that leaves nothing open."""
    both = struct_of([*_comparable(*compared), *_comparable(*shown)])
    place = named_struct([("place", both), ("shown", shown[0])])
    place = sql("CASE WHEN {0} IS NOT NULL THEN {1} END", compared[0], place)
    rows = over_rows(call("collect_list", place), over)
    there = sql("filter({0}, one -> one IS NOT NULL)", rows)
    way = str(function.reverse()).lower()
    first = sql(f"slice(sort_array({{0}}, {way}), 1, {function.k()})", there)
    found = sql("transform({0}, one -> one.shown)", first)
    count = over_rows(call("count", compared[0]), over)
    return sql("CASE WHEN {0} > 0 THEN {1} END", count, found)


def over_rows(tree: Tree, over: Tree | None) -> Tree:
    """A function, with its window if it has one."""
    return tree if over is None else sql("{0} {1}", tree, over)


def respelled(function: Any, arguments: list[Tree]) -> Tree | None:
    """A function over arguments, where its own text says another order than it has, or is not the
    same to all engines; None if it says it all."""
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
    """What to compare instead of a value that may be NULL, or have NULLs in it: they come first,
    as engines differ in where they put them within a struct."""
    there = sql("{0} IS NOT NULL", tree)
    if kind(type_) == "MapType":  # they are in no order
        return [there]
    if kind(type_) != "StructType":
        return [there, tree]
    fields = ((field_of(tree, one.name()), one.dataType()) for one in type_.fields())
    return [there, *(part for one in fields for part in _comparable(*one))]


def _listed(function: Any, children: list[Tree], distinct: bool) -> Tree:
    """listagg, in the order it is asked for and then in that of its values: once, as Sail fails
    if a column comes twice in it."""
    shown, delimiter, *orders = children
    given, between = children_of(function)[:2]
    none = "X''" if kind(given.dataType()).startswith("Binary") else "''"
    delimiter = sql(none) if between.value() is None else delimiter
    if shown not in [order.parts()[0] for order in orders]:
        orders.append(shown)
    called = f"listagg({'DISTINCT ' if distinct else ''}{{0}}, {{1}})"
    form = f"{called} WITHIN GROUP (ORDER BY {places(len(orders), first=2)})"
    return sql(form, shown, delimiter, *orders)
