"""How views change outside of epochs, and which state and logs are deleted with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from everview.catalog import (
    FOLLOWERS,
    LOAD,
    PACE,
    REPLACEMENTS,
    VIEWS,
    Epoch,
    Key,
    Kind,
    Record,
    ViewRecord,
    changes_key,
    epoch_key,
    intent_key,
)
from everview.maintain.watching import Watcher
from everview.named import open_view
from everview.programs.step import Step
from everview.stores.base import LEASE_SECONDS, WORK, RecordChanges, Store, consumer_of


@contextmanager
def maintenance_paused(store: Store) -> Iterator[int]:
    """No process maintains views inside the block; yields the token to write with."""
    with store.leases.hold(WORK, LEASE_SECONDS, Watcher().waiting) as token:
        fence(store, token)
        yield token


def fence(store: Store, token: int) -> None:
    """Make sure that a superseded maintainer can write nothing any more."""
    if store.leases.is_fenced:
        return
    store.states.begin(token)
    views = store.catalog.all(VIEWS)
    names = store.states.fence(states_of(views.values()), token)
    moved: RecordChanges = {
        key: replace(view, states={node: names[state] for node, state in view.states.items()})
        for key, view in views.items()
        if any(names[state] != state for state in view.states.values())
    }
    # what a superseded load still writes is lost with its states
    store.catalog.write({**moved, **without_load(store)}, token)
    drop_states(store, store.states.names(), store.catalog.all(VIEWS).values())
    store.leases.set_fenced(token)


def forget_views(
    store: Store,
    names: list[str],
    token: int,
    more: RecordChanges = MappingProxyType({}),
    expected: RecordChanges | None = None,
) -> None:
    """Stop maintaining views, and delete what no other view needs: state and logs. Also makes
    `more` changes, if the records are as `expected`."""
    kinds: list[Kind[Any]] = [VIEWS, REPLACEMENTS, FOLLOWERS]
    gone = dict.fromkeys(kind[name] for name in names for kind in kinds)
    change_views(store, token, {**gone, **more}, expected)


def change_views(
    store: Store, token: int, changes: RecordChanges, expected: RecordChanges | None = None
) -> None:
    """Write records of views, and delete the state and logs that no view needs then; of a group
    without views all that it had."""
    before = store.catalog.all(VIEWS)
    after = {key: view for key, view in {**before, **changes}.items() if key.kind == VIEWS}
    views = [view for view in after.values() if isinstance(view, ViewRecord)]
    unused = {
        group: tables_of(of_group(before.values(), group)) - tables_of(of_group(views, group))
        for group in sorted({view.group for view in before.values()})
    }
    for group, tables in unused.items():
        is_gone = bool(group) and not of_group(views, group)
        changes = {**changes, **_forgotten(store, group, tables, changes, is_gone)}
    store.catalog.write(changes, token, expected=expected)
    drop_states(store, states_of(before.values()), views)
    for group, tables in unused.items():
        for table in tables:
            store.unregister(table, consumer_of(group))


def _forgotten(
    store: Store, group: str, tables: set[str], changes: RecordChanges, is_gone: bool
) -> RecordChanges:
    """The records of a group without tables that its views no longer read."""
    records: dict[Key[Any], Record | None] = {}
    key = epoch_key(group)
    epoch = changes.get(key) or store.catalog.get(key)
    if isinstance(epoch, Epoch) and tables:
        records[key] = epoch.without(tables)
        records |= dict.fromkeys(changes_key(group, table) for table in tables)
    if is_gone:
        records |= {key: None, intent_key(group): None}
    return records


def rebuild_view(store: Store, name: str) -> None:
    """Let the next `maintain` load a view again, and those that share state with it."""
    with maintenance_paused(store) as token:
        view = open_view(store, name)  # raises an error if it was dropped meanwhile
        name = view.family or view.name
        views = store.catalog.all(VIEWS)
        states = set(views[VIEWS[name]].states.values())
        affected = {
            key: view.anew()
            for key, view in views.items()
            if states & set(view.states.values()) or key == VIEWS[name]
        }
        store.states.renew(states)
        store.catalog.write(affected, token)


def without_load(store: Store) -> RecordChanges:
    """The changes that end the load beside epochs, if there is one."""
    load = store.catalog.get(LOAD)
    return {PACE: None} | ({} if load is None else {LOAD: load.over()})


def drop_states(store: Store, states: Iterable[str], views: Iterable[ViewRecord]) -> None:
    """Delete states that none of the views has, nor the load beside epochs."""
    load = store.catalog.get(LOAD)
    used = states_of(views) | (load.states if load else set())
    store.states.drop(*(set(states) - used), used=used)


def views_touched(views: Iterable[ViewRecord], step: Step) -> list[ViewRecord]:
    """The views that read tables which change in a step."""
    assert step.start is not None
    changed = {table for table, at in step.start.items() if step.end[table] != at}
    return [view for view in views if not changed.isdisjoint(view.tables)]


def live_views(store: Store, group: str) -> list[ViewRecord]:
    """The live views of a group."""
    return [view for view in of_group(store.catalog.all(VIEWS).values(), group) if view.is_live]


def of_group(views: Iterable[ViewRecord], group: str) -> list[ViewRecord]:
    """The views that are in a group."""
    return [view for view in views if view.group == group]


def followed_tables(store: Store, group: str) -> set[str]:
    """The tables that live views of a group read."""
    return tables_of(live_views(store, group))


def live_operators(store: Store, group: str) -> dict[str, str]:
    """The states of the operators of live views of a group, by identity. They are as of the group's
    epoch, so views of other groups have their own."""
    live = live_views(store, group)
    return {identity: state for view in live for identity, state in view.operators.items()}


def tables_of(views: Iterable[ViewRecord]) -> set[str]:
    return {table for view in views for table in view.tables}


def states_of(views: Iterable[ViewRecord]) -> set[str]:
    return {state for view in views for state in view.states.values()}
