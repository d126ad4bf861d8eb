"""Statements about views: CREATE MATERIALIZED VIEW, DROP VIEW, SHOW VIEWS, EXPLAIN, VERIFY."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from everview.errors import InUse, InvalidSql, TableExists, UnsupportedSql
from everview.plan.inline import inline_views
from everview.plan.keys import view_key
from everview.plan.nodes import node_of
from everview.plan.rules import improve
from everview.result import Result
from everview.sql.parsing import Statement

if TYPE_CHECKING:
    from everview.database import Database

# shards are called by numbers that the engines' hash partitioning spreads evenly over one, two or
# four partitions: hash(n) is 0, 1, 2 and 3 modulo 4
SHARDS = (12, 6, 2, 0)

CONSISTENCIES = ("strong", "complete")
_FORMS = (
    "of views there are CREATE MATERIALIZED VIEW name AS query, DROP VIEW name [CASCADE], "
    "SHOW VIEWS, EXPLAIN name, EXPLAIN CREATE MATERIALIZED VIEW ..., VERIFY name"
)


def is_about_views(statement: Statement) -> bool:
    words = [token.text.upper() for token in statement.tokens[:4]]
    if words[0] in ("EXPLAIN", "VERIFY"):
        return True
    named = "VIEW" in words[1:4] or "VIEWS" in words[1:3]
    return named and words[0] in ("CREATE", "DROP", "SHOW", "ALTER", "REFRESH")


def run(db: Database, statement: Statement) -> Result:
    words = [token.text.upper() for token in statement.tokens[:5]]
    if words[0] == "EXPLAIN":
        return _explain(db, statement, words)
    if words[0] == "VERIFY":
        return _verify(db, statement, words)
    if words[:3] == ["CREATE", "MATERIALIZED", "VIEW"]:
        return _create(db, statement)
    if words[:2] == ["DROP", "VIEW"] or words[:3] == ["DROP", "MATERIALIZED", "VIEW"]:
        return _drop(db, statement, words.index("VIEW") + 1)
    if words[:2] == ["SHOW", "VIEWS"]:
        return _show(db)
    raise InvalidSql(_FORMS)


def define(db: Database, statement: Statement) -> dict[str, Any]:
    """The document of the view that a CREATE MATERIALIZED VIEW would create; changes nothing."""
    from everview.run.engine import start
    from everview.sql.catalyst import translate

    tokens = statement.tokens
    words = [token.text.upper() for token in tokens[:5]]
    options, at = _options(statement) if words[4:5] == ["WITH"] else ({}, 4)
    begins = words[:3] == ["CREATE", "MATERIALIZED", "VIEW"] and len(tokens) > at + 1
    if not begins or tokens[at].text.upper() != "AS":
        raise InvalidSql("write CREATE MATERIALIZED VIEW name AS SELECT ...")
    name, query = tokens[3].text, statement.cut(at + 1)
    if name.lower() in {table.lower() for table in db.tables()}:
        raise TableExists(f"there is a table {name}; a view needs a name of its own")
    if db.store.document(f"view/{name.lower()}") is not None:
        raise TableExists(f"view {name} exists already; drop it first with DROP VIEW {name}")
    mentioned = {token.text.lower() for token in tokens[at + 1 :]}
    named = [table for table in db.tables() if table.lower() in mentioned]
    tables = {table: db.store.describe(table).columns for table in named}
    over = {
        view["name"]: view
        for view in db.store.documents("view/").values()
        if view["name"].lower() in mentioned
    }
    plans = {name: node_of(view["plan"]) for name, view in over.items()}
    relations = tables | {view: plan.columns for view, plan in plans.items()}
    found = translate(start("spark").session, query, relations)
    plan = improve(found.plan)
    views = sorted(plan.tables() & set(plans))
    plan = inline_views(plan, plans)
    return {
        "name": name,
        "sql": query,
        "plan": plan.text,
        "tables": sorted(plan.tables()),
        "widths": {table: len(columns) for table, columns in tables.items()},
        "views": views,
        "key": list(view_key(plan, lambda table: db.store.describe(table).key)),
        "order": [[by.column, by.descending, by.nulls_first] for by in found.order],
        "open": found.is_open or any(inner.get("open") for inner in over.values()),
        "consistency": options.get("consistency", CONSISTENCIES[0]),
        "shards": _shards(db),
        "states": {},
        "status": "new",
    }


def _options(statement: Statement) -> tuple[dict[str, str], int]:
    """The options in WITH (name = 'value', ...), and where the statement goes on."""
    words = [token.text for token in statement.tokens]
    end = words.index(")") if words[5:6] == ["("] and ")" in words else 6
    found: dict[str, str] = {}
    for start, stop in statement.pieces(6, end):
        name, equals, value = (*words[start:stop], "", "", "")[:3]
        known = name.lower() == "consistency" and equals == "=" and value in CONSISTENCIES
        if stop - start != 3 or not known:
            raise InvalidSql(
                f"a view has no option {statement.cut(start, stop) or '()'}; write WITH "
                "(consistency = 'strong'), which is the default, or WITH (consistency = 'complete')"
            )
        found["consistency"] = value
    return found, end + 1


def _shards(db: Database) -> list[int]:
    """Those of the other views, since views share state; for the first, one for each core."""
    for view in db.store.documents("view/").values():
        return list(view["shards"])
    cores = os.cpu_count() or 1
    return list(SHARDS[:cores] if cores < 3 else SHARDS)


def _create(db: Database, statement: Statement) -> Result:
    view = define(db, statement)
    db.store.store_documents({f"view/{view['name'].lower()}": view})
    over = ", ".join([*view["tables"], *view["views"]]) or "constants"
    return Result(message=f"view {view['name']} created over {over}; maintain() loads it")


def _explain(db: Database, statement: Statement, words: list[str]) -> Result:
    if words[1:4] == ["CREATE", "MATERIALIZED", "VIEW"]:
        return Result(message=str(db.explain(statement.cut(1))))
    return Result(message=str(db.explain(_name(statement, words))))


def _verify(db: Database, statement: Statement, words: list[str]) -> Result:
    verdict = db.verify(_name(statement, words))
    if verdict.equal:
        return Result(message=str(verdict), count=0)
    rows = [
        (what, count, ", ".join(row))
        for what, rows in (("missing", verdict.missing), ("extra", verdict.extra))
        for row, count in rows.items()
    ]
    whats, counts, shown = zip(*rows, strict=True)
    return Result(pa.table({"difference": whats, "times": counts, "row": shown}), str(verdict))


def _name(statement: Statement, words: list[str]) -> str:
    """The view in EXPLAIN [VIEW] name or VERIFY [VIEW] name."""
    at = 2 if words[1:2] == ["VIEW"] and len(statement.tokens) > 2 else 1
    if len(statement.tokens) == at + 1:
        return statement.tokens[at].text
    if words[0] == "VERIFY":
        raise InvalidSql("write VERIFY name, with the name of a view")
    raise UnsupportedSql(
        "EXPLAIN takes the name of a view; to see how a query would be maintained, write "
        "EXPLAIN CREATE MATERIALIZED VIEW name AS SELECT ..."
    )


def _drop(db: Database, statement: Statement, at: int) -> Result:
    from everview.run.maintainer import forget_views

    name, cascade = _dropped(db, statement, at)
    if name is None:
        return Result(message="there was no such view")
    gone = [name, *views_over(db, name)]
    if len(gone) > 1 and not cascade:
        raise InUse(
            f"view {name} is read by view {', '.join(gone[1:])}; drop all of them with DROP VIEW "
            f"{name} CASCADE"
        )
    forget_views(db.store, gone)
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


def views_over(db: Database, name: str) -> list[str]:
    """The views that read a view, directly or through others."""
    views = db.store.documents("view/").values()
    direct = [view["name"] for view in views if name in view.get("views", ())]
    further = [one for view in direct for one in views_over(db, view)]
    return list(dict.fromkeys([*direct, *further]))


def _show(db: Database) -> Result:
    views = [view for _, view in sorted(db.store.documents("view/").items())]
    columns = {
        "view": pa.array([view["name"] for view in views], pa.string()),
        "status": pa.array([view["status"] for view in views], pa.string()),
        "consistency": pa.array([view["consistency"] for view in views], pa.string()),
        "query": pa.array([view["sql"] for view in views], pa.string()),
        "error": pa.array([view.get("error") for view in views], pa.string()),
    }
    return Result(pa.table(columns))
