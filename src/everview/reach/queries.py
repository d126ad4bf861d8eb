"""Checks the text of a query: it must be one query, over known relations, of known clauses."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from sqlglot import exp

from everview.errors import OutOfReach
from everview.parsing import Statement
from everview.reach.tokens import (
    REMEDY,
    Kind,
    check_calls,
    line_and_column,
    tokens,
    without_comments,
)

# functions are checked by name, and operators only compute
_COMPUTING = (exp.Func, exp.Binary, exp.Unary, exp.Predicate)
_CLAUSES = (
    *(exp.Select, exp.From, exp.Where, exp.Group, exp.Having, exp.Qualify, exp.Order, exp.Ordered),
    *(exp.Limit, exp.Offset, exp.Fetch, exp.Distinct, exp.Cluster, exp.Distribute, exp.Sort),
    *(exp.Cube, exp.Rollup, exp.GroupingSets, exp.Join, exp.Lateral, exp.Table, exp.TableAlias),
    *(exp.Subquery, exp.Union, exp.Except, exp.Intersect, exp.With, exp.CTE, exp.Values, exp.Tuple),
    *(exp.TableSample, exp.Pivot, exp.PivotAlias, exp.UnpivotColumns, exp.Window, exp.WindowSpec),
    *(exp.Alias, exp.Aliases, exp.Column, exp.Identifier, exp.Star, exp.Var, exp.Literal, exp.Null),
    *(exp.Boolean, exp.HexString, exp.RawString, exp.National, exp.Interval, exp.IntervalSpan),
    *(exp.DataType, exp.DataTypeParam, exp.ColumnDef, exp.Bracket, exp.Lambda, exp.Between, exp.In),
    *(
        exp.Filter,
        exp.WithinGroup,
        exp.IgnoreNulls,
        exp.RespectNulls,
        exp.HavingMax,
        exp.AtTimeZone,
    ),
    *(exp.PropertyEQ, exp.Kwarg, exp.JSONPath, exp.JSONPathRoot, exp.JSONPathKey),
    *(exp.JSONPathSubscript, exp.JSONPathWildcard, exp.TimeUnit),
)
_OF_TABLES = {"this", "alias", "pivots", "sample", "joins", "laterals"}
_NO_NAMES = {"table", "stream", "values"}  # words that begin a relation of another kind


def check_query(text: str, relations: Collection[str]) -> str:
    """Check a query and return it without comments.

    Raises `OutOfReach` if it reads other relations than these, or calls a function that is not on
    the list. Raises `InvalidSql` if it has a syntax error.
    """
    words = tokens(text)
    plain = without_comments(text, words)
    words = [token for token in words if token.kind != Kind.COMMENT]
    statement = Statement(plain)
    quoted = {token.start for token in words if token.kind in (Kind.STRING, Kind.NAME)}
    parsed = statement.tokens
    if quoted != {part.start for part in parsed if _is_quoted(plain[part.start : part.end])}:
        raise OutOfReach(
            f"engines may read the strings and quoted names of the query differently. {REMEDY}"
        )
    tree = statement.tree
    if not isinstance(tree, exp.Query | exp.Values):
        raise OutOfReach(f"{statement.verb[:40]} begins no query. {REMEDY}")
    for node in tree.walk():
        _check_clause(plain, node)
    known = {name.lower() for name in relations}
    for table in tree.find_all(exp.Table):
        _check_relation(plain, table, known)
    check_calls(plain, words, {alias.this.meta.get("start") for alias in _with_columns(tree)})
    return plain


def _is_quoted(text: str) -> bool:
    return text.startswith(("'", '"', "`", "r'", 'r"', "R'", 'R"'))


def _check_clause(text: str, node: exp.Expr) -> None:
    if not isinstance(node, (*_COMPUTING, *_CLAUSES)) or isinstance(node, exp.Command):
        what = node.sql("spark")[:80]
        raise OutOfReach(f"{_place(text, node)}{what} can't be in a query. {REMEDY}")


def _check_relation(text: str, table: exp.Table, known: Collection[str]) -> None:
    if isinstance(table.this, exp.Func):
        if table.this.name.lower() == "identifier":
            raise OutOfReach(f"IDENTIFIER can't name a relation; write its name. {REMEDY}")
        return  # a function that returns rows
    place, name = _place(text, table.this), table.name.lower()
    more = [arg for arg, value in table.args.items() if value and arg not in _OF_TABLES]
    if more or not isinstance(table.this, exp.Identifier):
        raise OutOfReach(
            f"{place}{table.sql('spark')[:80]} is no table or view of this database; a relation is "
            f"named by one word. {REMEDY}"
        )
    is_word = not table.this.quoted and name in _NO_NAMES
    if is_word or (name not in known and name not in _visible(table)):
        raise OutOfReach(f"{place}there is no table or view {table.name}. {REMEDY}")


def _visible(table: exp.Expr) -> Iterator[str]:
    """The names that WITH clauses define at the place of a relation."""
    inner: exp.Expr | None = None
    node: exp.Expr | None = table
    while node is not None:
        if isinstance(node, exp.With):
            recursive, before = node.args.get("recursive"), True
            for cte in node.expressions:
                before = before and cte is not inner
                if before or (recursive and cte is inner):
                    yield cte.alias.lower()
        elif isinstance(with_ := node.args.get("with_"), exp.With) and with_ is not inner:
            yield from (cte.alias.lower() for cte in with_.expressions)
        inner, node = node, node.parent


def _with_columns(tree: exp.Expr) -> Iterator[Any]:
    """Aliases of relations that have a list of columns."""
    for alias in tree.find_all(exp.TableAlias):
        if alias.this is not None and alias.args.get("columns"):
            yield alias


def _place(text: str, node: exp.Expr) -> str:
    start = node.meta.get("start")
    return "" if start is None else f"{line_and_column(text, start)}: "
