"""Window functions, which are recomputed for the partitions that a change touches."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from everview.delta import WEIGHT
from everview.plan.expressions import (
    Lit,
    Ref,
    Tree,
    all_of,
    call,
    cast,
    either,
    field_of,
    named_struct,
    not_on_sail,
    places,
    sql,
    verbatim,
)
from everview.plan.nodes import Node, Project, Recompute, Replace, Touched
from everview.plan.ordering import has_map
from everview.schema import Column, sql_name
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
from everview.sql.catalyst.aggregate_trees import by, over_rows, respelled, several, struct_of
from everview.sql.catalyst.building import only, project, same_bits, unused
from everview.sql.catalyst.calls import check_exact
from everview.sql.catalyst.expressions import Expressions
from everview.sql.catalyst.scalars import attached

if TYPE_CHECKING:
    from everview.sql.catalyst.translation import Translation

# for rows that are equal in ORDER BY, these give different results, the others the same
_BY_PLACE = {"RowNumber", "NTile", "Lag", "Lead"}
_RANKING = {*_BY_PLACE, "Rank", "DenseRank", "PercentRank", "CumeDist"}
# the results of these depend on the order of rows even over a whole partition
_LISTS = ("CollectList", "CollectSet")
_BY_ORDER = {"First", "Last", "AnyValue", "NthValue", "MaxBy", "MinBy", "Mode", *_LISTS}
_NESTED = ("StructType", "ArrayType")
_ALL_ROWS: list[Tree] = [sql("UNBOUNDED PRECEDING"), sql("UNBOUNDED FOLLOWING")]
_MAY_IGNORE_NULLS = {"Lag", "Lead", "First", "Last", "AnyValue"}  # but their text doesn't say so
_BOUNDS = {
    "UnboundedPreceding$": "UNBOUNDED PRECEDING",
    "UnboundedFollowing$": "UNBOUNDED FOLLOWING",
    "CurrentRow$": "CURRENT ROW",
}
_DIGITS_TO_ADD = 28  # the most digits of a DECIMAL whose sums have all the digits that they need
_AFTER = "ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING"
_OPPOSITE = {"ASC": "DESC", "DESC": "ASC", "FIRST": "LAST", "LAST": "FIRST"}
_DAYS = re.compile(r"INTERVAL '(\d+)' DAY")


@dataclass(frozen=True)
class _By:
    """An item of ORDER BY. `way` is ascending by default, and the default of `nulls` follows."""

    tree: Tree
    way: str = ""
    nulls: str = ""

    def order_item(self) -> Tree:
        way = f" {self.way}" if self.way else ""
        return sql(f"{{0}}{way}{f' NULLS {self.nulls}' if self.nulls else ''}", self.tree)

    def reversed(self) -> _By:
        way = self.way or "ASC"
        nulls = self.nulls or ("FIRST" if way == "ASC" else "LAST")
        return _By(self.tree, _OPPOSITE[way], _OPPOSITE[nulls])


def window(translation: Translation, plan: Any) -> Node:
    node, sorting = _sorted(translation, plan.child())
    trees = translation.expressions
    outputs = list(each(plan.windowExpressions()))
    keyed, groups = translation.computed(node, list(each(plan.partitionSpec())), "partition")
    if not keyed.columns:  # a row needs at least one column to be stored
        keyed = Project((Column("row", pa.int32(), False),), keyed, (sql("1"),))
    touched = Touched(keyed.columns, keyed, groups)
    columns, functions = list(keyed.columns), []
    for output in outputs:
        name = unused("window", [column.name for column in columns])
        columns.append(trees.typed(name, output))
        functions.append(_tree(translation, value(output), touched, sorting))
        trees.names[output.exprId().id()] = name
    computed = Recompute(tuple(columns), touched, tuple(functions), True)
    result = Replace(tuple(columns), computed, groups, always=False)
    with_functions = replace(node, columns=(*node.columns, *columns[len(keyed.columns) :]))
    return only(result, with_functions)


def _sorted(translation: Translation, plan: Any) -> tuple[Node, list[_By]]:
    """The input of windows, and its order, which windows without an own order have: so Catalyst
    does with a subquery with ORDER BY and LIMIT.

    Projections above the sort may leave out columns of the order: these are added to them.
    """
    projections, sort = [], plan
    while kind(sort) == "Project":
        projections.append(sort)
        sort = sort.child()
    if kind(sort) != "Sort":
        return translation.node(plan), []
    trees, orders = translation.expressions, list(each(sort.order()))
    ordered_by = [order.child() for order in orders]
    node, names = translation.computed(translation.node(sort), ordered_by, "order")
    for projection in reversed(projections):
        outputs = list(each(projection.projectList()))
        node = attached(translation, node, outputs)
        output_trees = [trees.cast(value(output)) for output in outputs]
        columns = list(trees.columns(outputs))
        for name in names:
            if Ref(name) not in output_trees:
                free = unused("order", [column.name for column in columns])
                columns.append(replace(node.column(name), name=free))
                output_trees.append(Ref(name))
        pairs = zip(output_trees, columns, strict=True)
        names_by_tree = {tree: column.name for tree, column in pairs}
        names = tuple(names_by_tree[Ref(name)] for name in names)
        node = project(node, tuple(columns), tuple(output_trees))
    return node, [
        sorted_by
        for name, order in zip(names, orders, strict=True)
        for sorted_by in _ordered(
            Ref(name), order.child().dataType(), descending(order), nulls_first(order)
        )
    ]


def _ordered(tree: Tree, type_: Any, down: bool, first: bool) -> list[_By]:
    """An ORDER BY of a value. A struct is ordered by its fields, since engines differ in where they
    sort NULLs in it: in Spark they are less than all else."""
    if kind(type_) != "StructType":
        way, nulls = "DESC" if down else "ASC", "FIRST" if first else "LAST"
        return [_By(same_bits(tree, str(type_.sql())), way, nulls)]
    inner = sql("({0})", tree)
    fields = ((field_of(inner, field.name()), field.dataType()) for field in type_.fields())
    null_order = [_By(sql("{0} IS NOT NULL", inner), "ASC" if first else "DESC")]
    return null_order + [by for field in fields for by in _ordered(*field, down, not down)]


def _alike(column: Column) -> Tree:
    """A column, such that all engines compare it alike."""
    return same_bits(Ref(column.name), sql_name(column.type))


def _tree(translation: Translation, expression: Any, touched: Touched, sorting: list[_By]) -> Tree:
    """A window function over the rows of each group; the row that only marks a touched group is
    apart by its weight. In its place Catalyst may have a constant or a plain column."""
    trees = translation.expressions
    if kind(expression) != "WindowExpression":
        return trees.cast(expression)
    function, spec = expression.windowFunction(), expression.windowSpec()
    inner = _call(function)
    check_exact(inner, expression)
    frame = spec.frameSpecification()
    ranking = kind(function) in _RANKING
    by_rows = not ranking and kind(frame.frameType()) == "RowFrame$"
    bounds = [] if ranking else [_bound(trees, bound) for bound in (frame.lower(), frame.upper())]
    orders: list[_By] = []
    for order in each(spec.orderSpec()):
        tree, type_ = trees.tree(order.child()), order.child().dataType()
        orders += _ordered(tree, type_, descending(order), nulls_first(order))
    if not by_rows and any(_is_date(order) for order in each(spec.orderSpec())):
        orders, bounds = _by_days(orders, bounds)
    if kind(function) in _BY_PLACE or by_rows:
        orders = orders or list(sorting)
    in_order = bool(orders) or kind(inner) in _BY_ORDER or bounds != _ALL_ROWS
    if kind(function) in _BY_PLACE or (in_order and not ranking):
        translation.choices.add(kind(function))
    if kind(function) in _BY_PLACE or (in_order and by_rows):
        orders += [_By(Ref(c.name)) for c in touched.columns if not has_map(c.type)]
    groups = [_alike(touched.column(name)) for name in touched.groups]
    partition = sql(f"PARTITION BY {places(len(groups) + 1)}", *groups, Ref(WEIGHT))
    place = _place(inner) if kind(inner) in _BY_PLACE else None
    if place is not None:
        tree = _known(trees, inner, place, partition, orders)
    else:
        growing = not by_rows and bounds[:1] == _ALL_ROWS[:1]
        first = _first(trees, function, list(each(spec.orderSpec()))) if growing else None
        between = f"{frame.frameType().sql()} BETWEEN {{0}} AND {{1}}" if bounds else ""
        over = _over(partition, orders, *([sql(between, *bounds)] if bounds else []))
        tree = over_rows(first, over) if first else _computed(trees, function, over)
    if kind(inner) == "Mode":
        tree = not_on_sail(tree, "Sail takes another of the most frequent values in a window")
    return cast(tree, sql_type(expression))


def _over(partition: Tree, orders: list[_By], *frame: Tree) -> Tree:
    """An OVER clause, with an order and a frame if there are any."""
    by_ = [order.order_item() for order in orders]
    parts = [partition, *([sql(f"ORDER BY {places(len(by_))}", *by_)] if by_ else []), *frame]
    return sql(f"OVER ({places(len(parts), ' ')})", *parts)


def _place(inner: Any) -> int | None:
    """How many rows after this one lag or lead look, less than 0 before it; None if they don't
    ignore NULLs, or Catalyst's own text will do."""
    if kind(inner) not in ("Lag", "Lead") or not inner.ignoreNulls():
        return None
    offset = children_of(inner)[1]
    place = int(offset.value()) if kind(offset) == "Literal" else 0
    return (place if kind(inner) == "Lead" else -place) or None


