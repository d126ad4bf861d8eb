"""Rows that a filter right above a table leaves out are left out when the table or its log is read,
as far as Arrow can tell; what only the engine can decide stays a filter."""

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
# how Spark writes values of the types that are compared here; a text with escapes is its to read
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
    if source.table not in facts.tables:  # it is a view, and no table that is read
        return plan
    parts = [(tree, _condition(tree, source)) for tree in conjuncts(plan.condition)]
    found = dict.fromkeys(condition for _, condition in parts if condition is not None)
    where = sorted(_telling([*source.where, *found]), key=_order)
    source = replace(source, where=tuple(where))
    rest = [tree for tree, condition in parts if condition is None]
    return replace(plan, input=source, condition=all_of(rest)) if rest else source


def _telling(conditions: list[Condition]) -> list[Condition]:
    """Without those that say of a compared column that it is not NULL."""
    compared = {
        name for one in conditions if not one.comparison.startswith("IS") for name in one.columns()
    }
    return [
        one for one in conditions if one.comparison != "IS NOT NULL" or one.column not in compared
    ]


def _order(condition: Condition) -> tuple[bool, str]:
    """Any will do, if it is always the same: Catalyst's is not."""
    return condition.comparison.startswith("IS"), str(condition)


def _condition(tree: Tree, source: Source) -> Condition | None:
    """The condition that a tree is, if Arrow can hold rows against it."""
    is_negated = operation(tree) == "NOT {0}"
    tree = tree.parts()[0] if is_negated else tree
    done, parts = operation(tree), tree.parts()
    column = _column(parts[0], source) if parts else None
    if column is None:
        return None
    if done in ("{0} IS NULL", NOT_NULL):
        is_null = (done == NOT_NULL) == is_negated
        return Condition(_read(column, source), "IS NULL" if is_null else "IS NOT NULL")
    if done in _COMPARISONS and not is_negated:
        return _compared(column, _COMPARISONS[done], parts[1], source)
    if done == "{0} = {1}":
        return _compared(column, "<>", parts[1], source)
    if is_negated or len(parts) < 2 or done != f"{{0}} IN ({places(len(parts) - 1, first=1)})":
        return None
    return _with_values(column, "IN", parts[1:], source)


def _compared(column: str, comparison: str, with_: Tree, source: Source) -> Condition | None:
    arrow, other = source.column(column).type, _column(with_, source)
    if other is None:
        return _with_values(column, comparison, (with_,), source)
    if source.column(other).type != arrow or not is_compared(arrow):
        return None
    return Condition(_read(column, source), comparison, other=_read(other, source))


def _with_values(
    column: str, comparison: str, given: tuple[Tree, ...], source: Source
) -> Condition | None:
    values = [_value(one, source.column(column).type) for one in given]
    texts = tuple(text for text in values if text is not None)
    if len(texts) < len(values):
        return None
    return Condition(_read(column, source), comparison, texts)


def _column(tree: Tree, source: Source) -> str | None:
    """The column of the source that a tree is no more than."""
    return tree.name if isinstance(tree, Ref) and tree.name in source.names() else None


def _read(column: str, source: Source) -> str:
    """What the table calls a column."""
    return source.read[source.names().index(column)]


def _value(tree: Tree, arrow: pa.DataType) -> str | None:
    """The text of a literal that is of a column's type."""
    if not isinstance(tree, Lit):
        return None
    type_ = tree.type.split("(")[0]
    written = _LITERALS[type_].fullmatch(tree.text) if type_ in _LITERALS else None
    fits = (
        (pa.types.is_string(arrow) and type_ == "STRING")
        or (pa.types.is_date32(arrow) and type_ == "DATE")
        or (pa.types.is_integer(arrow) and type_ in _WHOLE)
        or (pa.types.is_decimal(arrow) and type_ == "DECIMAL")
    )
    return written[1] if written and fits and value(written[1], arrow) is not None else None
