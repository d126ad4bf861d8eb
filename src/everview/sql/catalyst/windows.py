"""Window functions: recomputed for the partitions that a change touched."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from everview.delta import WEIGHT
from everview.plan.nodes import Node, Recompute, Replace, Touched
from everview.schema import quoted
from everview.sql.catalyst.building import only, unused
from everview.sql.catalyst.expressions import Expressions
from everview.sql.catalyst.trees import each, kind, sql_type, value

if TYPE_CHECKING:
    from everview.sql.catalyst.translation import Translation

# of rows that are equal in ORDER BY, these give each its own, the others all the same
_BY_PLACE = {"RowNumber", "NTile", "Lag", "Lead"}
_RANKING = {*_BY_PLACE, "Rank", "DenseRank", "PercentRank", "CumeDist"}
_BOUNDS = {
    "UnboundedPreceding$": "UNBOUNDED PRECEDING",
    "UnboundedFollowing$": "UNBOUNDED FOLLOWING",
    "CurrentRow$": "CURRENT ROW",
}
_DAYS = re.compile(r"^INTERVAL '(\d+)' DAY ")


def window(given: Translation, plan: Any) -> Node:
    node = given.node(plan.child())
    texts = given.expressions
    outputs = list(each(plan.windowExpressions()))
    keyed, groups = given.computed(node, list(each(plan.partitionSpec())), "partition")
    touched = Touched(keyed.columns, keyed, groups)
    columns, made = list(keyed.columns), []
    for output in outputs:
        name = unused("window", [column.name for column in columns])
        columns.append(texts.typed(name, output))
        made.append(_text(given, value(output), touched))
        texts.names[output.exprId().id()] = name
    computed = Recompute(tuple(columns), touched, tuple(made), True)
    found = Replace(tuple(columns), computed, groups, always=False)
    shown = replace(node, columns=(*node.columns, *columns[len(keyed.columns) :]))
    return only(found, shown)


def _text(given: Translation, expression: Any, touched: Touched) -> str:
    """A window function over the rows of each group; the mark of a group that is only touched
    stands apart by its weight."""
    texts = given.expressions
    function, spec = expression.windowFunction(), expression.windowSpec()
    frame = spec.frameSpecification()
    ranking = kind(function) in _RANKING
    by_rows = not ranking and kind(frame.frameType()) == "RowFrame$"
    bounds = [] if ranking else [_bound(texts, one) for one in (frame.lower(), frame.upper())]
    orders = [
        f"{texts.text(order.child())} {order.direction().sql()} {order.nullOrdering().sql()}"
        for order in each(spec.orderSpec())
    ]
    if not by_rows and any(_is_date(order) for order in each(spec.orderSpec())):
        orders, bounds = _by_days(orders, bounds)
    if kind(function) in _BY_PLACE or (orders and not ranking):
        given.choices.add(kind(function))
    if kind(function) in _BY_PLACE or (orders and by_rows):
        orders += [quoted(column.name) for column in touched.columns]
    over = [f"PARTITION BY {', '.join(map(quoted, (*touched.groups, WEIGHT)))}"]
    if orders:
        over.append(f"ORDER BY {', '.join(orders)}")
    if not ranking:
        over.append(f"{frame.frameType().sql()} BETWEEN {bounds[0]} AND {bounds[1]}")
    text = _computed(texts, function, f"OVER ({' '.join(over)})")
    return f"CAST({text} AS {sql_type(expression)})"


def _bound(texts: Expressions, bound: Any) -> str:
    """Where a frame begins or ends."""
    if kind(bound) in _BOUNDS:
        return _BOUNDS[kind(bound)]
    before = kind(bound) == "UnaryMinus"
    text = texts.text(bound.child() if before else bound)
    if text.startswith(("-", "INTERVAL '-")):
        before, text = True, text.replace("-", "", 1)
    return f"{text} {'PRECEDING' if before else 'FOLLOWING'}"


def _is_date(order: Any) -> bool:
    return kind(order.child().dataType()).startswith("Date")


def _by_days(orders: list[str], bounds: list[str]) -> tuple[list[str], list[str]]:
    """A range of so many days about a date, as one of numbers: not all engines know the other."""
    numbers = [_DAYS.sub(r"\1 ", bound) for bound in bounds]
    if not any(number[0].isdigit() for number in numbers):
        return orders, bounds
    ((text, *way),) = (order.rsplit(" ", 3) for order in orders)
    return [" ".join([f"unix_date({text})", *way])], numbers


def _computed(texts: Expressions, function: Any, over: str) -> str:
    """The function over its window. What a FILTER leaves out is NULL to it; and an average of
    decimals is made from its sum, with one digit more than it has: engines differ in both."""
    call = function.aggregateFunction() if kind(function) == "AggregateExpression" else function
    average = kind(call) == "Average" and kind(call.dataType()) == "DecimalType"
    filtered = kind(function) == "AggregateExpression" and function.filter().isDefined()
    arguments = list(each(call.children()))
    if not average and not (filtered and len(arguments) == 1):
        return f"{texts.text(function)} {over}"
    argument = texts.text(arguments[0])
    if filtered:
        argument = f"CASE WHEN {texts.text(function.filter().get())} THEN {argument} END"
    if not average:
        return f"{call.prettyName()}({argument}) {over}"
    type_ = arguments[0].dataType()
    digits, scale = min(type_.precision() + 11, 38), min(type_.scale() + 1, 38)
    total = f"CAST(sum({argument}) {over} AS DECIMAL({digits},{scale}))"
    return f"{total} / CAST(nullif(count({argument}) {over}, 0) AS DECIMAL(20,0))"
