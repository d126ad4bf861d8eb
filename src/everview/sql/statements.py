"""Runs one SQL statement, by its kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from sqlglot import exp

from everview.errors import InvalidSql, UnsupportedSql, suggestion
from everview.parsing import SUPPORTED, Statement, only, split
from everview.results.result import Result
from everview.sql import views
from everview.sql.alike import create_views
from everview.sql.context import Context
from everview.sql.definitions import alter, create, describe, drop, show
from everview.sql.queries import evaluate, views_of
from everview.sql.writes import delete, insert, update


def run(context: Context, statement: str) -> Result:
    """Run one statement. Raises `SqlError`, `CatalogError` or `DataError`; then nothing changed."""
    parsed = only(statement)
    if views.is_about_views(parsed):
        return views.run(context, parsed)
    runner = _RUNNERS.get(parsed.verb)
    if runner is None:
        raise _refusal(parsed)
    return runner(context, parsed)


def batches(script: str | Sequence[str]) -> Iterator[list[str]]:
    """The statements of a script, one by one; those in a row that create views are one batch."""
    statements = split(script) if isinstance(script, str) else script
    for are_creations, group in groupby(statements, lambda text: _creates_view(only(text))):
        if are_creations:
            yield list(group)
        else:
            yield from ([statement] for statement in group)


def run_script(context: Context, script: str | Sequence[str]) -> Iterator[Result]:
    """Run statements one after the other. The results of those in a row that create views come
    when all of them are run."""
    for batch in batches(script):
        if len(batch) > 1:
            yield from create_views(context, list(map(only, batch)))
        else:
            yield run(context, batch[0])


def _creates_view(statement: Statement) -> bool:
    return views.is_about_views(statement) and statement.verb == "CREATE"


def _select(context: Context, statement: Statement) -> Result:
    if isinstance(statement.tree, exp.Insert):  # WITH ... INSERT
        return insert(context, statement)
    if not isinstance(statement.tree, exp.Query | exp.Values):
        raise UnsupportedSql(f"{statement.verb} begins a query only; supported: {SUPPORTED}")
    rows = evaluate(context, statement.text)
    notes = [view.note for view in views_of(context, statement)]
    return Result(rows, "\n".join(filter(None, notes)))


def _refusal(statement: Statement) -> InvalidSql | UnsupportedSql:
    verb = statement.verb
    if verb in _REFUSED:
        return UnsupportedSql(f"{verb} is not supported; supported: {SUPPORTED}")
    first = statement.tokens[0]
    return InvalidSql(
        f"line {first.line}, column 1: no statement begins with {verb[:40]}; "
        f"{suggestion(verb, _RUNNERS)}supported: {SUPPORTED}"
    )


_RUNNERS: dict[str, Callable[[Context, Statement], Result]] = {
    "CREATE": create,
    "ALTER": alter,
    "DROP": drop,
    "DESCRIBE": describe,
    "DESC": describe,
    "SHOW": show,
    "INSERT": insert,
    "UPDATE": update,
    "DELETE": delete,
    "SELECT": _select,
    "WITH": _select,
    "VALUES": _select,
    "FROM": _select,
}
_REFUSED = {
    *("ANALYZE", "BEGIN", "CACHE", "CALL", "COMMENT", "COMMIT", "COPY"),
    *("DECLARE", "EXECUTE", "GRANT", "LOAD", "MERGE", "OPTIMIZE", "REFRESH"),
    *("REPLACE", "RESET", "REVOKE", "ROLLBACK", "SET", "TABLE", "TRUNCATE", "UNCACHE"),
    *("USE", "VACUUM"),
}
