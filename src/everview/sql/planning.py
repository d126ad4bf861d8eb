"""CREATE [OR REPLACE] VIEW and ALTER VIEW ... RENAME TO.

A view's record contains its plan, and that plan contains the plans of the views that it reads. So
when a view is replaced, Everview also plans and replaces the views that read it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from graphlib import TopologicalSorter
from typing import Any

from everview.advice import how_to_maintain
from everview.catalog import (
    FOLLOWERS,
    NAMED,
    REPLACEMENTS,
    VIEWS,
    Definition,
    Family,
    Key,
    NamedMember,
    Record,
    Replacement,
    ViewRecord,
)
from everview.errors import Conflict, InUse, InvalidSql, SqlError, TableExists, UnsupportedSql
from everview.estimate.costs import costs_for
from everview.intake.explain import short_repr
from everview.maintain.views import maintenance_paused
from everview.parsing import Statement
from everview.plan.facts import Facts, TableFacts
from everview.plan.inline import inline_views
from everview.plan.jobs import jobs
from everview.plan.keys import view_key
from everview.plan.nodes import Node
from everview.plan.rules import improve
from everview.results.result import Result
from everview.schema import LONGEST_NAME, check_visible
from everview.sql.context import Context
from everview.sql.create_view import CreateView, words_of
from everview.sql.families import explained, members_made
from everview.sql.groups import group_of
from everview.stores.base import RecordChanges, Store

MOST_AT_ONCE = 500  # with a thousand, Sail takes all threads and memory
# the engines' hash partitioning spreads these numbers evenly over one, two or four partitions:
# hash(n) is 0, 1, 2 and 3 modulo 4
SHARDS = (12, 6, 2, 0)


def create(context: Context, creation: CreateView) -> Result:
    name = creation.name
    while not (creation.lenient and is_view(context, name)):
        try:
            with members_made(context, creation):
                return _created(context, creation)
        except TableExists:
            # another process may have created it meanwhile
            if not is_view(context, name) or not (creation.replaces or creation.lenient):
                raise
    return Result(message=f"view {name} exists already")


def is_view(context: Context, name: str) -> bool:
    catalog = context.store.catalog
    return (catalog.get(VIEWS[name]) or catalog.get(NAMED[name])) is not None


def _created(context: Context, creation: CreateView) -> Result:
    key = VIEWS[creation.name]
    with _others_waiting(context, creation) as token:
        view = define(context, creation)
        over = ", ".join([*view.tables, *view.views.values()]) or "constants"
        if token is None or not creation.replaces or context.store.catalog.get(key) is None:
            named = context.store.catalog.get(NAMED[view.name]) if creation.replaces else None
            store_views(context.store, {key: view}, token, created=view.name, named=named)
            family = view.definition.family
            hint = f"; INSERT INTO {view.name} adds members" if family else ""
            return Result(
                message=f"view {view.name} created over {over}; {how_to_maintain()} loads it{hint}"
            )
        changed = _with_readers(context, view)
        _replace(context, changed, token)
    readers = list(changed)[1:]
    others = f", and with it {', '.join(readers)}" if readers else ""
    return Result(
        message=f"view {view.name} will be replaced{others}, over {over}; {how_to_maintain()} "
        "loads the new definition and puts it in place"
    )


def check_name(name: str) -> None:
    check_visible("view", name)
    if not 1 <= len(name.encode()) <= LONGEST_NAME:
        raise InvalidSql(f"{short_repr(name)} can't be the name of a view; use 1 to 255 bytes")


@contextmanager
def _others_waiting(context: Context, creation: CreateView) -> Iterator[int | None]:
    """Inside the block nobody else changes views, if the new view reads or replaces some; yields
    the token to write with. A view that reads only tables doesn't wait, and has no token."""
    views = {view.lower() for view in context.views()}
    changes = creation.replaces and creation.name.lower() in views
    if changes or views & words_of(creation.definition):
        assert context.engines.planner  # it takes long to start
        with maintenance_paused(context.store) as token:
            yield token
    else:
        yield None


def define(context: Context, creation: CreateView) -> ViewRecord:
    """The view that a CREATE would create; changes nothing."""
    name = creation.name
    if name.lower() in {table.lower() for table in context.tables()}:
        raise TableExists(f"there is a table {name}; a view needs a name of its own")
    catalog = context.store.catalog
    old = catalog.get(VIEWS[name]) or catalog.get(NAMED[name])
    if old is not None and not creation.replaces:
        raise exists_already(name)
    views = _views_in(context, creation.definition)
    name = name if old is None else old.name
    before = catalog.get(VIEWS[old.family]) if isinstance(old, NamedMember) else old
    try:
        view = _planned(context, name, creation, views, before)
    except RecursionError:
        raise UnsupportedSql(
            f"view {name} nests too many joins or subqueries to be planned; use fewer of them"
        ) from None
    _check_readable(context, name, view.views.values())
    return view


