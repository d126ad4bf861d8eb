"""Window functions: recomputed for the partitions that a change touched."""

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
from everview.sql.catalyst.aggregates import (
    by,
    check_exact,
    over_rows,
    respelled,
    several,
    struct_of,
)
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
_ALL_ROWS: list[Tree] = [sql("UNBOUNDED PRECEDING"), sql("UNBOUNDED FOLLOWING")]
_MAY_IGNORE_NULLS = {"Lag", "Lead", "First", "Last", "AnyValue"}  # but do not say so
_BOUNDS = {
    "UnboundedPreceding$": "UNBOUNDED PRECEDING",
    "UnboundedFollowing$": "UNBOUNDED FOLLOWING",
    "CurrentRow$": "CURRENT ROW",
}
_DIGITS_TO_ADD = 28  # that a DECIMAL may have so that its sums have as many as they need
_AFTER = "ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING"
_OTHER = {"ASC": "DESC", "DESC": "ASC", "FIRST": "LAST", "LAST": "FIRST"}
_DAYS = re.compile(r"INTERVAL '(\d+)' DAY")


@dataclass(frozen=True)
class _By:
    """What rows are sorted by; no `way` is ascending, and without `nulls` they come as in it."""

    tree: Tree
    way: str = ""
    nulls: str = ""

    def asked(self) -> Tree:
        way = f" {self.way}" if self.way else ""
        return sql(f"{{0}}{way}{f' NULLS {self.nulls}' if self.nulls else ''}", self.tree)

    def reversed(self) -> _By:
        way = self.way or "ASC"
        nulls = self.nulls or ("FIRST" if way == "ASC" else "LAST")
        return _By(self.tree, _OTHER[way], _OTHER[nulls])


def window(given: Translation, plan: Any) -> Node:
    node, sorting = _sorted(given, plan.child())
    trees = given.expressions
    outputs = list(each(plan.windowExpressions()))
    keyed, groups = given.computed(node, list(each(plan.partitionSpec())), "partition")
    if not keyed.columns:  # there must be something to keep of a row
        keyed = Project((Column("row", pa.int32(), False),), keyed, (sql("1"),))
    touched = Touched(keyed.columns, keyed, groups)
    columns, made = list(keyed.columns), []
    for output in outputs:
        name = unused("window", [column.name for column in columns])
        columns.append(trees.typed(name, output))
        made.append(_tree(given, value(output), touched, sorting))
        trees.names[output.exprId().id()] = name
    computed = Recompute(tuple(columns), touched, tuple(made), True)
    found = Replace(tuple(columns), computed, groups, always=False)
    shown = replace(node, columns=(*node.columns, *columns[len(keyed.columns) :]))
    return only(found, shown)


def _sorted(given: Translation, plan: Any) -> tuple[Node, list[_By]]:
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
    trees, orders = given.expressions, list(each(sort.order()))
    node, names = given.computed(given.node(sort), [one.child() for one in orders], "order")
    for projection in reversed(projections):
        outputs = list(each(projection.projectList()))
        node = attached(given, node, outputs)
        made = [trees.cast(value(output)) for output in outputs]
        columns = list(trees.columns(outputs))
        for name in names:
            if Ref(name) not in made:
                free = unused("order", [column.name for column in columns])
                columns.append(replace(node.column(name), name=free))
                made.append(Ref(name))
        shown = {tree: column.name for tree, column in zip(made, columns, strict=True)}
        names = tuple(shown[Ref(name)] for name in names)
        node = project(node, tuple(columns), tuple(made))
    return node, [
        one
        for name, order in zip(names, orders, strict=True)
        for one in _ordered(
            Ref(name), order.child().dataType(), descending(order), nulls_first(order)
        )
    ]


