"""Trees of aggregate functions that need other words than Catalyst's: where it leaves the order of
rows open, or where engines understand it otherwise. Windows have them too."""

from __future__ import annotations

from typing import Any

from everview.plan.expressions import (
    Lit,
    Tree,
    call,
    field_of,
    named_struct,
    not_on_sail,
    places,
    sql,
)
from everview.spark.trees import children_of, data_type, kind
from everview.sql.catalyst.forms import Forms

LISTS = ("CollectList", "CollectSet")
# regr_r2: engines differ if one of the two arguments doesn't vary
_FIT = (
    "CASE WHEN regr_sxx({0}, {1}) > 0 THEN coalesce(regr_sxy({0}, {1}) * regr_sxy({0}, {1}) / "
    "nullif(regr_sxx({0}, {1}) * regr_syy({0}, {1}), 0), 1.0D) END"
)


def recomputed_tree(forms: Forms, expression: Any, children: list[Tree]) -> Tree:
    """An aggregate that is recomputed for each group, over trees in place of its arguments."""
    function = expression.aggregateFunction()
    typed = list(zip(children, map(data_type, children_of(function)), strict=True))
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
    tree = forms.aggregated(function, children, expression.isDistinct())
    if kind(function) == "Percentile" and _is_percentile_of_its_own(expression):
        return not_on_sail(tree, "Sail counts values otherwise in this percentile")
    return call("sort_array", tree) if kind(function) in LISTS else tree


def _is_percentile_of_its_own(call: Any) -> bool:
    """Whether a percentile has frequencies, or distinct values and several percentages."""
    function = call.aggregateFunction()
    often = function.frequencyExpression()
    several_ = kind(function.percentageExpression().dataType()) == "ArrayType"
    return not (kind(often) == "Literal" and often.value() == 1) or (
        bool(call.isDistinct()) and several_
    )


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
