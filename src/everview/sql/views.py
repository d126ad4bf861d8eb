"""Statements about views: CREATE, ALTER and DROP VIEW, SHOW VIEWS, EXPLAIN, VERIFY."""

from __future__ import annotations

import pyarrow as pa

from everview.catalog import VIEWS
from everview.check.verify import verify
from everview.errors import InUse, InvalidSql, UnsupportedSql
from everview.explain.plan import as_text
from everview.maintain.views import forget_views, maintenance_paused
from everview.parsing import Statement
from everview.results.result import Result
from everview.sql.alike import create_views
from everview.sql.context import Context
from everview.sql.create_view import OPTIONS
from everview.sql.explaining import explain
from everview.sql.families import tables_of_members
from everview.sql.named_members import drop_member
from everview.sql.planning import rename, views_over

_FORMS = (
    "the statements about views are CREATE [OR REPLACE] MATERIALIZED VIEW name "
    "[(column, ...) or (parameter TYPE, ...)] AS query, ALTER VIEW name RENAME TO other, "
    "DROP VIEW name [CASCADE], SHOW VIEWS, EXPLAIN [ANALYZE] name, "
    "EXPLAIN CREATE MATERIALIZED VIEW ..., VERIFY name"
)


def is_about_views(statement: Statement) -> bool:
    words = [token.text.upper() for token in statement.tokens[:5]]
    if words[0] in ("EXPLAIN", "VERIFY"):
        return True
    words = [word for word in words if word not in ("OR", "REPLACE", "MATERIALIZED")]
    named = words[1:2] in (["VIEW"], ["VIEWS"])
    return named and words[0] in ("CREATE", "DROP", "SHOW", "ALTER", "REFRESH")


def run(context: Context, statement: Statement) -> Result:
    words = [token.text.upper() for token in statement.tokens[:5]]
    if words[0] == "EXPLAIN":
        return _explain(context, statement, words)
    if words[0] == "VERIFY":
        return _verify(context, statement, words)
    if words[0] == "CREATE":
        return next(create_views(context, [statement]))
    named = words.index("VIEW") + 1 if "VIEW" in words else 0
    if words[0] == "DROP" and named:
        return _drop(context, statement, named)
    if words[0] == "ALTER" and named:
        return rename(context, statement, named)
    if words[:2] == ["SHOW", "VIEWS"]:
        return _show(context)
    raise InvalidSql(_FORMS)


def _explain(context: Context, statement: Statement, words: list[str]) -> Result:
    analyze = words[1:2] == ["ANALYZE"] and len(statement.tokens) > 2
    at = 1 + analyze
    if words[at : at + 1] == ["CREATE"] and is_about_views(Statement(statement.cut(at))):
        return Result(message=as_text(explain(context, statement.cut(at), analyze)))
    return Result(message=as_text(explain(context, _name(statement, words, at), analyze)))


def _verify(context: Context, statement: Statement, words: list[str]) -> Result:
    verdict = verify(context.store, context.engines.planner, _name(statement, words))
    if verdict.equal:
        return Result(message=str(verdict), count=0)
    rows = [
        (what, count, ", ".join(row))
        for what, rows in (("missing", verdict.missing), ("extra", verdict.extra))
        for row, count in rows.items()
    ]
    whats, counts, texts = zip(*rows, strict=True)
    return Result(pa.table({"difference": whats, "times": counts, "row": texts}), str(verdict))


def _name(statement: Statement, words: list[str], at: int = 1) -> str:
    """The view in EXPLAIN [ANALYZE] [VIEW] name or VERIFY [VIEW] name."""
    at += words[at : at + 1] == ["VIEW"] and len(statement.tokens) > at + 1
    if len(statement.tokens) == at + 1:
        return statement.tokens[at].text
    if words[0] == "VERIFY":
        raise InvalidSql("write VERIFY name, with the name of a view")
    raise UnsupportedSql(
        "EXPLAIN takes the name of a view; to see how a query would be maintained, write "
        "EXPLAIN CREATE MATERIALIZED VIEW name AS SELECT ..."
    )


def _drop(context: Context, statement: Statement, at: int) -> Result:
    name, cascade = _dropped(context, statement, at)
    if name is None:
        return Result(message="there is no such view")
    with maintenance_paused(context.store) as token:  # so that nobody plans a view over them
        gone = [name, *views_over(context, name)]
        if len(gone) > 1 and not cascade:
            raise InUse(
                f"view {name} is read by view {', '.join(gone[1:])}; drop all of them with DROP "
                f"VIEW {name} CASCADE"
            )
        own = [one for one in gone if context.store.catalog.get(VIEWS[one]) is not None]
        tables = tables_of_members(context, own)
        for view in gone:
            drop_member(context, view, token)
        forget_views(context.store, own, token)
        for table in tables:
            context.store.drop_table(table)
    return Result(message=f"view{'s' * (len(gone) > 1)} {', '.join(gone)} dropped")


def _dropped(context: Context, statement: Statement, at: int) -> tuple[str | None, bool]:
    """The view in DROP VIEW [IF EXISTS] name [CASCADE], None if it is missing and may be; and
    whether to drop the views that read it."""
    words = [token.text for token in statement.tokens]
    upper = [word.upper() for word in words]
    lenient = upper[at : at + 2] == ["IF", "EXISTS"]
    at += 2 * lenient
    cascade = upper[at + 1 :] == ["CASCADE"]
    if at >= len(words) or (len(words) > at + 1 and not cascade):
        raise InvalidSql("write DROP VIEW [IF EXISTS] name [CASCADE]")
    if lenient and words[at].lower() not in {view.lower() for view in context.views()}:
        return None, cascade
    return context.view(words[at]).name, cascade


def _show(context: Context) -> Result:
    views = [context.view(name) for name in context.views()]
    columns = {
        "view": pa.array([view.name for view in views], pa.string()),
        "status": pa.array([view.status for view in views], pa.string()),
        "consistency": pa.array([view.consistency for view in views], pa.string()),
        "refresh": pa.array([OPTIONS["refresh"][view.is_full] for view in views], pa.string()),
        "query": pa.array([view.sql for view in views], pa.string()),
        "error": pa.array([view.error for view in views], pa.string()),
    }
    return Result(pa.table(columns))