def _known(trees: Expressions, inner: Any, place: int, partition: Tree, orders: list[_By]) -> Tree:
    """lag or lead that ignore NULLs, as the nth value that is not NULL after or before a row, since
    not all engines get it right."""
    value_, _, default = (trees.tree(child) for child in children_of(inner))
    if place < 0:
        orders = [order.reversed() for order in orders]
    over = _over(partition, orders, sql(_AFTER))
    form = f"coalesce(nth_value({{0}}, {abs(place)}) IGNORE NULLS {{1}}, {{2}})"
    return sql(form, value_, over, default)


def _bound(trees: Expressions, bound: Any) -> Tree:
    """Where a frame begins or ends."""
    if kind(bound) in _BOUNDS:
        return sql(_BOUNDS[kind(bound)])
    before = kind(bound) == "UnaryMinus"
    tree = trees.tree(bound.child() if before else bound)
    if isinstance(tree, Lit) and tree.text.startswith(("-", "INTERVAL '-")):
        before, tree = True, replace(tree, text=tree.text.replace("-", "", 1))
    return sql(f"{{0}} {'PRECEDING' if before else 'FOLLOWING'}", tree)


def _is_date(order: Any) -> bool:
    return kind(order.child().dataType()).startswith("Date")


def _by_days(orders: list[_By], bounds: list[Tree]) -> tuple[list[_By], list[Tree]]:
    """A range of days around a date, as a range of numbers: not all engines know the former."""
    numbers = [_in_days(bound) for bound in bounds]
    parts = [part for bound in numbers for part in bound.parts()]
    if not any(isinstance(part, Lit) and part.text[0].isdigit() for part in parts):
        return orders, bounds
    (order,) = orders
    return [replace(order, tree=call("unix_date", order.tree))], numbers


