"""Statements about views: CREATE MATERIALIZED VIEW, DROP VIEW, SHOW VIEWS."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pyarrow as pa

from everview.errors import InvalidSql, TableExists
from everview.plan.keys import view_key
from everview.plan.nodes import Aggregate
from everview.plan.rules import improve
from everview.result import Result
from everview.sql.parsing import Statement

if TYPE_CHECKING:
    from everview.database import Database

SHARDS = 4


def is_about_views(statement: Statement) -> bool:
    words = [token.text.upper() for token in statement.tokens[:4]]
    return "VIEW" in words[1:4] or "VIEWS" in words[1:3]


def run(db: Database, statement: Statement) -> Result:
    words = [token.text.upper() for token in statement.tokens[:5]]
    if words[:3] == ["CREATE", "MATERIALIZED", "VIEW"]:
        return _create(db, statement)
    if words[:2] == ["DROP", "VIEW"] or words[:3] == ["DROP", "MATERIALIZED", "VIEW"]:
        return _drop(db, statement, words.index("VIEW") + 1)
    if words[:2] == ["SHOW", "VIEWS"]:
        return _show(db)
    raise InvalidSql(
        "of views there are CREATE MATERIALIZED VIEW name AS query, DROP VIEW name, SHOW VIEWS"
    )


def _create(db: Database, statement: Statement) -> Result:
    from everview.run.engine import start
    from everview.sql.catalyst import translate

    tokens = statement.tokens
    if len(tokens) < 6 or tokens[4].text.upper() != "AS":
        raise InvalidSql("write CREATE MATERIALIZED VIEW name AS SELECT ...")
    name, query = tokens[3].text, statement.cut(5)
    if name.lower() in {table.lower() for table in db.tables()}:
        raise TableExists(f"there is a table {name}; a view needs a name of its own")
    if db.store.document(f"view/{name.lower()}") is not None:
        raise TableExists(f"view {name} exists already; drop it first with DROP VIEW {name}")
    schemas = [db.store.describe(table) for table in db.tables()]
    plan = improve(translate(start("spark").session, query, schemas))
    key = view_key(plan, lambda table: db.store.describe(table).key)
    state = uuid.uuid4().hex[:12]
    operators = sum(isinstance(node, Aggregate) for node in plan.walk())
    for part in [*range(1, operators + 1), "view"]:
        for shard in range(SHARDS):
            db.store.shard(f"{state}/{part}", shard, create=True)
    document = {
        "name": name,
        "sql": query,
        "plan": plan.to_json(),
        "key": list(key),
        "state": state,
        "shards": SHARDS,
        "status": "new",
    }
    db.store.store_documents({f"view/{name.lower()}": document})
    tables = ", ".join(sorted(plan.tables()))
    return Result(message=f"view {name} created over {tables}; maintain() loads it")


def _drop(db: Database, statement: Statement, at: int) -> Result:
    from everview.run.maintainer import forget_view

    if at >= len(statement.tokens):
        raise InvalidSql("write DROP VIEW name")
    name = db.view(statement.tokens[at].text).name
    db.store.drop_state(forget_view(db.store, name))
    return Result(message=f"view {name} dropped")


def _show(db: Database) -> Result:
    views = [view for _, view in sorted(db.store.documents("view/").items())]
    columns = {
        "view": pa.array([view["name"] for view in views], pa.string()),
        "status": pa.array([view["status"] for view in views], pa.string()),
        "query": pa.array([view["sql"] for view in views], pa.string()),
    }
    return Result(pa.table(columns))
