"""Expressions that have a value for every row.

Work for many members at once computes an expression for rows that a query leaves out before. With
ANSI SQL it may fail there: `a / b` where b is 0, a text that is no number, an element that is not
there. Sums, differences and products count as sure, though numbers near the limit of their type
may overflow.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from everview.plan.expressions.forms import operation
from everview.plan.expressions.trees import Apply, Either, Lit, Ref, Tree

_PLACE = r"\{\d+\}"
_INFIX = r"\+|-|\*|=|<|<=|>|>=|<=>|LIKE|AND|OR"
_CALLS = (
    "coalesce|if|startswith|endswith|contains|substring|length|upper|lower|trim|concat|abs|isnull|"
    "isnotnull|year|month|quarter|dayofmonth|dayofweek|dayofyear|weekday|date_add|date_sub|"
    "datediff|floor|ceil|greatest|least|trunc|isnan"
)
_SURE = re.compile(
    rf"{_PLACE}|[^{{}}]*|{_PLACE}(?: (?:{_INFIX}) {_PLACE})+|-? ?{_PLACE}|NOT {_PLACE}"
    rf"|{_PLACE} IS (?:NOT )?NULL|{_PLACE} IN \({_PLACE}(?:, {_PLACE})*\)"
    rf"|(?:{_CALLS})\({_PLACE}(?:, (?:{_PLACE}|-?\d+|'\w*'))*\)"
    rf"|CASE(?: WHEN {_PLACE} THEN {_PLACE})+(?: ELSE {_PLACE})? END",
    re.IGNORECASE,
)
_NUMBER = r"DECIMAL\(\d+, ?\d+\)|DOUBLE|BIGINT|DATE|TIMESTAMP|TIMESTAMP_NTZ|STRING|INT"
_CAST = re.compile(rf"CAST\({_PLACE} AS (?:{_NUMBER})\)")


_TEXT = re.compile(r"(?:substring|upper|lower|trim|concat)\(.*", re.IGNORECASE)
_RESULTS = {"if": 1, "coalesce": 0, "greatest": 0, "least": 0}  # from which argument on


def is_sure(tree: Tree, texts: Collection[str]) -> bool:
    """Whether an expression has a value, or NULL, for every row; `texts` are columns of texts,
    which can't all be cast."""
    parts = [part for part in tree.walk(_of_spark) if isinstance(part, Apply)]
    return all(_is_sure_part(part, texts) for part in parts)


def _of_spark(tree: Tree) -> tuple[Tree, ...]:
    return (tree.spark,) if isinstance(tree, Either) else tree.parts()


def _is_sure_part(part: Apply, texts: Collection[str]) -> bool:
    form = operation(part)
    if _SURE.fullmatch(form) is not None:
        return True
    if form == "{0} / {1}":
        divisor = part.arguments[1]
        return isinstance(divisor, Lit) and re.search("[1-9]", divisor.text) is not None
    return _CAST.fullmatch(form) is not None and not _is_text(part.arguments[0], texts)


def _is_text(tree: Tree, texts: Collection[str]) -> bool:
    if isinstance(tree, Either):
        return _is_text(tree.spark, texts)
    if isinstance(tree, Ref):
        return tree.name in texts
    if not isinstance(tree, Apply):
        return isinstance(tree, Lit) and tree.type == "STRING"
    form, results = operation(tree), list[Tree]()
    if form.startswith("CASE "):
        results = [*tree.arguments[1::2], *tree.arguments[-1:]]
    elif (first := _RESULTS.get(form.partition("(")[0].lower())) is not None:
        results = list(tree.arguments[first:])
    return _TEXT.fullmatch(form) is not None or any(_is_text(part, texts) for part in results)