def _in_days(bound: Tree) -> Tree:
    """A bound of whole days as a number of days."""
    days = bound.parts()[0] if bound.parts() else None
    match = _DAYS.fullmatch(days.text) if isinstance(days, Lit) else None
    return bound.with_parts([Lit(match[1], "INT")]) if match else bound


def _call(function: Any) -> Any:
    return function.aggregateFunction() if kind(function) == "AggregateExpression" else function


def _first(trees: Expressions, function: Any, orders: list[Any]) -> Tree | None:
    """The first or last value of a RANGE that begins with the first row: among ties, the least or
    greatest value. None if it is another function, or if the orders go both ways or are nested."""
    inner, ways = _call(function), {descending(order) for order in orders}
    nested = [order for order in orders if kind(order.child().dataType()) in _NESTED]
    if kind(inner) not in ("First", "Last") or len(ways) != 1 or nested:
        return None
    (down,) = ways
    value_ = trees.tree(inner.child())
    not_null, parts = sql("({0}) IS NOT NULL", value_), list[Tree]()
    for order in orders:
        tree = trees.tree(order.child())
        first = f"({{0}}) IS {'NOT ' if nulls_first(order) != down else ''}NULL"
        parts += [sql(first, tree), same_bits(tree, type_of(order.child()))]
    place = struct_of([*parts, not_null, value_])
    conditions: list[Tree] = [not_null] if inner.ignoreNulls() else []
    if function.filter().isDefined():
        conditions.append(sql("({0})", trees.tree(function.filter().get())))
    if conditions:
        place = sql("CASE WHEN {0} THEN {1} END", all_of(conditions), place)
    return call("min_by" if (kind(inner) == "First") != down else "max_by", value_, place)


