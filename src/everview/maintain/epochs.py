"""Epochs: one commits the changes up to one moment in every view of a group that they touch.

Groups take turns: each runs one epoch, if anything is pending for it, and then the next one does.
So a group with much to do delays another by one epoch, and never more. (The oldest change first
would be fairer to changes, but a group that is far behind would come first until it is not.)
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from everview.catalog import (
    REPLACEMENTS,
    VIEWS,
    Epoch,
    LoadRecord,
    Positions,
    ViewRecord,
    epoch_key,
    intent_key,
    title_of,
)
from everview.catalog.views import NEW
from everview.engines.failures import UNKNOWN_TRIES, why_failed
from everview.errors import EngineFailed, OutOfMemory
from everview.explain.work import with_changes
from everview.freshness import age_of, oldest_pending
from everview.maintain import joining
from everview.maintain.cut import cut
from everview.maintain.dealing import deal_out
from everview.maintain.maintainer import FAILURES, Maintainer, run_alone
from everview.maintain.views import followed_tables, live_views, tables_of, views_touched
from everview.maintain.watching import Epoch as Committed
from everview.programs.step import Step
from everview.stores.base import WORK, RecordChanges, Store, consumer_of

TRIM_EVERY = 20  # epochs
TRIMMED_SECONDS = 600.0  # changes that all views have are trimmed at this age


def run_epochs(maintainer: Maintainer) -> bool:
    """Run epochs until nothing is pending; False if something else comes first, as changes may
    never cease: a view waits to be loaded, when each group had its turn, or another process waits
    for the lease."""
    store = maintainer.store
    while True:
        has_run = False
        for group in _in_turn(maintainer):
            if not _may_run(maintainer, group) or not _run_or_hold(maintainer, group):
                continue
            has_run = True
            maintainer.turns[:] = [other for other in maintainer.turns if other != group] + [group]
            if store.leases.is_wanted(WORK):
                return False
        if not has_run:
            return True
        views = store.catalog.all(VIEWS).values()
        if any(view.status == NEW for view in views) or store.catalog.all(REPLACEMENTS):
            return False


def _in_turn(maintainer: Maintainer) -> list[str]:
    """The groups: those first that had no epoch yet, and then in the order of their last ones. So
    it is another's turn also if another process came between."""
    groups, turns = maintainer.store.catalog.groups(), maintainer.turns
    return sorted(groups, key=lambda group: turns.index(group) if group in turns else -1)


def _may_run(maintainer: Maintainer, group: str) -> bool:
    """Whether to run an epoch of a group now. One in which views join ends their load."""
    if group in maintainer.held:
        return False
    load = joining.ready(maintainer.store)
    return maintainer.report.watch.goes_on() or (load is not None and load.group == group)


def _run_or_hold(maintainer: Maintainer, group: str) -> bool:
    """Run one epoch of a group; False if nothing is pending. If the engine fails, the group waits,
    and the others go on."""
    try:
        return _run_epoch(maintainer, group)
    except EngineFailed as error:
        if maintainer.store.catalog.groups() == [group]:
            raise
        maintainer.held[group] = error
        return False


def _run_epoch(maintainer: Maintainer, group: str) -> bool:
    """Run one epoch of the live views of a group, or the unfinished one again; False if nothing is
    pending.

    If a load is ready, its views take part, from where they are, and are live after it.
    """
    store, token, report = maintainer.store, maintainer.token, maintainer.report
    views, load = live_views(store, group), _joining(store, group)
    epoch, intent = store.catalog.epoch_of(group), store.catalog.get(intent_key(group))
    if not views and load is None:
        if intent is not None:  # it was for views that are gone
            store.catalog.write({intent_key(group): None}, token)
        return False
    start = epoch.positions if load is None else joining.start_of(epoch, load, views)
    if intent is None or intent.number <= epoch.number:
        all_views = [*views, *(load.views if load else ())]
        end, now = cut(store, start, all_views, maintainer.batch)
        if end == start and load is None:
            return False
        if load is not None and load.number > epoch.number:
            # readers expect that no row is more than one epoch ahead of the committed one
            epoch = replace(epoch, number=load.number)
            store.catalog.write({epoch_key(group): epoch}, token)
        intent = Epoch(epoch.number + 1, end, now, joins=load is not None)
        intent = replace(intent, tasks=_dealt(maintainer, views, start, intent, epoch.tasks))
        store.catalog.write({intent_key(group): intent}, token)
    elif not intent.joins:
        load, start = None, epoch.positions
    store.states.begin(token)
    end = _reached(start, intent.positions)
    began, rows = time.monotonic(), report.rows
    oldest = oldest_pending(store, epoch.positions, epoch.positions)
    own_start = start if load is None else {t: start[t] for t in tables_of(views)}
    own_end = {table: end[table] for table in own_start}
    step = maintainer.step(intent.number, own_start, own_end, intent.tasks)
    _run_or_stop(maintainer, views_touched(views, step), step)
    committed = Epoch(intent.number, end, intent.time, tasks=intent.tasks or epoch.tasks)
    changes: RecordChanges = with_changes(store, group, step.epoch, start, end)
    if load is None:
        changes = {**changes, epoch_key(group): committed, intent_key(group): None}
        store.catalog.write(changes, token)
    else:
        joining.join(maintainer, load, committed, changes)
        committed = store.catalog.epoch_of(group)
    _acknowledge(maintainer, group, committed, start)
    if load is not None and not step.changes:  # views have joined; the others are as they were
        return True
    report.epochs += 1
    report.changes += step.changes
    seconds = time.monotonic() - began
    maintainer.lags.append(age_of(oldest))
    of_views = report.rows - rows
    lag, title = maintainer.lags[-1], title_of(group)
    report.watch.committed(Committed(step.epoch, step.changes, of_views, seconds, lag, title))
    return True


