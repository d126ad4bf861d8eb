"""Catalyst's aggregates: those kept up to date by counts and sums, and those recomputed for the
groups that a change touched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from everview.errors import UnsupportedSql
from everview.functions import AggregateFunction, of_catalyst
from everview.plan.dialects import not_on_sail
from everview.plan.nodes import Aggregate, Call, Join, Node, Recompute, Replace, Touched
from everview.schema import Column, quoted
from everview.spark.trees import children_of, descending, each, kind, numbers, sql_type, value, walk
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
    columns, texts = Given(node), given.expressions
    groups = [columns.name_of(texts.cast(one), texts.typed("group", one)) for one in groupings]
    calls = _Calls(given, columns, tuple(dict.fromkeys(groups)))
    for function in functions:
        calls.noted(function)
    node = attached(given, calls.node(), [part for part in parts if kind(part) == "ScalarSubquery"])
    made = tuple(calls.output(value(output)) for output in outputs)
    return project(node, texts.columns(outputs), made)


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
    recomputed: dict[str, Column] = field(default_factory=dict)
    references: dict[int, Any] = field(default_factory=dict)

    def output(self, expression: Any) -> str:
        """An output as text over groups, calls and scalar subqueries."""
        texts = self.given.expressions

        def replaced(found: Any) -> Any:
            if kind(found) == "AggregateExpression":
                return self.noted(found)
            if kind(found) == "ScalarSubquery":
                return texts.reference(found, texts.scalars[found.exprId().id()])
            if any(kind(part) == "AggregateExpression" for part in walk(found)):
                return None
            known = self.columns.texts.get(texts.cast(found))
            return texts.reference(found, known) if known in self.groups else None

        return texts.cast(expression, texts.rewrite(expression, replaced))

    def noted(self, expression: Any) -> Any:
        """What stands for a call in an output; the call is noted when it is new."""
        texts, number = self.given.expressions, expression.resultId().id()
        if number not in self.references:
            if kind(expression.aggregateFunction()) == "PivotFirst":
                made = texts.function("array", self._pivoted(expression))
            else:
                made = texts.reference(expression, self._column_of(expression).name)
            self.references[number] = made
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

    def _pivoted(self, expression: Any) -> list[Any]:
        """PIVOT: of each value of its column the one row there is."""
        function, texts = expression.aggregateFunction(), self.given.expressions
        by, shown = texts.text(function.pivotColumn()), function.valueColumn()
        column = replace(texts.typed("argument", shown), nullable=True)
        found = []
        for wanted in each(function.pivotColumnValues()):
            literal = texts.literal(wanted, function.pivotColumn())
            text = f"CASE WHEN {by} <=> {literal} THEN {texts.cast(shown)} END"
            call = Call("max", self.columns.name_of(text, column))
            made = replace(column, name=f"call_{len(self.kept) + len(self.recomputed)}")
            found.append(texts.reference(shown, self.kept.setdefault(call, made).name))
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
            return self.recomputed.setdefault(self._text(expression), column)
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
        texts, wanted = self.given.expressions, call.filter()
        column = texts.typed("argument", expression)
        told_apart = kind(call.aggregateFunction()) in _BY_BITS
        if not wanted.isDefined():
            text = texts.cast(expression)
            text = ordinary(text) if told_apart and _is_real(expression) else text
            return self.columns.name_of(text, column)
        text = texts.cast(expression, guards=[wanted.get()])
        text = ordinary(text) if told_apart and _is_real(expression) else text
        text = f"CASE WHEN {texts.text(wanted.get())} THEN {text} END"
        return self.columns.name_of(text, replace(column, nullable=True))

    def _of_pairs(self, name: str, arguments: list[Any], condition: str | None) -> Call:
        """A function of two arguments, which leaves out rows in which one of them is NULL."""
        there = [f"({self.given.expressions.text(one)}) IS NOT NULL" for one in arguments]
        wanted = " AND ".join([*there, *([f"({condition})"] if condition else [])])
        column = Column("argument", pa.float64())
        one, other = (
            self.columns.name_of(
                f"CASE WHEN {wanted} THEN {self.given.expressions.cast(argument)} END", column
            )
            for argument in arguments
        )
        return Call(name, one, False, other)

    def _count_of_all(self, arguments: list[Any], condition: str | None, distinct: bool) -> Call:
        """A count of rows in which no argument is NULL; of distinct ones, by a text of them all."""
        texts = self.given.expressions
        there = [f"({texts.text(one)}) IS NOT NULL" for one in arguments if one.nullable()]
        wanted = " AND ".join([*there, *([f"({condition})"] if condition else [])]) or "true"
        told = [_told(texts.text(one), sql_type(one)) for one in arguments]
        parts = ", ".join(f"length({one}), ':', {one}" for one in told)
        text = f"CASE WHEN {wanted} THEN {f'concat({parts})' if distinct else '1'} END"
        type_ = pa.string() if distinct else pa.int32()
        return Call("count", self.columns.name_of(text, Column("argument", type_)), distinct)

    def _condition(self, expression: Any) -> str | None:
        """What a FILTER clause asks for."""
        wanted = expression.filter()
        return self.given.expressions.text(wanted.get()) if wanted.isDefined() else None

    def _text(self, expression: Any) -> str:
        """An aggregate as the engine computes it, over columns of the input."""
        texts = self.given.expressions

        def replaced(found: Any) -> Any:
            if kind(found) == "SortOrder" or not numbers(found.references()):
                return None
            return texts.reference(found, self._argument(expression, found))

        function = expression.aggregateFunction()
        first, *others = children_of(function)
        is_text = not kind(first.dataType()).startswith("Binary")
        if kind(function) == "ListAgg" and expression.isDistinct() and is_text:
            return self._listed_once(expression, first, *others)
        # a constant too: for a group without rows it is NULL
        children = [texts.reference(first, self._argument(expression, first))]
        children += [texts.rewrite(child, replaced) for child in others]
        told = [(str(child.sql()), child.dataType()) for child in children]
        kept = _definition(function)
        if kept is not None and kept.twin is not None:
            return by(kept.twin, told[0], told[0])
        if kind(function) in ("MaxBy", "MinBy"):
            return by(function.prettyName(), *told)
        if kind(function) == "MaxMinByK":
            return several(function, told[0], told[1])
        if kind(function) == "ListAgg":
            return _listed(children, expression.isDistinct())
        if kind(function) == "RegrR2":
            return _fit(told[0][0], told[1][0])
        if kind(function) == "RegrReplacement":
            return "var_pop({0}) * count({0})".format(children[0].sql())
        if (text := respelled(function, [text for text, _ in told])) is not None:
            return text
        if kind(function) == "Mode":
            return f"mode() WITHIN GROUP (ORDER BY {told[0][0]})"
        made = function.withNewChildren(texts.sequence(children))
        text = texts.aggregate(made, expression.isDistinct())
        if kind(function) == "Percentile" and _is_percentile_of_its_own(expression):
            return not_on_sail(text, "Sail counts values otherwise in this percentile")
        return f"sort_array({text})" if kind(function) in _LISTS else text

    def _listed_once(self, expression: Any, shown: Any, delimiter: Any, *orders: Any) -> str:
        """listagg of different values, in their own order and not in that of their texts. Sail's
        own has them ascending in any case."""
        texts, is_cast = self.given.expressions, kind(shown) == "Cast"
        once = f"collect_set({self._argument(expression, shown.child() if is_cast else shown)})"
        way = not any(map(descending, orders))
        told = f"sort_array({once}, {str(way).lower()})"
        told = f"transform({told}, one -> CAST(one AS STRING))" if is_cast else told
        between = "''" if delimiter.value() is None else texts.text(delimiter)
        return f"CASE WHEN size({once}) > 0 THEN array_join({told}, {between}) END"


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


def _told(text: str, type_: str) -> str:
    """A text of a value, the same for equal values only; bytes need not be text."""
    return f"hex({text})" if type_ == "BINARY" else f"CAST({same_bits(text, type_)} AS STRING)"


def by(function: str, shown: tuple[str, Any], compared: tuple[str, Any]) -> str:
    """max_by or min_by; of rows that are equal in what they are compared by, what they show
    decides. Both are texts with their types."""
    both = struct_of([*_comparable(*compared), *_comparable(*shown)])
    return f"{function}({shown[0]}, CASE WHEN {compared[0]} IS NOT NULL THEN {both} END)"


def struct_of(parts: list[str]) -> str:
    """A struct of the parts, each once."""
    fields = ", ".join(f"'c{i}', {part}" for i, part in enumerate(dict.fromkeys(parts)))
    return f"named_struct({fields})"


def several(
    function: Any, shown: tuple[str, Any], compared: tuple[str, Any], over: str = ""
) -> str:
    """max_by or min_by of the first so many rows, in an order that leaves nothing open."""
    both = struct_of([*_comparable(*compared), *_comparable(*shown)])
    place = f"named_struct('place', {both}, 'shown', {shown[0]})"
    place = f"CASE WHEN {compared[0]} IS NOT NULL THEN {place} END"
    there = f"filter(collect_list({place}){over}, one -> one IS NOT NULL)"
    first = f"slice(sort_array({there}, {str(function.reverse()).lower()}), 1, {function.k()})"
    found = f"transform({first}, one -> one.shown)"
    return f"CASE WHEN count({compared[0]}){over} > 0 THEN {found} END"


def respelled(function: Any, arguments: list[str]) -> str | None:
    """A function over arguments as text, where its own text says another order than it has, or is
    not the same to all engines; None if it says it all."""
    if kind(function) == "Percentile" and function.reverse():
        return f"percentile_cont({arguments[1]}) WITHIN GROUP (ORDER BY {arguments[0]} DESC)"
    if kind(function) == "Mode" and function.reverseOpt().isDefined():
        way = "" if function.reverseOpt().get() else " DESC"
        return f"mode() WITHIN GROUP (ORDER BY {arguments[0]}{way})"
    if kind(function) == "ListAgg" and arguments[1:] == ["NULL"]:
        return f"listagg({arguments[0]}, '')"
    return None


def _comparable(text: str, type_: Any) -> list[str]:
    """What to compare instead of a value that may be NULL, or have NULLs in it: they come first,
    as engines differ in where they put them within a struct."""
    there = f"{text} IS NOT NULL"
    if kind(type_) == "MapType":  # they are in no order
        return [there]
    if kind(type_) != "StructType":
        return [there, text]
    fields = ((f"{text}.{quoted(field.name())}", field.dataType()) for field in type_.fields())
    return [there, *(part for field in fields for part in _comparable(*field))]


def _fit(y: str, x: str) -> str:
    """regr_r2: engines differ in what it is where one of the two doesn't vary."""
    of = f"({y}, {x})"
    part = f"regr_sxy{of} * regr_sxy{of} / nullif(regr_sxx{of} * regr_syy{of}, 0)"
    return f"CASE WHEN regr_sxx{of} > 0 THEN coalesce({part}, 1.0D) END"


def _listed(children: list[Any], distinct: bool) -> str:
    """listagg, in the order it is asked for and then in that of its values: once, as Sail fails
    if a column comes twice in it."""
    shown, delimiter, *orders = (str(child.sql()) for child in children)
    none = "X''" if kind(children[0].dataType()).startswith("Binary") else "''"
    delimiter = none if children[1].value() is None else delimiter
    if shown not in [str(order.child().sql()) for order in children[2:]]:
        orders.append(shown)
    called = f"listagg({'DISTINCT ' if distinct else ''}{shown}, {delimiter})"
    return f"{called} WITHIN GROUP (ORDER BY {', '.join(orders)})"
