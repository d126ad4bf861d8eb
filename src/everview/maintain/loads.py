"""Loads: the first rows of views that were just created, and of new definitions of others."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import count
from typing import Any

from everview.catalog import (
    EPOCH,
    REPLACEMENTS,
    VIEWS,
    Epoch,
    Key,
    Record,
    ViewRecord,
)
from everview.catalog.records import NEW, ROWS
from everview.errors import Damaged
from everview.maintain.cut import positions_at, time_now
from everview.maintain.maintainer import FAILURES, Maintainer
from everview.maintain.views import change_views, drop_states, tables_of
from everview.plan.distribution import UNNAMED, distribution, shards_by
from everview.plan.jobs import jobs
from everview.plan.nodes import Replace
from everview.plan.ordering import has_map
from everview.programs.program import Kept
from everview.programs.programs import Load
from everview.programs.step import Step
from everview.schema import has_floats
from everview.stores.base import OF_VIEWS, Store

FIRST = 1  # the epoch of the first load


def load_new(maintainer: Maintainer) -> bool:
    """Load what waits for it; False if nothing does."""
    groups = _waiting(maintainer.store)
    numbers, of, report = count(1), sum(len(views) for _, views in groups), maintainer.report
    for root, views in groups:
        loaded: dict[str, tuple[ViewRecord, float]] = {}
        for view in views:
            report.watch.loading(view.name, next(numbers), of)
            begun = time.monotonic()
            made = _load(maintainer, root, view, [one for one, _ in loaded.values()])
            if made is None:
                break
            loaded[view.name] = made, time.monotonic() - begun
        else:
            _put_in_place(maintainer, [view for view, _ in loaded.values()])
            for name, (_, seconds) in loaded.items():
                report.loaded.append(name)
                report.watch.loaded(name, seconds)
    return bool(groups)


def _waiting(store: Store) -> list[tuple[str | None, list[ViewRecord]]]:
    """What is to be loaded, each view after those that it reads: new ones one by one, definitions
    that replace others with those that have the same root, which comes first."""
    new = [view for view in store.catalog.all(VIEWS).values() if view.status == NEW]
    replacing: dict[str, list[ViewRecord]] = {}
    for one in store.catalog.all(REPLACEMENTS).values():
        replacing.setdefault(one.root, []).append(one.view)
    return [
        *((None, [view]) for view in _in_order(new)),
        *((root, _in_order(views)) for root, views in replacing.items()),
    ]


def _in_order(views: list[ViewRecord]) -> list[ViewRecord]:
    """Each view after those that it reads."""
    named = {view.name.lower(): view for view in views}
    over = {name: map(str.lower, view.views.values()) for name, view in named.items()}
    return [named[name] for name in TopologicalSorter(over).static_order() if name in named]


def _load(
    maintainer: Maintainer,
    root: str | None,
    view: ViewRecord,
    beside: list[ViewRecord],
    beside_rows: bool = True,
) -> ViewRecord | None:
    """The view with its state, loaded beside others that were just loaded; None if it fails.

    If rows of another view are damaged, from which it would be loaded, it is loaded without them.
    """
    new = view
    view, step, load = _prepared(maintainer, new, beside, beside_rows)
    try:
        maintainer.run(lambda programs: programs.load(view, step, load))
    except FAILURES as error:
        if isinstance(error, Damaged) and beside_rows and load.kept:
            return _load(maintainer, root, new, beside, beside_rows=False)
        _give_up(maintainer, root, view, step, maintainer.reason(view, step, {}, error))
        return None
    finally:
        drop_states(maintainer.store, load.places.values(), [])
    return view


def _prepared(
    maintainer: Maintainer, view: ViewRecord, beside: list[ViewRecord], beside_rows: bool
) -> tuple[ViewRecord, Step, Load]:
    """What it takes to load a view: the view with places for its state, the step, and the rest.

    A view is loaded as of the committed epoch: also of tables that no live view follows, its time
    is what counts.
    """
    store, token = maintainer.store, maintainer.token
    live = [one for one in store.catalog.all(VIEWS).values() if one.is_live]
    followed = tables_of([*live, *beside])
    epoch = store.catalog.epoch
    number, positions, now = max(epoch.number, FIRST), dict(epoch.positions), time_now()
    if positions_at(store, positions, followed, now) != positions:
        now = epoch.time  # changes came since the last epoch
    for table in tables_of([view]) - followed:
        positions[table] = store.positions_at(table, now)
        store.register(table, OF_VIEWS, positions[table])
    store.states.begin(token)
    view, load = _with_states(store, view, beside, beside_rows)
    store.catalog.write({EPOCH: Epoch(number, positions, now)}, token)
    return view, maintainer.step(view, number, None, positions), load


def _with_states(
    store: Store, view: ViewRecord, beside: list[ViewRecord], beside_rows: bool
) -> tuple[ViewRecord, Load]:
    """The view with a place for each operator's state: that of an equal one, or a fresh one; with
    `beside_rows`, rows of other views serve in place of the plans that they are of."""
    views = store.catalog.all(VIEWS).values()
    drop_states(store, store.states.names(), [*views, *beside])  # what a load left that failed
    operators = {node.identity: node for node in view.plan.walk() if node.is_operator}
    there = [*(other for other in views if other.is_live), *beside]
    live = {identity: state for one in there for identity, state in one.operators.items()}
    fresh = {identity: _new_state() for identity in operators.keys() - live.keys()}
    shared = {identity: live[identity] for identity in operators.keys() & live.keys()}
    states = {**shared, **fresh, ROWS: _new_state()}
    recomputed = {i: Kept(at) for i, at in shared.items() if isinstance(operators[i], Replace)}
    lie_by_columns = any(UNNAMED in shards_by(node) for node in operators.values())
    rows = (_rows_of(other, lie_by_columns) for other in there if beside_rows)
    kept = recomputed | dict(filter(None, rows))
    found = jobs([view.plan], worth=1, given=kept)
    places = {node.identity: _new_state() for part in found.ahead for node in part}
    for state in (*fresh.values(), states[ROWS], *places.values()):
        store.states.create(state, view.shards)
    return replace(view, states=states), Load(fresh, kept, found, places)


def _new_state() -> str:
    return uuid.uuid4().hex[:12]


def _rows_of(view: ViewRecord, lie_by_columns: bool) -> tuple[str, Kept] | None:
    """The rows of a view in place of its plan; not if they are told apart by doubles, as 0.0 and
    -0.0 are there as one, nor if they have maps, whose entries are there in another order, nor if
    they have to lie where they do and no column says where."""
    plan = view.plan
    has_place = distribution(plan) != UNNAMED or not lie_by_columns
    has_doubles = any(has_floats(plan.column(name).type) for name in view.key)
    if not has_place or has_doubles or any(has_map(column.type) for column in plan.columns):
        return None
    return plan.identity, Kept(view.rows, view.key)


def _put_in_place(maintainer: Maintainer, views: list[ViewRecord]) -> None:
    """Let readers see views that were loaded, in place of those that they replace."""
    epoch = maintainer.store.catalog.epoch.number
    changes: dict[Key[Any], Record | None] = {}
    for view in views:
        changes[VIEWS[view.name]] = view.live(epoch)
        changes[REPLACEMENTS[view.name]] = None
    change_views(maintainer.store, maintainer.token, changes)


def _give_up(
    maintainer: Maintainer, root: str | None, view: ViewRecord, step: Step, what: str
) -> None:
    """Stop a view that can't be loaded; or if it was to replace another, let that one be."""
    store, report = maintainer.store, maintainer.report
    if root is None:
        maintainer.stop(replace(view, states={}), step, what)
    else:
        reason = (
            f"{what}; so nothing was replaced. Correct that, or change the query, and write "
            "CREATE OR REPLACE again"
        )
        changes: dict[Key[Any], Record | None] = {
            key: None for key, one in store.catalog.all(REPLACEMENTS).items() if one.root == root
        }
        if (old := store.catalog.get(VIEWS[root])) is not None:
            changes[VIEWS[root]] = replace(old, error=reason)
        store.catalog.write(changes, maintainer.token)
        report.failed[root] = reason
        report.watch.kept(root, reason)
    drop_states(store, store.states.names(), store.catalog.all(VIEWS).values())
