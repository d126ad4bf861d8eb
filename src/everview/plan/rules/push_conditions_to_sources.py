"""Rows that a filter right above a table leaves out are left out when the table or its log is read,
as far as Arrow can tell; what only the engine can decide stays a filter."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import pyarrow as pa
from sqlglot import exp, parse_one, tokenize
from sqlglot.errors import SqlglotError
from sqlglot.expressions import DType
from sqlglot.tokenizer_core import TokenType

from everview.plan.conditions import Condition, is_compared, value
from everview.plan.facts import Facts
from everview.plan.nodes import Filter, Node, Source
from everview.plan.texts import words

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.In: "IN",
}
_WHOLE = (None, DType.TINYINT, DType.SMALLINT, DType.INT, DType.BIGINT)


def push_conditions_to_sources(plan: Node, facts: Facts) -> Node:
    plan = plan.with_inputs(partial(push_conditions_to_sources, facts=facts))
    if not isinstance(plan, Filter) or not isinstance(plan.input, Source):
        return plan
    source = plan.input
    if source.table not in facts.tables:  # it is a view, and no table that is read
        return plan
    parts = [(text, _condition(text, source)) for text in _conjuncts(plan.condition)]
    found = dict.fromkeys(condition for _, condition in parts if condition is not None)
    where = sorted(_telling([*source.where, *found]), key=_order)
    source = replace(source, where=tuple(where))
    rest = " AND ".join(text for text, condition in parts if condition is None)
    return replace(plan, input=source, condition=rest) if rest else source


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


def _conjuncts(text: str) -> list[str]:
    """The texts that AND joins in a condition; all of it, if they can't be told."""
    try:
        tree = parse_one(text, dialect="spark")
        depth, cuts = 0, []
        for token in tokenize(text, dialect="spark"):
            depth += (token.token_type == TokenType.L_PAREN) - (
                token.token_type == TokenType.R_PAREN
            )
            if token.token_type == TokenType.AND and depth == 0:
                cuts.append((token.start, token.end + 1))
        ends = [(0, 0), *cuts, (len(text), len(text))]
        parts = [text[start:stop].strip() for (_, start), (stop, _) in pairwise(ends)]
        read = [parse_one(part, dialect="spark") for part in parts]
    except SqlglotError:
        return [text]
    return parts if read == list(tree.flatten(unnest=False)) or len(parts) == 1 else [text]


def _condition(text: str, source: Source) -> Condition | None:
    """The condition that a text is, if Arrow can hold rows against it."""
    if "\\" in text or "CAST" in words(text.upper()):  # escapes and casts are Spark's to read
        return None
    try:
        tree = parse_one(text, dialect="spark").unnest()
    except SqlglotError:
        return None
    negated = isinstance(tree, exp.Not)
    tree = tree.this.unnest() if negated else tree
    column = _column(tree.args.get("this"), source)
    if column is None:
        return None
    if isinstance(tree, exp.Is) and isinstance(tree.expression, exp.Null):
        return Condition(_read(column, source), "IS NOT NULL" if negated else "IS NULL")
    comparison = _COMPARISONS.get(type(tree))
    if negated:
        comparison = "<>" if comparison == "=" else None
    return None if comparison is None else _compared(column, comparison, tree, source)


def _compared(column: str, comparison: str, tree: exp.Expr, source: Source) -> Condition | None:
    arrow, read = source.column(column).type, _read(column, source)
    given = tree.expressions if comparison == "IN" else [tree.expression]
    other = _column(given[0], source) if len(given) == 1 else None
    if other is not None:
        alike = source.column(other).type == arrow and is_compared(arrow) and comparison != "IN"
        return Condition(read, comparison, other=_read(other, source)) if alike else None
    values = [_value(one, arrow) for one in given]
    texts = tuple(text for text in values if text is not None)
    return Condition(read, comparison, texts) if texts and len(texts) == len(values) else None


def _column(node: exp.Expr | None, source: Source) -> str | None:
    """The column of the source that an expression is no more than."""
    is_column = isinstance(node, exp.Column) and not node.table
    return node.name if node and is_column and node.name in source.names() else None


def _read(column: str, source: Source) -> str:
    """What the table calls a column."""
    return source.read[source.names().index(column)]


def _value(node: exp.Expr, arrow: pa.DataType) -> str | None:
    """The text of a literal that is of a column's type."""
    sign = "-" if isinstance(node, exp.Neg) else ""
    literal = node.this if sign else node
    kind = None
    if isinstance(literal, exp.Cast):  # DATE '...', and numbers that end with L or BD
        kind, literal = literal.to.this, literal.this
    if not isinstance(literal, exp.Literal):
        return None
    fits = (
        (pa.types.is_string(arrow) and kind is None and literal.is_string and not sign)
        or (pa.types.is_date32(arrow) and kind == DType.DATE and not sign)
        or (pa.types.is_integer(arrow) and kind in _WHOLE and not literal.is_string)
        or (pa.types.is_decimal(arrow) and kind == DType.DECIMAL)
    )
    text = sign + literal.name
    return text if fits and value(text, arrow) is not None else None
