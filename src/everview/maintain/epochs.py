"""Epochs: one commits the changes up to one moment in every view that they touch."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from everview.catalog import EPOCH, INTENT, REPLACEMENTS, VIEWS, Epoch, Positions, ViewRecord
from everview.catalog.records import NEW
from everview.engines.failures import UNKNOWN_TRIES, why_failed
from everview.errors import OutOfMemory
from everview.explain.work import with_changes
from everview.freshness import age_of, oldest_pending
from everview.maintain import joining
from everview.maintain.cut import cut
from everview.maintain.dealing import deal_out
from everview.maintain.maintainer import FAILURES, Maintainer, run_alone
from everview.maintain.views import tables_of, views_touched
from everview.maintain.watching import Epoch as Committed
from everview.programs.step import Step
from everview.stores.base import OF_VIEWS, WORK

TRIM_EVERY = 20  # epochs
TRIMMED_SECONDS = 600.0  # changes that all views have are trimmed at this age


def run_epochs(maintainer: Maintainer) -> bool:
    """Run epochs until nothing is pending; False if something else comes first, as changes may
    never cease: a view waits to be loaded, or another process waits for the lease."""
    store = maintainer.store
    while maintainer.report.watch.goes_on() or joining.ready(store):
        views = list(store.catalog.all(VIEWS).values())
        if not _run_epoch(maintainer, [view for view in views if view.is_live]):
            return True
        if any(view.status == NEW for view in views) or store.catalog.all(REPLACEMENTS):
            return False
        if store.leases.is_wanted(WORK):
            return False
    return True


def _run_epoch(maintainer: Maintainer, views: list[ViewRecord]) -> bool:
    """Run one epoch of live views, or the unfinished one again; False if nothing is pending.

    If a load is ready, its views take part, from where they are, and are live after it.
    """
    store, token, report = maintainer.store, maintainer.token, maintainer.report
    epoch, intent, load = store.catalog.epoch, store.catalog.get(INTENT), joining.ready(store)
    if not views and load is None:
        if intent is not None:  # it was for views that are gone
            store.catalog.write({INTENT: None}, token)
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
            store.catalog.write({EPOCH: epoch}, token)
        intent = Epoch(epoch.number + 1, end, now, joins=load is not None)
        intent = replace(intent, tasks=_dealt(maintainer, views, start, intent, epoch.tasks))
        store.catalog.write({INTENT: intent}, token)
    elif not intent.joins:
        load, start = None, epoch.positions
    store.states.begin(token)
    end = _reached(start, intent.positions)
    began, rows, oldest = time.monotonic(), report.rows, oldest_pending(store, epoch.positions)
    own_start = start if load is None else {t: start[t] for t in tables_of(views)}
    own_end = {table: end[table] for table in own_start}
    step = maintainer.step(intent.number, own_start, own_end, intent.tasks)
    _run_or_stop(maintainer, views_touched(views, step), step)
    committed = Epoch(intent.number, end, intent.time, tasks=intent.tasks or epoch.tasks)
    changes = with_changes(store, step.epoch, start, end)
    if load is None:
        store.catalog.write({EPOCH: committed, INTENT: None, **changes}, token)
    else:
        joining.join(maintainer, load, committed, changes)
        committed = store.catalog.epoch
    _acknowledge(maintainer, committed, start)
    if load is not None and not step.changes:  # views have joined; the others are as they were
        return True
    report.epochs += 1
    report.changes += step.changes
    seconds = time.monotonic() - began
    maintainer.lags.append(age_of(oldest))
    report.watch.committed(
        Committed(step.epoch, step.changes, report.rows - rows, seconds, maintainer.lags[-1])
    )
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
    step = maintainer.step(intent.number, own_start, own_end)
    tasks = maintainer.tasks or len(step.shards)
    return deal_out(maintainer.store, views_touched(views, step), step, tasks, before)


def _reached(start: Positions, intent: Positions) -> Positions:
    """The positions of an intent, none before `start`: a table that no view followed for a while
    may be further by now."""
    return {
        table: {r: max(s, intent.get(table, regions).get(r, s)) for r, s in regions.items()}
        for table, regions in start.items()
    }


def _acknowledge(maintainer: Maintainer, epoch: Epoch, start: Positions) -> None:
    """Release the changes that the epoch has, in the regions that have some."""
    for table, positions in epoch.positions.items():
        moved = {r: s for r, s in positions.items() if s != start[table][r]}
        if moved:
            maintainer.store.acknowledge(table, OF_VIEWS, moved)
        if epoch.number % TRIM_EVERY == 0:
            maintainer.store.trim(table, positions, TRIMMED_SECONDS)


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
