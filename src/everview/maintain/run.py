"""The maintainer: loads new views, and runs epochs until nothing is pending.

Only the store has the progress. For each group of views the record `epoch` has the committed epoch
and its positions in every table's log; `intent` has the epoch that was begun. An epoch that was
begun but not committed runs again with the same ranges; the law of states makes that harmless. A
view's record says where its operators have their state; equal operators of several views of a group
share one.
"""

from __future__ import annotations

import time

from everview.batch import USUAL, Batch
from everview.catalog import (
    NAMED,
    NO_EPOCH,
    VIEWS,
    WAITING,
    Waiting,
    epoch_key,
    intent_key,
)
from everview.catalog.views import LOAD_NOTES
from everview.engines.engine import Engine
from everview.errors import EngineFailed, EverviewError
from everview.maintain import joining
from everview.maintain.beside import Loading
from everview.maintain.epochs import run_epochs
from everview.maintain.loads import load_small
from everview.maintain.maintainer import Maintainer
from everview.maintain.recovery import ahead_of_logs, recover, settle_if_quiet
from everview.maintain.report import Report
from everview.maintain.views import fence, live_views
from everview.maintain.watching import Watcher
from everview.stores.base import ASIDE_SECONDS, LEASE_SECONDS, WORK, Store


def maintain(
    store: Store,
    engine: Engine,
    watch: Watcher | None = None,
    lease: float = LEASE_SECONDS,
    batch: Batch = USUAL,
) -> Report:
    """Bring every view up to the newest change; waits while another process does so.

    A maintainer that gives no sign of life for `lease` seconds is superseded. If that happens to
    this one, it waits for its turn again.
    """
    report, begun, loading = Report(watch=watch or Watcher()), time.monotonic(), Loading()
    turns: list[str] = []
    try:
        while not _maintain(store, engine, report, lease, batch, loading, turns):
            time.sleep(ASIDE_SECONDS)
    finally:
        loading.end(store, store.leases.token)
    report.seconds = time.monotonic() - begun
    _tell_of_members(store, report)
    return report


def _tell_of_members(store: Store, report: Report) -> None:
    """Let the report name the members of families that Everview made, and not the families."""
    hidden = {view.name for view in store.catalog.all(VIEWS).values() if view.like is not None}
    if hidden.isdisjoint([*report.loaded, *report.failed]):
        return
    members: dict[str, list[str]] = {}
    for named in store.catalog.all(NAMED).values():
        members.setdefault(named.family, []).append(named.name)
    report.loaded = [name for view in report.loaded for name in (members.get(view, [view]))]
    report.failed = {
        name: reason
        for view, reason in report.failed.items()
        for name in (members.get(view, [view]))
    }


def _maintain(
    store: Store,
    engine: Engine,
    report: Report,
    lease: float,
    batch: Batch,
    loading: Loading,
    turns: list[str],
) -> bool:
    """False if another process took over meanwhile, or waits for its turn."""
    with store.leases.hold(WORK, lease, report.watch.waiting) as token:
        maintainer = Maintainer(store, engine, token, report, batch, turns=turns)
        try:
            return _run(maintainer, loading)
        except EverviewError as error:
            if store.leases.token != token:
                return False
            if isinstance(error, EngineFailed):
                is_of_groups = error in maintainer.held.values()
                groups = tuple(maintainer.held) if is_of_groups else None
                store.catalog.write({WAITING: Waiting(str(error), groups)}, token)
            raise


def _run(maintainer: Maintainer, loading: Loading) -> bool:
    """False if another process waits for its turn. Raises what the engine raised for a group, when
    the others have come to the newest change."""
    if reason := recover(maintainer.store, maintainer.token):
        maintainer.report.recovered = reason
        maintainer.report.watch.recovering(reason)
    fence(maintainer.store, maintainer.token)
    _stop_ahead(maintainer)
    _reload_doubtful(maintainer)
    is_done = run_epochs(maintainer)  # new views are loaded as of now
    _wait_no_more(maintainer)
    while load_small(maintainer) or loading.advance(maintainer):
        is_done = run_epochs(maintainer)
        if maintainer.store.leases.is_wanted(WORK):
            return False
        if not maintainer.report.watch.awaits_loads():
            break
        if is_done and _holds_load(maintainer):
            break
        if is_done:
            loading.wait()
    for error in maintainer.held.values():
        raise error
    if is_done:
        maintainer.store.states.sweep()
        settle_if_quiet(maintainer.store, maintainer.token)
    return is_done


def _wait_no_more(maintainer: Maintainer) -> None:
    """Note that the engine works again, for all groups but those for which it has just failed."""
    waiting, held = maintainer.store.catalog.get(WAITING), maintainer.held
    still = Waiting(str(next(iter(held.values()))), tuple(held)) if held else None
    if waiting != still:
        maintainer.store.catalog.write({WAITING: still}, maintainer.token)


def _holds_load(maintainer: Maintainer) -> bool:
    """Whether a load can't end now, as its group waits for the engine."""
    load = joining.ready(maintainer.store)
    return load is not None and load.group in maintainer.held


def _stop_ahead(maintainer: Maintainer) -> None:
    """Stop views that are ahead of a table's log: they would miss the next changes."""
    for group in maintainer.store.catalog.groups():
        _stop_ahead_in(maintainer, group)


def _stop_ahead_in(maintainer: Maintainer, group: str) -> None:
    epoch = maintainer.store.catalog.get(epoch_key(group))
    live = live_views(maintainer.store, group)
    if epoch is None or not live:
        return
    intent = maintainer.store.catalog.get(intent_key(group)) or NO_EPOCH
    ahead = ahead_of_logs(maintainer.store, intent) | ahead_of_logs(maintainer.store, epoch)
    for view in live:
        if losses := [ahead[table] for table in view.tables if table in ahead]:
            at = epoch.positions
            step = maintainer.step(epoch.number + 1, at, at)
            maintainer.stop(view, step, "; ".join(losses))


def _reload_doubtful(maintainer: Maintainer) -> None:
    """Mark views to be loaded again if their state may lack rows: an older version loaded them,
    whose operators did not note their end, or noted it though Sail had taken their rows away."""
    doubtful = {
        key: view.anew()
        for key, view in maintainer.store.catalog.all(VIEWS).items()
        if view.is_live and view.load_notes < LOAD_NOTES
    }
    if doubtful:
        maintainer.store.catalog.write(doubtful, maintainer.token)