def _ordered(tree: Tree, type_: Any, down: bool, first: bool) -> list[_By]:
    """An ORDER BY of a value; one of a struct by its fields, since engines differ in where they put
    NULLs in it: to Spark they are less than all else."""
    if kind(type_) != "StructType":
        way, nulls = "DESC" if down else "ASC", "FIRST" if first else "LAST"
        return [_By(same_bits(tree, str(type_.sql())), way, nulls)]
    inner = sql("({0})", tree)
    fields = ((field_of(inner, one.name()), one.dataType()) for one in type_.fields())
    found = [_By(sql("{0} IS NOT NULL", inner), "ASC" if first else "DESC")]
    return found + [one for field in fields for one in _ordered(*field, down, not down)]


def _alike(column: Column) -> Tree:
    """A column as engines compare it."""
    return same_bits(Ref(column.name), sql_name(column.type))


def _tree(given: Translation, expression: Any, touched: Touched, sorting: list[_By]) -> Tree:
    """A window function over the rows of each group; the mark of a group that is only touched
    stands apart by its weight. Catalyst may have a constant in its place, or a column that only
    passes."""
    trees = given.expressions
    if kind(expression) != "WindowExpression":
        return trees.cast(expression)
    function, spec = expression.windowFunction(), expression.windowSpec()
    inner = _call(function)
    check_exact(inner, expression)
    frame = spec.frameSpecification()
    ranking = kind(function) in _RANKING
    by_rows = not ranking and kind(frame.frameType()) == "RowFrame$"
    bounds = [] if ranking else [_bound(trees, one) for one in (frame.lower(), frame.upper())]
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
        given.choices.add(kind(function))
    if kind(function) in _BY_PLACE or (in_order and by_rows):
        orders += [_By(Ref(one.name)) for one in touched.columns if not has_map(one.type)]
    groups = [_alike(touched.column(name)) for name in touched.groups]
    partition = sql(f"PARTITION BY {places(len(groups) + 1)}", *groups, Ref(WEIGHT))
    place = _place(inner) if kind(inner) in _BY_PLACE else None
    if place is not None:
        made = _known(trees, inner, place, partition, orders)
    else:
        growing = not by_rows and bounds[:1] == _ALL_ROWS[:1]
        first = _first(trees, function, list(each(spec.orderSpec()))) if growing else None
        between = f"{frame.frameType().sql()} BETWEEN {{0}} AND {{1}}" if bounds else ""
        over = _over(partition, orders, *([sql(between, *bounds)] if bounds else []))
        made = over_rows(first, over) if first else _computed(trees, function, over)
    if kind(inner) == "Mode":
        made = not_on_sail(made, "Sail takes another of the most frequent values in a window")
    return cast(made, sql_type(expression))


def _over(partition: Tree, orders: list[_By], *frame: Tree) -> Tree:
    """OVER, with an order and a frame if there are any."""
    by_ = [one.asked() for one in orders]
    parts = [partition, *([sql(f"ORDER BY {places(len(by_))}", *by_)] if by_ else []), *frame]
    return sql(f"OVER ({places(len(parts), ' ')})", *parts)


def _place(inner: Any) -> int | None:
    """How many rows after this one lag or lead look for, less than 0 before it; None if they take
    NULLs too, or the text says it all."""
    if kind(inner) not in ("Lag", "Lead") or not inner.ignoreNulls():
        return None
    offset = children_of(inner)[1]
    place = int(offset.value()) if kind(offset) == "Literal" else 0
    return (place if kind(inner) == "Lead" else -place) or None


def _known(trees: Expressions, inner: Any, place: int, partition: Tree, orders: list[_By]) -> Tree:
    """lag or lead that ignore NULLs: what comes so many known values after a row, or before it,
    since not all engines get it right. No default is needed then but where there is none."""
    value_, _, default = (trees.tree(one) for one in children_of(inner))
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
    """A range of so many days about a date, as one of numbers: not all engines know the other."""
    numbers = [_in_days(bound) for bound in bounds]
    given = [part for bound in numbers for part in bound.parts()]
    if not any(isinstance(part, Lit) and part.text[0].isdigit() for part in given):
        return orders, bounds
    (order,) = orders
    return [replace(order, tree=call("unix_date", order.tree))], numbers


