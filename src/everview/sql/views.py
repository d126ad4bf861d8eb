"""Statements about views: CREATE, ALTER and DROP VIEW, SHOW VIEWS, EXPLAIN, VERIFY."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from everview.errors import InUse, InvalidSql, UnsupportedSql
from everview.result import Result
from everview.sql.creating import create, rename, views_over
from everview.sql.creation import OPTIONS, Definition
from everview.sql.parsing import Statement

if TYPE_CHECKING:
    from everview.database import Database

_FORMS = (
    "the statements about views are CREATE [OR REPLACE] MATERIALIZED VIEW name [(column, ...)] AS "
    "query, ALTER VIEW name RENAME TO other, DROP VIEW name [CASCADE], SHOW VIEWS, EXPLAIN "
    "[ANALYZE] name, EXPLAIN CREATE MATERIALIZED VIEW ..., VERIFY name"
)


def is_about_views(statement: Statement) -> bool:
    words = [token.text.upper() for token in statement.tokens[:5]]
    if words[0] in ("EXPLAIN", "VERIFY"):
        return True
    words = [word for word in words if word not in ("OR", "REPLACE", "MATERIALIZED")]
    named = words[1:2] in (["VIEW"], ["VIEWS"])
    return named and words[0] in ("CREATE", "DROP", "SHOW", "ALTER", "REFRESH")


def run(db: Database, statement: Statement) -> Result:
    words = [token.text.upper() for token in statement.tokens[:5]]
    if words[0] == "EXPLAIN":
        return _explain(db, statement, words)
    if words[0] == "VERIFY":
        return _verify(db, statement, words)
    if words[0] == "CREATE":
        return create(db, statement)
    named = words.index("VIEW") + 1 if "VIEW" in words else 0
    if words[0] == "DROP" and named:
        return _drop(db, statement, named)
    if words[0] == "ALTER" and named:
        return rename(db, statement, named)
    if words[:2] == ["SHOW", "VIEWS"]:
        return _show(db)
    raise InvalidSql(_FORMS)


def _explain(db: Database, statement: Statement, words: list[str]) -> Result:
    analyze = words[1:2] == ["ANALYZE"] and len(statement.tokens) > 2
    at = 1 + analyze
    if words[at : at + 1] == ["CREATE"] and is_about_views(Statement(statement.cut(at))):
        return Result(message=db.explain(statement.cut(at), analyze=analyze))
    return Result(message=db.explain(_name(statement, words, at), analyze=analyze))


def _verify(db: Database, statement: Statement, words: list[str]) -> Result:
    verdict = db.verify(_name(statement, words))
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


def _drop(db: Database, statement: Statement, at: int) -> Result:
    from everview.run.maintainer import alone, forget_views

    name, cascade = _dropped(db, statement, at)
    if name is None:
        return Result(message="there is no such view")
    with alone(db.store) as token:  # so that nobody plans another over them
        gone = [name, *views_over(db, name)]
        if len(gone) > 1 and not cascade:
            raise InUse(
                f"view {name} is read by view {', '.join(gone[1:])}; drop all of them with DROP "
                f"VIEW {name} CASCADE"
            )
        forget_views(db.store, gone, token)
    return Result(message=f"view{'s' * (len(gone) > 1)} {', '.join(gone)} dropped")


def _dropped(db: Database, statement: Statement, at: int) -> tuple[str | None, bool]:
    """The view that DROP VIEW [IF EXISTS] name [CASCADE] names, None if it may be missing and is;
    and whether those go too that read it."""
    words = [token.text for token in statement.tokens]
    upper = [word.upper() for word in words]
    lenient = upper[at : at + 2] == ["IF", "EXISTS"]
    at += 2 * lenient
    cascade = upper[at + 1 :] == ["CASCADE"]
    if at >= len(words) or (len(words) > at + 1 and not cascade):
        raise InvalidSql("write DROP VIEW [IF EXISTS] name [CASCADE]")
    if lenient and words[at].lower() not in {view.lower() for view in db.views()}:
        return None, cascade
    return db.view(words[at]).name, cascade


def _show(db: Database) -> Result:
    views = [view for _, view in sorted(db.store.documents("view/").items())]
    definitions = list(map(Definition.of, views))
    columns = {
        "view": pa.array([view["name"] for view in views], pa.string()),
        "status": pa.array([view["status"] for view in views], pa.string()),
        "consistency": pa.array([view["consistency"] for view in views], pa.string()),
        "refresh": pa.array([OPTIONS["refresh"][d.is_full] for d in definitions], pa.string()),
        "query": pa.array([one.query for one in definitions], pa.string()),
        "error": pa.array([view.get("error") for view in views], pa.string()),
    }
    return Result(pa.table(columns))
