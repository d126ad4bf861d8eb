"""Pushes conditions of a filter into the source below it, if Arrow can test them when the table or
its log is read; conditions that only the engine can test stay in the filter."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import pyarrow as pa

from everview.plan.conditions import Condition, is_compared, value
from everview.plan.expressions import (
    NOT_NULL,
    Lit,
    Ref,
    Tree,
    all_of,
    conjuncts,
    operation,
    places,
)
from everview.plan.facts import Facts
from everview.plan.nodes import Filter, Node, Source

_COMPARISONS = {f"{{0}} {sign} {{1}}": sign for sign in ("=", "<", "<=", ">", ">=")}
# how Spark writes values of the types that are compared here; only Spark reads escapes
_LITERALS = {
    "STRING": re.compile(r"'([^'\\]*)'"),
    "DATE": re.compile(r"DATE '([^'\\]*)'"),
    "DECIMAL": re.compile(r"(-?\d+(?:\.\d+)?)BD"),
    **{
        type_: re.compile(rf"(-?\d+){mark}")
        for type_, mark in {"TINYINT": "Y", "SMALLINT": "S", "INT": "", "BIGINT": "L"}.items()
    },
}
_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def push_conditions_to_sources(plan: Node, facts: Facts) -> Node:
    plan = plan.with_inputs(partial(push_conditions_to_sources, facts=facts))
    if not isinstance(plan, Filter) or not isinstance(plan.input, Source):
        return plan
    source = plan.input
    if source.table not in facts.tables:  # it is a view
        return plan
    parts = [(tree, _condition(tree, source)) for tree in conjuncts(plan.condition)]
    conditions = dict.fromkeys(condition for _, condition in parts if condition is not None)
    where = sorted(_telling([*source.where, *conditions]), key=_order)
    source = replace(source, where=tuple(where))
    rest = [tree for tree, condition in parts if condition is None]
    return replace(plan, input=source, condition=all_of(rest)) if rest else source


def _telling(conditions: list[Condition]) -> list[Condition]:
    """The conditions without those that say that a compared column is not NULL."""
    compared = {
        name
        for condition in conditions
        if not condition.comparison.startswith("IS")
        for name in condition.columns()
    }
    return [
        condition
        for condition in conditions
        if condition.comparison != "IS NOT NULL" or condition.column not in compared
    ]


def _order(condition: Condition) -> tuple[bool, str]:
    """A key to sort conditions by, since Catalyst's order isn't always the same."""
    return condition.comparison.startswith("IS"), str(condition)


def _condition(tree: Tree, source: Source) -> Condition | None:
    """The tree as a condition that Arrow can test, else None."""
    is_negated = operation(tree) == "NOT {0}"
    tree = tree.parts()[0] if is_negated else tree
    form, parts = operation(tree), tree.parts()
    column = _column(parts[0], source) if parts else None
    if column is None:
        return None
    if form in ("{0} IS NULL", NOT_NULL):
        is_null = (form == NOT_NULL) == is_negated
        return Condition(_read(column, source), "IS NULL" if is_null else "IS NOT NULL")
    if form in _COMPARISONS and not is_negated:
        return _compared(column, _COMPARISONS[form], parts[1], source)
    if form == "{0} = {1}":
        return _compared(column, "<>", parts[1], source)
    if is_negated or len(parts) < 2 or form != f"{{0}} IN ({places(len(parts) - 1, first=1)})":
        return None
    return _with_values(column, "IN", parts[1:], source)


def _compared(column: str, comparison: str, operand: Tree, source: Source) -> Condition | None:
    arrow, other = source.column(column).type, _column(operand, source)
    if other is None:
        return _with_values(column, comparison, (operand,), source)
    if source.column(other).type != arrow or not is_compared(arrow):
        return None
    return Condition(_read(column, source), comparison, other=_read(other, source))


def _with_values(
    column: str, comparison: str, operands: tuple[Tree, ...], source: Source
) -> Condition | None:
    values = [_value(operand, source.column(column).type) for operand in operands]
    texts = tuple(text for text in values if text is not None)
    if len(texts) < len(values):
        return None
    return Condition(_read(column, source), comparison, texts)


def _column(tree: Tree, source: Source) -> str | None:
    """The name of a tree that is just a column of the source, else None."""
    return tree.name if isinstance(tree, Ref) and tree.name in source.names() else None


def _read(column: str, source: Source) -> str:
    """The table's name of a column."""
    return source.read[source.names().index(column)]


def _value(tree: Tree, arrow: pa.DataType) -> str | None:
    """The text of a literal of a column's type, else None."""
    if not isinstance(tree, Lit):
        return None
    type_ = tree.type.split("(")[0]
    match = _LITERALS[type_].fullmatch(tree.text) if type_ in _LITERALS else None
    fits = (
        (pa.types.is_string(arrow) and type_ == "STRING")
        or (pa.types.is_date32(arrow) and type_ == "DATE")
        or (pa.types.is_integer(arrow) and type_ in _WHOLE)
        or (pa.types.is_decimal(arrow) and type_ == "DECIMAL")
    )
    return match[1] if match and fits and value(match[1], arrow) is not None else None