def _views_in(context: Context, definition: Definition) -> dict[str, ViewRecord]:
    """The views that a query mentions, by name. One that is a member of a family is planned anew,
    as a view of its own: who reads it does not wait for the family."""
    catalog, words = context.store.catalog, words_of(definition)
    views = {view.name: view for view in catalog.all(VIEWS).values() if view.name.lower() in words}
    for word in words:
        if (named := catalog.get(NAMED[word])) is not None and named.name not in views:
            family = catalog.get(VIEWS[named.family])
            group = None if family is None else family.group
            creation = CreateView.of_query(named.name, named.query, group=group)
            inner = _views_in(context, creation.definition)
            views[named.name] = _planned(context, named.name, creation, inner)
    return views


def exists_already(name: str) -> TableExists:
    return TableExists(
        f"view {name} exists already; write CREATE OR REPLACE MATERIALIZED VIEW {name}, or drop it "
        f"first with DROP VIEW {name}"
    )


def _planned(
    context: Context,
    name: str,
    source: CreateView | ViewRecord,
    views: Mapping[str, ViewRecord],
    before: ViewRecord | None = None,
) -> ViewRecord:
    """A view, planned from its definition and the views that its query reads, by their names in the
    query. It stays in the group of the one that it takes the place of, if there was one `before`.
    """
    from everview.sql.catalyst import translate

    definition = source.definition
    mentioned = words_of(definition) - {view.lower() for view in views}
    named = [table for table in context.tables() if table.lower() in mentioned]
    tables = {table: context.store.describe(table).columns for table in named}
    plans = {inner: view.plan for inner, view in views.items()}
    relations = tables | {view: plan.columns for view, plan in plans.items()}
    arguments = definition.query, relations, definition.columns, definition.is_full
    try:
        translated = translate(context.engines.planner.session, *arguments)
    except SqlError as error:
        if definition.family is None:
            raise
        raise explained(error, definition.family) from error
    over = {view: views[view] for view in sorted(translated.plan.tables() & set(views))}
    if definition.is_full and over:
        raise UnsupportedSql(
            f"a view WITH (refresh = 'full') can read tables only, not the view "
            f"{next(iter(over))}; put the query of that view into a WITH clause instead"
        )
    group = group_of(name, source.group, before, over)
    unimproved = inline_views(translated.plan, plans)
    improved = translated.plan
    if not definition.is_full:
        improved = _improved(context, improved, named, definition.family, group)
    plan = inline_views(improved, plans)
    _check_size(plan)
    for column in translated.plan.columns:
        check_visible("column", column.name)
    return ViewRecord(
        name=name,
        definition=definition,
        consistency=source.consistency,
        load_lag=source.load_lag,
        group=group,
        plan_text=plan.text,
        tables=tuple(sorted(unimproved.tables())),
        views={inner: view.name for inner, view in over.items()},
        key=_key(context, definition, unimproved),
        order=tuple(translated.order),
        is_open=translated.is_open or any(inner.is_open for inner in over.values()),
        shards=_shards(context),
        slots=context.store.catalog.slots,
        widths={table: len(columns) for table, columns in tables.items()},
    )


def _key(context: Context, definition: Definition, plan: Node) -> tuple[str, ...]:
    """The key of a view; that of a family begins with its parameters, in the view's order."""
    key = view_key(plan, lambda table: context.store.describe(table).key)
    if definition.family is None:
        return tuple(key)
    return tuple(name for name in plan.names() if name in {*key, *definition.family.parameters})


def _check_size(plan: Node) -> None:
    """Refuse a plan whose UNIONs make one job too large: an engine runs a whole job at once."""
    size = jobs([plan]).largest
    if size > MOST_AT_ONCE:
        raise UnsupportedSql(
            f"an epoch of this view would run {size:,} operators at once, and the limit is "
            f"{MOST_AT_ONCE}; use fewer parts in its UNIONs, and count all that each part reads"
        )


def _improved(
    context: Context, plan: Node, tables: Iterable[str], family: Family | None, group: str
) -> Node:
    schemas = {table: context.store.describe(table) for table in tables}
    known = {t: TableFacts(schema.key, schema.append_only) for t, schema in schemas.items()}
    engines = context.engines
    shards = len(_shards(context))
    costs = costs_for(context.store, engines.planner, engines.name, plan, shards, group)
    if family is None:
        return improve(plan, Facts(known, costs))
    return improve(plan, Facts(known, costs, family.members, family.sharing == "full"))


def _check_readable(context: Context, name: str, over: Iterable[str]) -> None:
    """Raise an error if a view reads itself, or a view that is about to change."""
    readers = [name, *views_over(context, name)]
    for view in over:
        if view in readers:
            raise UnsupportedSql(f"view {name} would read itself, through view {view}")
        if context.store.catalog.get(REPLACEMENTS[view]) is not None:
            raise InUse(
                f"view {view} is being replaced; {how_to_maintain()} puts its new definition in "
                "place, then try again"
            )