def _in_days(bound: Tree) -> Tree:
    """A bound of whole days as one of their number."""
    days = bound.parts()[0] if bound.parts() else None
    found = _DAYS.fullmatch(days.text) if isinstance(days, Lit) else None
    return bound.with_parts([Lit(found[1], "INT")]) if found else bound


def _call(function: Any) -> Any:
    return function.aggregateFunction() if kind(function) == "AggregateExpression" else function


def _first(trees: Expressions, function: Any, orders: list[Any]) -> Tree | None:
    """The first or last value of a RANGE that begins with the first row: of rows that tie for it,
    that with the least or greatest value. None if it is another function, or the orders go both
    ways or into structs."""
    inner, ways = _call(function), {descending(order) for order in orders}
    nested = [order for order in orders if kind(order.child().dataType()) in _NESTED]
    if kind(inner) not in ("First", "Last") or len(ways) != 1 or nested:
        return None
    (down,) = ways
    value_ = trees.tree(inner.child())
    there, parts = sql("({0}) IS NOT NULL", value_), list[Tree]()
    for order in orders:
        tree = trees.tree(order.child())
        first = f"({{0}}) IS {'NOT ' if nulls_first(order) != down else ''}NULL"
        parts += [sql(first, tree), same_bits(tree, type_of(order.child()))]
    place = struct_of([*parts, there, value_])
    wanted: list[Tree] = [there] if inner.ignoreNulls() else []
    if function.filter().isDefined():
        wanted.append(sql("({0})", trees.tree(function.filter().get())))
    if wanted:
        place = sql("CASE WHEN {0} THEN {1} END", all_of(wanted), place)
    return call("min_by" if (kind(inner) == "First") != down else "max_by", value_, place)


def _computed(trees: Expressions, function: Any, over: Tree) -> Tree:
    """The function over its window. What a FILTER leaves out is NULL to it; and an average of
    decimals is made from its sum, with one digit more than it has: engines differ in both. A first
    value that may be NULL is one of structs."""
    inner = _call(function)
    if kind(inner) in _MAY_IGNORE_NULLS and inner.ignoreNulls():
        over = sql("IGNORE NULLS {0}", over)
    arguments = children_of(inner)
    if kind(inner) in _LISTS:
        kept = sql("filter({0} {1}, one -> one IS NOT NULL)", trees.tree(function), over)
        kept = sql(f"coalesce({{0}}, CAST(array() AS {verbatim(sql_type(inner))}))", kept)
        return kept if kind(inner) == "CollectList" else call("sort_array", kept)
    filtered = kind(function) == "AggregateExpression" and function.filter().isDefined()
    if kind(inner) in ("MaxBy", "MinBy") and not filtered:
        shown, compared = ((trees.tree(one), one.dataType()) for one in arguments)
        return over_rows(by(inner.prettyName(), shown, compared), over)
    condition = trees.tree(function.filter().get()) if filtered else None
    where = over if condition is None else sql("FILTER (WHERE {0}) {1}", condition, over)
    if kind(inner) == "MaxMinByK":
        shown, compared, _ = ((trees.tree(one), one.dataType()) for one in arguments)
        return several(inner, shown, compared, where)
    if (tree := respelled(inner, [trees.tree(one) for one in arguments])) is not None:
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
    """A sum; Sail's own of 64-bit integers wraps around, and one of decimals need not fit."""
    plain, of = over_rows(call(function.prettyName(), argument), over), function.child().dataType()
    if kind(of).startswith("Long"):
        tried = "try_cast" if function.prettyName() == "try_sum" else "CAST"
        form = f"{tried}(sum(CAST({{0}} AS DECIMAL(19,0))) {{1}} AS BIGINT)"
        return either(plain, sql(form, argument, over))
    if kind(of) == "DecimalType" and of.precision() > _DIGITS_TO_ADD:
        return not_on_sail(plain, "Sail does not stop where a sum has more than 38 digits")
    return plain
