"""How the views of a load join the others of their group: at one epoch, which all of them run."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from everview.catalog import (
    FOLLOWERS,
    LOAD,
    REPLACEMENTS,
    VIEWS,
    Epoch,
    Key,
    LoadRecord,
    Positions,
    Record,
    ViewRecord,
    epoch_key,
    intent_key,
)
from everview.catalog.loads import READY
from everview.errors import Conflict
from everview.maintain.beside import clean_up
from everview.maintain.loads import give_up
from everview.maintain.maintainer import FAILURES, Maintainer, run_alone
from everview.maintain.views import (
    change_views,
    followed_tables,
    live_operators,
    tables_of,
    views_touched,
    without_load,
)
from everview.maintain.waiting import shares_recomputed, still_waiting
from everview.programs.step import Step
from everview.stores.base import RecordChanges, Store, consumer_of


def ready(store: Store) -> LoadRecord | None:
    """The load whose views can join, without those that were dropped or changed meanwhile."""
    load = store.catalog.get(LOAD)
    if load is None or load.stage != READY or shares_recomputed(store, load.views):
        return None
    views = still_waiting(store, load)
    if len(views) == len(load.views):
        return load
    return load.of(views) if views and load.root is None else None


def start_of(epoch: Epoch, load: LoadRecord, views: Iterable[ViewRecord]) -> Positions:
    """Where the tables are before an epoch in which views join: as live views have them, and else
    as the load has them."""
    followed = tables_of(views)
    others = {table: at for table, at in load.positions.items() if table not in followed}
    return {**epoch.positions, **others}


def join(maintainer: Maintainer, load: LoadRecord, epoch: Epoch, changes: RecordChanges) -> None:
    """Run an epoch for the views of a load, from where they are, and commit it for all views of
    their group."""
    store = maintainer.store
    end = {table: epoch.positions[table] for table in load.tables}
    step = maintainer.step(epoch.number, load.positions, end)
    views, failures = _run(maintainer, load, step)
    for table in load.tables - followed_tables(store, load.group):
        store.register(table, consumer_of(load.group), end[table])
    while not _commit(maintainer, load, views, epoch, changes):
        pass  # someone began to follow one of them meanwhile
    for view, reason in failures:
        give_up(maintainer, load.root, view, replace(step, start=None), reason)
    clean_up(store, maintainer.token)
    for view in views:
        maintainer.report.loaded.append(view.name)
        maintainer.report.watch.loaded(view.title, time.time() - load.begun)


def _run(
    maintainer: Maintainer, load: LoadRecord, step: Step
) -> tuple[list[ViewRecord], list[tuple[ViewRecord, str]]]:
    """The views that have run the step, and why others have not; if these replace others, then none
    has."""
    failures: list[tuple[ViewRecord, str]] = []
    for view in views_touched(load.views, step):
        try:
            maintainer.run(partial(run_alone, view, step))
        except FAILURES as error:
            failures.append((view, maintainer.reason(view, step, view.operators, error)))
    names = {view.name for view, _ in failures}
    views = [view for view in load.views if view.name not in names]
    return ([] if failures and load.root is not None else views), failures


def _commit(
    maintainer: Maintainer,
    load: LoadRecord,
    views: list[ViewRecord],
    epoch: Epoch,
    others: RecordChanges,
) -> bool:
    """Commit the epoch and let readers see the views; False if their followers have changed.

    Where a live view has the same operator, its state is shared from now on. Whoever follows a view
    that is replaced learns that its changes don't go on from an earlier epoch.
    """
    catalog = maintainer.store.catalog
    group = load.group
    live = live_operators(maintainer.store, group)
    changes: dict[Key[Any], Record | None] = {**others}
    changes |= {epoch_key(group): epoch, intent_key(group): None}
    changes |= without_load(maintainer.store)
    for view in views:
        states = {identity: live.get(identity, state) for identity, state in view.states.items()}
        changes[VIEWS[view.name]] = replace(view, states=states).live(epoch.number)
        changes[REPLACEMENTS[view.name]] = None
    followed = {FOLLOWERS[view.name]: catalog.get(FOLLOWERS[view.name]) for view in views}
    for key, followers in followed.items():
        if followers is not None:
            changes[key] = replace(followers, since=epoch.number)
    try:
        change_views(maintainer.store, maintainer.token, changes, followed)
    except Conflict:
        return False
    return True
