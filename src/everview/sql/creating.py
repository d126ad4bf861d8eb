"""CREATE [OR REPLACE] VIEW and ALTER VIEW ... RENAME TO.

A view's document contains its plan, and that plan contains the plans of the views that it reads.
So when a view is replaced, Everview also plans and replaces the views that read it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

from everview.advice import how_to_maintain
from everview.errors import InUse, InvalidSql, SqlError, TableExists, UnsupportedSql
from everview.intake.explain import shown
from everview.plan.facts import Facts, TableFacts
from everview.plan.inline import inline_views
from everview.plan.jobs import jobs
from everview.plan.keys import view_key
from everview.plan.nodes import Node, node_of
from everview.plan.rules import improve
from everview.result import Result
from everview.schema import LONGEST_NAME, check_visible
from everview.sql.creation import Creation, Definition
from everview.sql.parsing import Statement

if TYPE_CHECKING:
    from everview.database import Database

# shards are called by numbers that the engines' hash partitioning spreads evenly over one, two or
# four partitions: hash(n) is 0, 1, 2 and 3 modulo 4
MOST_AT_ONCE = 500  # with a thousand, Sail takes all threads and memory there are
SHARDS = (12, 6, 2, 0)

Document = dict[str, Any]


def create(db: Database, statement: Statement) -> Result:
    creation = Creation.of(statement)
    _check_name(creation.name)
    while True:
        try:
            return _created(db, creation)
        except TableExists:
            # another may have created it while this one was planned
            came = db.store.document(f"view/{creation.name.lower()}") is not None
            if not came or not (creation.replaces or creation.lenient):
                raise


def _created(db: Database, creation: Creation) -> Result:
    key = f"view/{creation.name.lower()}"
    if creation.lenient and db.store.document(key) is not None:
        return Result(message=f"view {creation.name} exists already")
    with _others_waiting(db, creation) as token:
        view = define(db, creation)
        over = ", ".join([*view["tables"], *view["views"].values()]) or "constants"
        if token is None or not creation.replaces or db.store.document(key) is None:
            db.store.store_views({key: view}, token, created=view["name"])
            return Result(
                message=f"view {view['name']} created over {over}; {how_to_maintain()} loads it"
            )
        changed = _with_readers(db, view)
        _replace(db, changed, token)
    readers = list(changed)[1:]
    others = f", and with it {', '.join(readers)}" if readers else ""
    return Result(
        message=f"view {view['name']} will be replaced{others}, over {over}; {how_to_maintain()} "
        "loads the new definition and puts it in place"
    )


def _check_name(name: str) -> None:
    check_visible("view", name)
    if not 1 <= len(name.encode()) <= LONGEST_NAME:
        raise InvalidSql(f"{shown(name)} can't be the name of a view; use 1 to 255 bytes")


@contextmanager
def _others_waiting(db: Database, creation: Creation) -> Iterator[int | None]:
    """Keep other processes from changing the views that this view reads, or that read it.

    Gives the token of the lease. A view over tables only waits for nobody and gives None.
    """
    from everview.run.engine import start
    from everview.run.maintainer import alone

    views = {view.lower() for view in db.views()}
    changes = creation.replaces and creation.name.lower() in views
    if changes or views & creation.definition.mentioned:
        start("spark")  # it takes long
        with alone(db.store) as token:
            yield token
    else:
        yield None


def define(db: Database, creation: Creation) -> Document:
    """Plan the view of a CREATE statement and return its document; changes nothing."""
    name = creation.name
    if name.lower() in {table.lower() for table in db.tables()}:
        raise TableExists(f"there is a table {name}; a view needs a name of its own")
    there = db.store.document(f"view/{name.lower()}")
    if there is not None and not creation.replaces:
        raise TableExists(
            f"view {name} exists already; write CREATE OR REPLACE MATERIALIZED VIEW {name}, or "
            f"drop it first with DROP VIEW {name}"
        )
    views = {
        view["name"]: view
        for view in db.store.documents("view/").values()
        if view["name"].lower() in creation.definition.mentioned
    }
    name = name if there is None else there["name"]
    try:
        found = _planned(db, creation.definition, views)
    except RecursionError:
        raise UnsupportedSql(
            f"view {name} nests too many joins or subqueries to be planned; use fewer of them"
        ) from None
    _check_readable(db, name, found["views"].values())
    return {"name": name, "consistency": creation.consistency, **found}


def _planned(db: Database, definition: Definition, views: Mapping[str, Document]) -> Document:
    """Plan a definition and return that part of the view's document.

    `views` maps the names in the query to the documents of the views that it reads.
    """
    from everview.run.engine import start
    from everview.sql.catalyst import translate

    mentioned = definition.mentioned - {view.lower() for view in views}
    named = [table for table in db.tables() if table.lower() in mentioned]
    tables = {table: db.store.describe(table).columns for table in named}
    plans = {view: node_of(document["plan"]) for view, document in views.items()}
    relations = tables | {view: plan.columns for view, plan in plans.items()}
    given = definition.query, relations, definition.columns, definition.is_full
    found = translate(start("spark").session, *given)
    over = {view: views[view] for view in sorted(found.plan.tables() & set(views))}
    if definition.is_full and over:
        raise UnsupportedSql(
            f"a view WITH (refresh = 'full') can read tables only, not the view "
            f"{next(iter(over))}; put the query of that view into a WITH clause instead"
        )
    asked = inline_views(found.plan, plans)
    improved = found.plan if definition.is_full else _improved(db, found.plan, named)
    plan = inline_views(improved, plans)
    _check_size(plan)
    for column in found.plan.columns:
        check_visible("column", column.name)
    return {
        **definition.to_document(),
        "plan": plan.text,
        "tables": sorted(asked.tables()),
        "widths": {table: len(columns) for table, columns in tables.items()},
        "views": {view: document["name"] for view, document in over.items()},
        "key": list(view_key(asked, lambda table: db.store.describe(table).key)),
        "order": [[by.column, by.descending, by.nulls_first] for by in found.order],
        "open": found.is_open or any(inner["open"] for inner in over.values()),
        "shards": _shards(db),
        "states": {},
        "status": "new",
    }


def _check_size(plan: Node) -> None:
    """Refuse a plan that would run too many operators at once.

    All parts of a UNION are in one job, and an engine runs the whole job at once.
    """
    size = jobs([plan]).largest
    if size > MOST_AT_ONCE:
        raise UnsupportedSql(
            f"an epoch of this view would run {size:,} operators at once, and the limit is "
            f"{MOST_AT_ONCE}; use fewer parts in its UNIONs, and count all that each part reads"
        )


def _improved(db: Database, plan: Node, tables: Iterable[str]) -> Node:
    from everview.run.estimating import costs_for

    schemas = {table: db.store.describe(table) for table in tables}
    known = {t: TableFacts(schema.key, schema.append_only) for t, schema in schemas.items()}
    costs = costs_for(db.store, db.engine_name, plan, len(_shards(db)))
    return improve(plan, Facts(known, costs))


def _check_readable(db: Database, name: str, over: Iterable[str]) -> None:
    """Refuse a view that reads itself, or a view that is being replaced."""
    readers = [name, *views_over(db, name)]
    for view in over:
        if view in readers:
            raise UnsupportedSql(f"view {name} would read itself, through view {view}")
        if db.store.document(f"replacement/{view.lower()}") is not None:
            raise InUse(
                f"view {view} is being replaced; {how_to_maintain()} puts its new definition in "
                "place, then try again"
            )


def _shards(db: Database) -> list[int]:
    """The shards of the other views, since views share state; the first view gets one per core."""
    for view in db.store.documents("view/").values():
        return list(view["shards"])
    cores = os.cpu_count() or 1
    return list(SHARDS[:cores] if cores < 3 else SHARDS)


def views_over(db: Database, name: str) -> list[str]:
    """The views that read a view, directly or through others, each after those it reads."""
    views = {view["name"]: view for view in db.store.documents("view/").values()}
    over = {view: set(document["views"].values()) for view, document in views.items()}
    found = [name]
    for view in TopologicalSorter(over).static_order():
        if not over.get(view, set()).isdisjoint(found):
            found.append(view)
    return found[1:]


def _with_readers(db: Database, view: Document) -> dict[str, Document]:
    """The documents of the view and of the views that read it, planned again."""
    views = {one["name"]: one for one in db.store.documents("view/").values()}
    changed = {view["name"]: view}
    for name in views_over(db, view["name"]):
        old = views[name]
        over = {called: (views | changed)[inner] for called, inner in old["views"].items()}
        try:
            found = _planned(db, Definition.of(old), over)
        except SqlError as error:
            raise InvalidSql(
                f"view {name} reads {view['name']} and would fail: {error}; nothing was changed. "
                f"Drop it first with DROP VIEW {name}, or keep the columns it reads"
            ) from error
        changed[name] = {"name": name, "consistency": old["consistency"], **found}
    return changed


def _replace(db: Database, views: Mapping[str, Document], token: int | None) -> None:
    """Store new definitions beside the old ones; the maintainer loads them and swaps them all."""
    from everview.stores.embedded.pinned import is_loaded

    root = next(iter(views))
    changes: dict[str, Document | None] = {}
    for name, view in views.items():
        old = db.store.document(f"view/{name.lower()}")
        assert old is not None
        beside = is_loaded(old)
        changes[f"replacement/{name.lower()}"] = view | {"root": root} if beside else None
        if not beside:
            changes[f"view/{name.lower()}"] = view
    db.store.store_views(changes, token)


def rename(db: Database, statement: Statement, at: int) -> Result:
    """ALTER VIEW name RENAME TO other; those that read the view go on reading it."""
    from everview.run.maintainer import alone

    words = [token.text for token in statement.tokens]
    if [word.upper() for word in words[at + 1 : at + 3]] != ["RENAME", "TO"] or len(
        words
    ) != at + 4:
        raise InvalidSql("write ALTER VIEW name RENAME TO other")
    _check_name(words[at + 3])
    old, new = db.view(words[at]).name, words[at + 3]
    with alone(db.store) as token:
        db.view(old)  # unless it went meanwhile
        taken = {name.lower() for name in (*db.tables(), *db.views())} - {old.lower()}
        if new.lower() in taken:
            raise TableExists(f"there is a table or view {new} already; choose another name")
        changes: dict[str, Document | None] = {}
        for kind in ("view", "replacement"):
            for key, view in db.store.documents(f"{kind}/").items():
                inner = {c: new if n == old else n for c, n in view["views"].items()}
                root = {"root": new} if view.get("root") == old else {}
                if view["name"] == old:
                    changes[key] = None
                    changes[f"{kind}/{new.lower()}"] = view | {"name": new, "views": inner} | root
                elif inner != view["views"] or root:
                    changes[key] = view | {"views": inner} | root
        created = None if new.lower() == old.lower() else new
        db.store.store_views(changes, token, created)
    return Result(message=f"view {old} is now called {new}")
