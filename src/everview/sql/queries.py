"""Queries: which tables and columns they read, and their evaluation by the engine."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from everview.errors import InvalidSql
from everview.parsing import Statement
from everview.reach import check_query
from everview.sql.context import Context
from everview.view import View, read_together

_UNRESOLVED = ("UNRESOLVED_COLUMN", "cannot resolve attribute")  # as Spark and Sail say it


def evaluate(context: Context, query: str) -> pa.Table:
    """The rows of a query, by the engine, which reads only the columns the query names."""
    statement = Statement(query)
    names = _table_names(context, statement.tree)
    views = views_of(context, statement)
    known = {view.name.lower() for view in views}
    tables = reads(context, statement, [name for name in names if name.lower() not in known])
    query = check_query(query, [*tables, *known])
    rows = read_together(views)
    try:
        return context.engine.select(context.store.address, query, tables, rows)
    except InvalidSql as error:
        if not any(words in str(error) for words in _UNRESOLVED):
            raise
        # the column may exist, as in IDENTIFIER('name'); if not, the engine names those that do
        return context.engine.select(context.store.address, query, dict.fromkeys(tables), rows)


def views_of(context: Context, statement: Statement) -> list[View]:
    """The views that a query reads."""
    known = {view.lower() for view in context.views()}
    names = dict.fromkeys(_table_names(context, statement.tree))
    return [context.view(name) for name in names if name.lower() in known]


def reads(context: Context, statement: Statement, names: list[str]) -> dict[str, list[str] | None]:
    """The named tables, each with the columns the query needs, None for all.

    A column is read if its name occurs anywhere in the query; that is safe and hardly ever more
    than needed.
    """
    words = {
        token.text.lower()
        for token in statement.tokens
        if token.token_type not in (TokenType.STRING, TokenType.NUMBER)
    }
    everything = _needs_every_column(statement.tree)
    columns: dict[str, list[str] | None] = {}
    for name in names:
        schema = context.store.describe(name)
        needed = [c for c in schema.names if c.lower() in words or c == schema.key[0]]
        columns[schema.name] = None if everything else needed
    return columns


def _table_names(context: Context, tree: exp.Expr) -> list[str]:
    """Names of tables the query refers to, without those of its own WITH clauses."""
    known = {name.lower() for name in [*context.tables(), *context.views()]}
    own = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    names = [
        table.name
        for table in tree.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier) and not table.args.get("db")
    ]
    return [name for name in names if name.lower() in known or name.lower() not in own]


def _needs_every_column(tree: exp.Expr) -> bool:
    starred = any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star))
    natural = any(join.method == "NATURAL" for join in tree.find_all(exp.Join))
    return starred or natural or tree.find(exp.Pivot) is not None