def _computed(trees: Expressions, function: Any, over: Tree) -> Tree:
    """The function over its window. Rows that fail a FILTER are NULL to it, and an average of
    decimals is computed from the sum, with one digit more: engines differ in both. If a FILTER
    stands with a first value that may be NULL, the values are wrapped in structs."""
    inner = _call(function)
    if kind(inner) in _MAY_IGNORE_NULLS and inner.ignoreNulls():
        over = sql("IGNORE NULLS {0}", over)
    arguments = children_of(inner)
    if kind(inner) in _LISTS:
        values = sql("filter({0} {1}, one -> one IS NOT NULL)", trees.tree(function), over)
        values = sql(f"coalesce({{0}}, CAST(array() AS {verbatim(sql_type(inner))}))", values)
        return values if kind(inner) == "CollectList" else call("sort_array", values)
    filtered = kind(function) == "AggregateExpression" and function.filter().isDefined()
    if kind(inner) in ("MaxBy", "MinBy") and not filtered:
        result, compared = ((trees.tree(a), a.dataType()) for a in arguments)
        return over_rows(by(inner.prettyName(), result, compared), over)
    condition = trees.tree(function.filter().get()) if filtered else None
    where = over if condition is None else sql("FILTER (WHERE {0}) {1}", condition, over)
    if kind(inner) == "MaxMinByK":
        result, compared, _ = ((trees.tree(a), a.dataType()) for a in arguments)
        return several(inner, result, compared, where)
    if (tree := respelled(inner, [trees.tree(argument) for argument in arguments])) is not None:
        return over_rows(tree, where)
    average = kind(inner) == "Average" and kind(inner.dataType()) == "DecimalType"
    if kind(inner) != "Sum" and not average and not (filtered and len(arguments) == 1):
        return over_rows(trees.tree(function), over)
    argument = trees.tree(arguments[0])
    takes_null = filtered and kind(inner) in ("First", "Last") and not inner.ignoreNulls()
    if takes_null:
        argument = named_struct([("c", argument)])
    if condition is not None:
        argument = sql("CASE WHEN {0} THEN {1} END", condition, argument)
    if kind(inner) == "Sum":
        return _sum(inner, argument, over)
    if takes_null:
        return sql("({0} IGNORE NULLS {1}).c", call(inner.prettyName(), argument), over)
    if not average:
        return over_rows(call(inner.prettyName(), argument), over)
    type_ = arguments[0].dataType()
    digits, scale = min(type_.precision() + 11, 38), min(type_.scale() + 1, 38)
    total = cast(over_rows(call("sum", argument), over), f"DECIMAL({digits},{scale})")
    count = "CAST(nullif(count({1}) {2}, 0) AS DECIMAL(20,0))"
    return sql(f"{{0}} / {count}", total, argument, over)


def _sum(function: Any, argument: Tree, over: Tree) -> Tree:
    """A sum. Sail's own sums of 64-bit integers wrap around, and those of decimals may not fit."""
    type_ = function.child().dataType()
    plain = over_rows(call(function.prettyName(), argument), over)
    if kind(type_).startswith("Long"):
        tried = "try_cast" if function.prettyName() == "try_sum" else "CAST"
        form = f"{tried}(sum(CAST({{0}} AS DECIMAL(19,0))) {{1}} AS BIGINT)"
        return either(plain, sql(form, argument, over))
    if kind(type_) == "DecimalType" and type_.precision() > _DIGITS_TO_ADD:
        return not_on_sail(plain, "Sail does not stop where a sum has more than 38 digits")
    return plain
