"""Loads between two epochs: the first rows of small views, and of new definitions of such views.

Large ones are loaded beside epochs (`beside`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from everview.catalog import (
    FOLLOWERS,
    REPLACEMENTS,
    VIEWS,
    Epoch,
    Key,
    Record,
    ViewRecord,
    epoch_key,
    intent_key,
)
from everview.catalog.views import ROWS
from everview.errors import Conflict, Damaged
from everview.maintain.cut import moment_of
from everview.maintain.maintainer import FAILURES, Maintainer
from everview.maintain.views import change_views, drop_states, live_views, tables_of
from everview.maintain.waiting import small_and_large
from everview.plan.distribution import UNNAMED, distribution, shards_by
from everview.plan.jobs import jobs
from everview.plan.nodes import Replace
from everview.plan.ordering import has_map
from everview.programs.program import StoredRows
from everview.programs.programs import Load
from everview.programs.step import Step
from everview.schema import has_floats
from everview.stores.base import Store, consumer_of

FIRST = 1  # the epoch of the first load


def load_small(maintainer: Maintainer) -> bool:
    """Load the small views that wait for it; False if there are none."""
    small, _ = small_and_large(maintainer.store)
    numbers, of, report = count(1), sum(len(some.views) for some in small), maintainer.report
    for newcomers in small:
        loaded: dict[str, tuple[ViewRecord, float]] = {}
        for view in newcomers.views:
            report.watch.loading(view.title, next(numbers), of)
            begun = time.monotonic()
            earlier = [view for view, _ in loaded.values()]
            loaded_view = _load(maintainer, newcomers.root, view, earlier)
            if loaded_view is None:
                break
            loaded[view.name] = loaded_view, time.monotonic() - begun
        else:
            _put_in_place(maintainer, [view for view, _ in loaded.values()])
            for loaded_view, seconds in loaded.values():
                report.loaded.append(loaded_view.name)
                report.watch.loaded(loaded_view.title, seconds)
    return bool(small)


def _load(
    maintainer: Maintainer,
    root: str | None,
    view: ViewRecord,
    beside: list[ViewRecord],
    beside_rows: bool = True,
) -> ViewRecord | None:
    """The view with its state, loaded beside others that were just loaded; None if it fails.

    If it would be loaded from rows of another view, and these are damaged, it is loaded without
    them.
    """
    new = view
    view, step, load = _prepared(maintainer, new, beside, beside_rows)
    try:
        maintainer.run(lambda programs: programs.load(view, step, load))
    except FAILURES as error:
        if isinstance(error, Damaged) and beside_rows and load.stored_rows:
            return _load(maintainer, root, new, beside, beside_rows=False)
        give_up(maintainer, root, view, step, maintainer.reason(view, step, {}, error))
        return None
    finally:
        drop_states(maintainer.store, load.places.values(), [])
    return view


def _prepared(
    maintainer: Maintainer, view: ViewRecord, beside: list[ViewRecord], beside_rows: bool
) -> tuple[ViewRecord, Step, Load]:
    """What it takes to load a view: the view with places for its state, the step, and the load.

    A view is loaded as of the committed epoch of its group; tables that no live view of the group
    follows are read as of the same moment.
    """
    store, token = maintainer.store, maintainer.token
    followed = tables_of([*live_views(store, view.group), *beside])
    epoch = store.catalog.epoch_of(view.group)
    number, positions = max(epoch.number, FIRST), dict(epoch.positions)
    now = moment_of(store, epoch, followed)
    for table in tables_of([view]) - followed:
        positions[table] = store.positions_at(table, now)
        store.register(table, consumer_of(view.group), positions[table])
    store.states.begin(token)
    view, load = _with_states(store, view, beside, beside_rows)
    store.catalog.write({epoch_key(view.group): Epoch(number, positions, now)}, token)
    return view, maintainer.step(number, None, positions), load


def _with_states(
    store: Store, view: ViewRecord, beside: list[ViewRecord], beside_rows: bool
) -> tuple[ViewRecord, Load]:
    """The view with a place for each operator's state: that of an equal operator of its group, or a
    fresh one.
    With `beside_rows`, a part that equals the plan of another view is read from that view's rows.
    """
    views = store.catalog.all(VIEWS).values()
    drop_states(store, store.states.names(), [*views, *beside])  # those of a load that failed
    operators = {node.identity: node for node in view.plan.walk() if node.is_operator}
    others = [*live_views(store, view.group), *beside]
    live = {node: state for other in others for node, state in other.operators.items()}
    volume = store.states.volume
    fresh = {identity: new_state(volume) for identity in operators.keys() - live.keys()}
    shared = {identity: live[identity] for identity in operators.keys() & live.keys()}
    states = {**shared, **fresh, ROWS: new_state(volume)}
    recomputed = {
        identity: StoredRows(state)
        for identity, state in shared.items()
        if isinstance(operators[identity], Replace)
    }
    lie_by_columns = any(UNNAMED in shards_by(node) for node in operators.values())
    rows = (_rows_of(other, lie_by_columns) for other in others if beside_rows)
    stored_rows = recomputed | dict(filter(None, rows))
    planned = jobs([view.plan], worth=1, stored=stored_rows)
    places = {node.identity: new_state(volume) for part in planned.ahead for node in part}
    create_states(store, (*fresh.values(), states[ROWS], *places.values()), view.shards)
    return replace(view, states=states), Load(fresh, stored_rows, planned, places)


def new_state(volume: str) -> str:
    return f"{volume}.{secrets.token_hex(6)}"


def volume_of(state: str) -> str:
    return state.partition(".")[0]


def create_states(store: Store, states: Iterable[str], shards: Sequence[int]) -> None:
    def create() -> None:
        for state in states:
            store.states.create(state, shards)

    store.states.together(create)


def _rows_of(view: ViewRecord, lie_by_columns: bool) -> tuple[str, StoredRows] | None:
    """The rows of a view, to read in place of its plan, by the plan's identity. None if its key has
    doubles, as it stores 0.0 and -0.0 as one; if it has maps, as it stores their entries in another
    order; or if its rows have to lie where they do, and no column says where."""
    plan = view.plan
    has_place = distribution(plan) != UNNAMED or not lie_by_columns
    has_doubles = any(has_floats(plan.column(name).type) for name in view.key)
    if not has_place or has_doubles or any(has_map(column.type) for column in plan.columns):
        return None
    return plan.identity, StoredRows(view.rows, view.key)


def _put_in_place(maintainer: Maintainer, views: list[ViewRecord]) -> None:
    """Let readers see the loaded views, in place of those that they replace.

    If someone follows such a view, it appears at an epoch of its own, or at the one that was begun.
    So whoever has read its changes up to an earlier epoch learns that they don't go on from there.
    """
    catalog, group = maintainer.store.catalog, views[0].group
    while True:
        epoch, changes = catalog.epoch_of(group), dict[Key[Any], Record | None]()
        followed = {FOLLOWERS[view.name]: catalog.get(FOLLOWERS[view.name]) for view in views}
        first = epoch.number + 1
        if any(followed.values()) and catalog.get(intent_key(group)) is None:
            epoch = replace(epoch, number=first)
            changes[epoch_key(group)] = epoch
        for view in views:
            changes[VIEWS[view.name]] = view.live(epoch.number)
            changes[REPLACEMENTS[view.name]] = None
        for key, followers in followed.items():
            if followers is not None:
                changes[key] = replace(followers, since=first)
        try:
            change_views(maintainer.store, maintainer.token, changes, followed)
        except Conflict:
            continue
        return


def give_up(
    maintainer: Maintainer, root: str | None, view: ViewRecord, step: Step, what: str
) -> None:
    """Stop a view that can't be loaded; if it was to replace another, leave that one as it is."""
    store, report = maintainer.store, maintainer.report
    if root is None:
        maintainer.stop(replace(view, states={}), step, what)
    else:
        reason = (
            f"{what}; so nothing was replaced. Correct that, or change the query, and write "
            "CREATE OR REPLACE again"
        )
        changes: dict[Key[Any], Record | None] = {
            key: None
            for key, replacement in store.catalog.all(REPLACEMENTS).items()
            if replacement.root == root
        }
        if (old := store.catalog.get(VIEWS[root])) is not None:
            changes[VIEWS[root]] = replace(old, error=reason)
        store.catalog.write(changes, maintainer.token)
        report.failed[root] = reason
        report.watch.kept(root, reason)
    drop_states(store, store.states.names(), store.catalog.all(VIEWS).values())
