"""One SQL statement: what kind it is and who does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlglot import exp

from everview.errors import InvalidSql, UnsupportedSql, meant
from everview.result import Result
from everview.sql import views
from everview.sql.definitions import alter, create, describe, drop, show
from everview.sql.parsing import Statement, split
from everview.sql.queries import evaluate, views_of
from everview.sql.writes import delete, insert, update

if TYPE_CHECKING:
    from everview.database import Database

SUPPORTED = (
    "CREATE TABLE, ALTER TABLE, DROP TABLE, DESCRIBE, SHOW TABLES, INSERT INTO, UPDATE, "
    "DELETE FROM, SELECT, CREATE MATERIALIZED VIEW, DROP VIEW, SHOW VIEWS, EXPLAIN, VERIFY"
)


def run(db: Database, statement: str) -> Result:
    """Run one statement. Raises `SqlError`, `CatalogError` or `DataError`; then nothing changed."""
    found = only(statement)
    if views.is_about_views(found):
        return views.run(db, found)
    runner = _RUNNERS.get(found.verb)
    if runner is None:
        raise _refusal(found)
    return runner(db, found)


def only(text: str) -> Statement:
    """The one statement of a text. Raises `InvalidSql` if there are none or more."""
    if not isinstance(text, str):
        raise InvalidSql(f"a statement must be text, not {type(text).__name__}")
    statements = split(text)
    if not statements:
        raise InvalidSql(f"there is no statement; supported: {SUPPORTED}")
    if len(statements) > 1:
        raise InvalidSql(
            f"{len(statements)} statements instead of one; run them one by one "
            "(everview.sql.split takes a script apart)"
        )
    return Statement(statements[0])


def _select(db: Database, statement: Statement) -> Result:
    if isinstance(statement.tree, exp.Insert):  # WITH ... INSERT
        return insert(db, statement)
    if not isinstance(statement.tree, exp.Query | exp.Values):
        raise UnsupportedSql(f"{statement.verb} begins a query only; supported: {SUPPORTED}")
    rows = evaluate(db, statement.text)
    notes = [view.note for view in views_of(db, statement)]
    return Result(rows, "\n".join(filter(None, notes)))


def _refusal(statement: Statement) -> InvalidSql | UnsupportedSql:
    verb = statement.verb
    if verb in _REFUSED:
        return UnsupportedSql(f"{verb} is not supported; supported: {SUPPORTED}")
    first = statement.tokens[0]
    return InvalidSql(
        f"line {first.line}, column 1: no statement begins with {verb[:40]}; "
        f"{meant(verb, _RUNNERS)}supported: {SUPPORTED}"
    )


_RUNNERS: dict[str, Callable[[Database, Statement], Result]] = {
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