def _dealt(
    maintainer: Maintainer,
    views: list[ViewRecord],
    start: Positions,
    intent: Epoch,
    before: tuple[int, ...],
) -> tuple[int, ...]:
    """How an epoch deals slots out to tasks. It is part of the intent: an epoch that runs again
    finds what an earlier attempt wrote."""
    if not views:
        return ()
    tables = tables_of(views)
    own_start, own_end = ({t: at[t] for t in tables} for at in (start, intent.positions))
    step = maintainer.quiet_step(intent.number, own_start, own_end)
    return deal_out(maintainer.store, views_touched(views, step), step, before)


def _joining(store: Store, group: str) -> LoadRecord | None:
    """The load whose views can join a group now."""
    load = joining.ready(store)
    return load if load is not None and load.group == group else None


def _reached(start: Positions, intent: Positions) -> Positions:
    """The positions of an intent, none before `start`: a table that no view followed for a while
    may be further by now."""
    return {
        table: {r: max(s, intent.get(table, regions).get(r, s)) for r, s in regions.items()}
        for table, regions in start.items()
    }


def _acknowledge(maintainer: Maintainer, group: str, epoch: Epoch, start: Positions) -> None:
    """Release the changes that an epoch of a group has, in the regions that have some."""
    is_to_trim = epoch.number % TRIM_EVERY == 0
    age = _trimmed_age(maintainer.store, group) if is_to_trim else TRIMMED_SECONDS
    for table, positions in epoch.positions.items():
        moved = {r: s for r, s in positions.items() if s != start[table][r]}
        if moved:
            maintainer.store.acknowledge(table, consumer_of(group), moved)
        if is_to_trim:
            maintainer.store.trim(table, positions, age)


def _trimmed_age(store: Store, group: str) -> float:
    """The age at which changes are trimmed that all groups have which follow the table. A slower
    group may get a view that reads the table, and then reads it as of its own moment."""
    others = [other for other in store.catalog.groups() if other != group]
    ages = [
        age_of(oldest_pending(store, followed_tables(store, other), epoch.positions))
        for other in others
        if (epoch := store.catalog.epoch_of(other)).positions
    ]
    return max([TRIMMED_SECONDS, *ages])


def _run_or_stop(maintainer: Maintainer, views: list[ViewRecord], step: Step) -> None:
    """Run an epoch for all views at once. If that fails, for whatever reason, run it view by view,
    and stop the views that fail.

    So a view that fails is tried again before it stops: it may have been the engine's fault. Where
    memory does not suffice for all views together, those stop for which it does not suffice alone;
    if there is no other view, it is the engine that fails.
    """
    try:
        tries = 1 if len(views) > 1 else UNKNOWN_TRIES
        states = {i: state for view in views for i, state in view.operators.items()}
        maintainer.run(lambda programs: programs.run(views, step, states), tries)
    except (*FAILURES, OutOfMemory):
        too_large: dict[str, OutOfMemory] = {}
        for view in views:
            try:
                _run_alone_or_stop(maintainer, view, step)
            except OutOfMemory as failure:
                too_large[view.name] = failure
        if len(too_large) == len(views):
            raise
        for view in views:
            if error := too_large.get(view.name):
                maintainer.stop(view, step, _too_large(maintainer, error))


def _too_large(maintainer: Maintainer, error: OutOfMemory) -> str:
    why = why_failed(error.__cause__ or error)
    return f"the engine {maintainer.engine.name} has too little memory for this view alone: {why}"


def _run_alone_or_stop(maintainer: Maintainer, view: ViewRecord, step: Step) -> None:
    try:
        maintainer.run(partial(run_alone, view, step), 1)
    except FAILURES as error:
        maintainer.stop(view, step, maintainer.reason(view, step, view.operators, error))