def _shards(context: Context) -> tuple[int, ...]:
    """The shards of the other views, since views share state; for the first, one for each core."""
    for view in context.store.catalog.all(VIEWS).values():
        return view.shards
    cores = os.cpu_count() or 1
    return SHARDS[:cores] if cores < 3 else SHARDS


def views_over(context: Context, name: str) -> list[str]:
    """The views that read a view, directly or through others, each after those it reads."""
    views = context.store.catalog.all(VIEWS).values()
    over = {view.name: set(view.views.values()) for view in views}
    readers = [name]
    for view in TopologicalSorter(over).static_order():
        if not over.get(view, set()).isdisjoint(readers):
            readers.append(view)
    return readers[1:]


def _with_readers(context: Context, view: ViewRecord) -> dict[str, ViewRecord]:
    """The view and those that read it, planned anew."""
    views = {other.name: other for other in context.store.catalog.all(VIEWS).values()}
    changed = {view.name: view}
    for name in views_over(context, view.name):
        old = views[name]
        known = views | changed
        over = {in_query: known[inner] for in_query, inner in old.views.items()}
        try:
            changed[name] = _planned(context, name, old, over)
        except SqlError as error:
            raise InvalidSql(
                f"view {name} reads {view.name} and would fail: {error}; nothing was changed. "
                f"Drop it first with DROP VIEW {name}, or keep the columns it reads"
            ) from error
    return changed


def _replace(context: Context, views: Mapping[str, ViewRecord], token: int | None) -> None:
    """Let the next `maintain` load new definitions of views, which take the old ones' place
    together."""
    root = next(iter(views))
    changes: dict[Key[Any], Record | None] = {}
    for name, view in views.items():
        old = context.store.catalog.get(VIEWS[name])
        assert old is not None
        changes[REPLACEMENTS[name]] = Replacement(view, root) if old.is_loaded else None
        if not old.is_loaded:
            changes[VIEWS[name]] = view
    store_views(context.store, changes, token)


def store_views(
    store: Store,
    changes: RecordChanges,
    token: int | None,
    created: str | None = None,
    named: NamedMember | None = None,
) -> None:
    """Write views that were just planned. The one that is `created` may take the place of a member
    of a family, `named`.

    Raises `TableNotFound` if a table that one of them reads is gone by now, and `TableExists` if
    there is a table or view by the name of the one that is `created`.
    """
    records = changes.values()
    views = [record.view if isinstance(record, Replacement) else record for record in records]
    tables = {t: True for view in views if isinstance(view, ViewRecord) for t in view.tables}
    if created is None:
        store.catalog.write(changes, token, tables=tables)
        return
    try:
        free: RecordChanges = {VIEWS[created]: None, NAMED[created]: named}
        store.catalog.write(changes, token, expected=free, tables=tables | {created: False})
    except Conflict:
        raise exists_already(created) from None


def rename(context: Context, statement: Statement, at: int) -> Result:
    """ALTER VIEW name RENAME TO other; views that read the view go on reading it."""
    words = [token.text for token in statement.tokens]
    if [word.upper() for word in words[at + 1 : at + 3]] != ["RENAME", "TO"] or len(
        words
    ) != at + 4:
        raise InvalidSql("write ALTER VIEW name RENAME TO other")
    check_name(words[at + 3])
    old, new = context.view(words[at]).name, words[at + 3]
    with maintenance_paused(context.store) as token:
        context.view(old)  # raises an error if it was dropped meanwhile
        taken = {name.lower() for name in (*context.tables(), *context.views())} - {old.lower()}
        if new.lower() in taken:
            raise TableExists(f"there is a table or view {new} already; choose another name")
        changes: dict[Key[Any], Record | None] = {}
        for key, view in context.store.catalog.all(VIEWS).items():
            if (renamed := _renamed(view, old, new)) != view:
                changes |= {key: None, VIEWS[renamed.name]: renamed}
        for key_, replacement in context.store.catalog.all(REPLACEMENTS).items():
            root = new if replacement.root == old else replacement.root
            after = Replacement(_renamed(replacement.view, old, new), root)
            if after != replacement:
                changes |= {key_: None, REPLACEMENTS[after.view.name]: after}
        if (named := context.store.catalog.get(NAMED[old])) is not None:
            changes |= {NAMED[old]: None, NAMED[new]: replace(named, name=new)}
        followers = context.store.catalog.get(FOLLOWERS[old])
        changes |= {FOLLOWERS[old]: None, FOLLOWERS[new]: followers}
        created = None if new.lower() == old.lower() else new
        store_views(context.store, changes, token, created)
    return Result(message=f"view {old} is now called {new}")


def _renamed(view: ViewRecord, old: str, new: str) -> ViewRecord:
    """A view after it, or a view that it reads, got a new name."""
    inner = {key: new if name == old else name for key, name in view.views.items()}
    return replace(view, name=new if view.name == old else view.name, views=inner)
