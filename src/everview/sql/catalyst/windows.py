"""Window functions: recomputed for the partitions that a change touched."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from everview.delta import WEIGHT
from everview.plan.dialects import either, not_on_sail
from everview.plan.nodes import Node, Project, Recompute, Replace, Touched
from everview.plan.ordering import has_map
from everview.schema import Column, quoted, sql_name, unquoted
from everview.spark.trees import (
    children_of,
    descending,
    each,
    kind,
    nulls_first,
    sql_type,
    type_of,
    value,
)
from everview.sql.catalyst.aggregates import by, check_exact, respelled, several, struct_of
from everview.sql.catalyst.building import only, project, same_bits, unused
from everview.sql.catalyst.expressions import Expressions
from everview.sql.catalyst.scalars import attached

if TYPE_CHECKING:
    from everview.sql.catalyst.translation import Translation

# of rows that are equal in ORDER BY, these give each its own, the others all the same
_BY_PLACE = {"RowNumber", "NTile", "Lag", "Lead"}
_RANKING = {*_BY_PLACE, "Rank", "DenseRank", "PercentRank", "CumeDist"}
# these differ by the order of rows even if all of a partition are taken
_LISTS = ("CollectList", "CollectSet")
_BY_ORDER = {"First", "Last", "AnyValue", "NthValue", "MaxBy", "MinBy", "Mode", *_LISTS}
_NESTED = ("StructType", "ArrayType")
_ALL_ROWS = ["UNBOUNDED PRECEDING", "UNBOUNDED FOLLOWING"]
_MAY_IGNORE_NULLS = {"Lag", "Lead", "First", "Last", "AnyValue"}  # but do not say so
_BOUNDS = {
    "UnboundedPreceding$": "UNBOUNDED PRECEDING",
    "UnboundedFollowing$": "UNBOUNDED FOLLOWING",
    "CurrentRow$": "CURRENT ROW",
}
_DIGITS_TO_ADD = 28  # that a DECIMAL may have so that its sums have as many as they need
_AFTER = "ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING"
_WAY = re.compile(r"(.*?)(?: (ASC|DESC))?(?: NULLS (FIRST|LAST))?", re.DOTALL)
_OTHER = {"ASC": "DESC", "DESC": "ASC", "FIRST": "LAST", "LAST": "FIRST"}
_DAYS = re.compile(r"^INTERVAL '(\d+)' DAY ")


def window(given: Translation, plan: Any) -> Node:
    node, sorting = _sorted(given, plan.child())
    texts = given.expressions
    outputs = list(each(plan.windowExpressions()))
    keyed, groups = given.computed(node, list(each(plan.partitionSpec())), "partition")
    if not keyed.columns:  # there must be something to keep of a row
        keyed = Project((Column("row", pa.int32(), False),), keyed, ("1",))
    touched = Touched(keyed.columns, keyed, groups)
    columns, made = list(keyed.columns), []
    for output in outputs:
        name = unused("window", [column.name for column in columns])
        columns.append(texts.typed(name, output))
        made.append(_text(given, value(output), touched, sorting))
        texts.names[output.exprId().id()] = name
    computed = Recompute(tuple(columns), touched, tuple(made), True)
    found = Replace(tuple(columns), computed, groups, always=False)
    shown = replace(node, columns=(*node.columns, *columns[len(keyed.columns) :]))
    return only(found, shown)


def _sorted(given: Translation, plan: Any) -> tuple[Node, list[str]]:
    """What windows are over; and by what it is sorted, which is the order of windows that have
    none of their own: so Catalyst has it of a subquery with ORDER BY and LIMIT.

    Projections above the sort may leave out what it is by: that is passed on beside them.
    """
    projections, sort = [], plan
    while kind(sort) == "Project":
        projections.append(sort)
        sort = sort.child()
    if kind(sort) != "Sort":
        return given.node(plan), []
    texts, orders = given.expressions, list(each(sort.order()))
    node, names = given.computed(given.node(sort), [one.child() for one in orders], "order")
    for projection in reversed(projections):
        outputs = list(each(projection.projectList()))
        node = attached(given, node, outputs)
        made = [texts.cast(value(output)) for output in outputs]
        columns = list(texts.columns(outputs))
        for name in names:
            if not {name, quoted(name)} & set(made):
                free = unused("order", [column.name for column in columns])
                columns.append(replace(node.column(name), name=free))
                made.append(quoted(name))
        shown = {unquoted(text): column.name for text, column in zip(made, columns, strict=True)}
        names = tuple(shown[name] for name in names)
        node = project(node, tuple(columns), tuple(made))
    return node, [
        text
        for name, order in zip(names, orders, strict=True)
        for text in _ordered(
            quoted(name), order.child().dataType(), descending(order), nulls_first(order)
        )
    ]


def _ordered(text: str, type_: Any, down: bool, first: bool) -> list[str]:
    """An ORDER BY of a value; one of a struct by its fields, since engines differ in where they put
    NULLs in it: to Spark they are less than all else."""
    if kind(type_) != "StructType":
        way = f"{'DESC' if down else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"
        return [f"{same_bits(text, str(type_.sql()))} {way}"]
    fields = ((f"({text}).{quoted(field.name())}", field.dataType()) for field in type_.fields())
    found = [f"({text}) IS NOT NULL {'ASC' if first else 'DESC'}"]
    return found + [one for field in fields for one in _ordered(*field, down, not down)]


def _alike(column: Column) -> str:
    """A column as engines compare it."""
    return same_bits(quoted(column.name), sql_name(column.type))


def _text(given: Translation, expression: Any, touched: Touched, sorting: list[str]) -> str:
    """A window function over the rows of each group; the mark of a group that is only touched
    stands apart by its weight. Catalyst may have a constant in its place, or a column that only
    passes."""
    texts = given.expressions
    if kind(expression) != "WindowExpression":
        return texts.cast(expression)
    function, spec = expression.windowFunction(), expression.windowSpec()
    call = _call(function)
    check_exact(call, expression)
    frame = spec.frameSpecification()
    ranking = kind(function) in _RANKING
    by_rows = not ranking and kind(frame.frameType()) == "RowFrame$"
    bounds = [] if ranking else [_bound(texts, one) for one in (frame.lower(), frame.upper())]
    orders: list[str] = []
    for order in each(spec.orderSpec()):
        text, type_ = texts.text(order.child()), order.child().dataType()
        orders += _ordered(text, type_, descending(order), nulls_first(order))
    if not by_rows and any(_is_date(order) for order in each(spec.orderSpec())):
        orders, bounds = _by_days(orders, bounds)
    if kind(function) in _BY_PLACE or by_rows:
        orders = orders or list(sorting)
    in_order = bool(orders) or kind(call) in _BY_ORDER or bounds != _ALL_ROWS
    if kind(function) in _BY_PLACE or (in_order and not ranking):
        given.choices.add(kind(function))
    if kind(function) in _BY_PLACE or (in_order and by_rows):
        orders += [quoted(one.name) for one in touched.columns if not has_map(one.type)]
    groups = [_alike(touched.column(name)) for name in touched.groups]
    over = [f"PARTITION BY {', '.join([*groups, quoted(WEIGHT)])}"]
    if orders:
        over.append(f"ORDER BY {', '.join(orders)}")
    if not ranking:
        over.append(f"{frame.frameType().sql()} BETWEEN {bounds[0]} AND {bounds[1]}")
    place = _place(call) if kind(call) in _BY_PLACE else None
    if place is not None:
        text = _known(texts, call, place, f"OVER ({over[0]} ORDER BY {{}} {_AFTER})", orders)
    else:
        growing = not by_rows and bounds[:1] == _ALL_ROWS[:1]
        first = _first(texts, function, list(each(spec.orderSpec()))) if growing else None
        over_all = f"OVER ({' '.join(over)})"
        text = f"{first} {over_all}" if first else _computed(texts, function, over_all)
    if kind(call) == "Mode":
        text = not_on_sail(text, "Sail takes another of the most frequent values in a window")
    return f"CAST({text} AS {sql_type(expression)})"


def _place(call: Any) -> int | None:
    """How many rows after this one lag or lead look for, less than 0 before it; None if they take
    NULLs too, or the text says it all."""
    if kind(call) not in ("Lag", "Lead") or not call.ignoreNulls():
        return None
    offset = children_of(call)[1]
    place = int(offset.value()) if kind(offset) == "Literal" else 0
    return (place if kind(call) == "Lead" else -place) or None


def _known(texts: Expressions, call: Any, place: int, over: str, orders: list[str]) -> str:
    """lag or lead that ignore NULLs: what comes so many known values after a row, or before it,
    since not all engines get it right. No default is needed then but where there is none."""
    value_, _, default = (texts.text(one) for one in children_of(call))
    if place < 0:
        orders = [_reversed(order) for order in orders]
    found = f"nth_value({value_}, {abs(place)}) IGNORE NULLS {over.format(', '.join(orders))}"
    return f"coalesce({found}, {default})"


def _reversed(order: str) -> str:
    """An ORDER BY the other way round."""
    found = _WAY.fullmatch(order)
    assert found is not None
    text, way = found[1], found[2] or "ASC"
    nulls = found[3] or ("FIRST" if way == "ASC" else "LAST")
    return f"{text} {_OTHER[way]} NULLS {_OTHER[nulls]}"


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


def _call(function: Any) -> Any:
    return function.aggregateFunction() if kind(function) == "AggregateExpression" else function


def _first(texts: Expressions, function: Any, orders: list[Any]) -> str | None:
    """The first or last value of a RANGE that begins with the first row: of rows that tie for it,
    that with the least or greatest value. None if it is another function, or the orders go both
    ways or into structs."""
    call, ways = _call(function), {descending(order) for order in orders}
    nested = [order for order in orders if kind(order.child().dataType()) in _NESTED]
    if kind(call) not in ("First", "Last") or len(ways) != 1 or nested:
        return None
    (down,) = ways
    value_, parts = texts.text(call.child()), []
    for order in orders:
        text = texts.text(order.child())
        first = f"({text}) IS {'NOT ' if nulls_first(order) != down else ''}NULL"
        parts += [first, same_bits(text, type_of(order.child()))]
    place = struct_of([*parts, f"({value_}) IS NOT NULL", value_])
    wanted = [f"({value_}) IS NOT NULL"] if call.ignoreNulls() else []
    if function.filter().isDefined():
        wanted.append(f"({texts.text(function.filter().get())})")
    if wanted:
        place = f"CASE WHEN {' AND '.join(wanted)} THEN {place} END"
    return f"{'min_by' if (kind(call) == 'First') != down else 'max_by'}({value_}, {place})"


def _computed(texts: Expressions, function: Any, over: str) -> str:
    """The function over its window. What a FILTER leaves out is NULL to it; and an average of
    decimals is made from its sum, with one digit more than it has: engines differ in both. A first
    value that may be NULL is one of structs."""
    call = _call(function)
    if kind(call) in _MAY_IGNORE_NULLS and call.ignoreNulls():
        over = f"IGNORE NULLS {over}"
    arguments = children_of(call)
    if kind(call) in _LISTS:
        kept = f"filter({texts.text(function)} {over}, one -> one IS NOT NULL)"
        kept = f"coalesce({kept}, CAST(array() AS {sql_type(call)}))"
        return kept if kind(call) == "CollectList" else f"sort_array({kept})"
    filtered = kind(function) == "AggregateExpression" and function.filter().isDefined()
    if kind(call) in ("MaxBy", "MinBy") and not filtered:
        shown, compared = ((texts.text(one), one.dataType()) for one in arguments)
        return f"{by(call.prettyName(), shown, compared)} {over}"
    where = f"FILTER (WHERE {texts.text(function.filter().get())}) " if filtered else ""
    if kind(call) == "MaxMinByK":
        shown, compared, _ = ((texts.text(one), one.dataType()) for one in arguments)
        return several(call, shown, compared, f" {where}{over}")
    if (text := respelled(call, [texts.text(one) for one in arguments])) is not None:
        return f"{text} {where}{over}"
    average = kind(call) == "Average" and kind(call.dataType()) == "DecimalType"
    if kind(call) == "Sum":
        argument = texts.text(arguments[0])
        if filtered:
            argument = f"CASE WHEN {texts.text(function.filter().get())} THEN {argument} END"
        return _sum(call, argument, over)
    if not average and not (filtered and len(arguments) == 1):
        return f"{texts.text(function)} {over}"
    argument = texts.text(arguments[0])
    takes_null = filtered and kind(call) in ("First", "Last") and not call.ignoreNulls()
    if takes_null:
        argument = f"named_struct('c', {argument})"
    if filtered:
        argument = f"CASE WHEN {texts.text(function.filter().get())} THEN {argument} END"
    if takes_null:
        return f"({call.prettyName()}({argument}) IGNORE NULLS {over}).c"
    if not average:
        return f"{call.prettyName()}({argument}) {over}"
    type_ = arguments[0].dataType()
    digits, scale = min(type_.precision() + 11, 38), min(type_.scale() + 1, 38)
    total = f"CAST(sum({argument}) {over} AS DECIMAL({digits},{scale}))"
    return f"{total} / CAST(nullif(count({argument}) {over}, 0) AS DECIMAL(20,0))"


def _sum(call: Any, argument: str, over: str) -> str:
    """A sum; Sail's own of 64-bit integers wraps around, and one of decimals need not fit."""
    plain, of = f"{call.prettyName()}({argument}) {over}", call.child().dataType()
    if kind(of).startswith("Long"):
        cast = "try_cast" if call.prettyName() == "try_sum" else "CAST"
        return either(plain, f"{cast}(sum(CAST({argument} AS DECIMAL(19,0))) {over} AS BIGINT)")
    if kind(of) == "DecimalType" and of.precision() > _DIGITS_TO_ADD:
        return not_on_sail(plain, "Sail does not stop where a sum has more than 38 digits")
    return plain
