"""The maintainer: loads new views, and runs epochs until nothing is pending.

Progress is in the store alone: the document `epoch` has the committed epoch and its positions in
every table's log; `intent` has the epoch that was begun. An intent without its commit is run again
with the same ranges; what was applied already answers from its outbox. A view's document says
where its operators keep their state; equal operators of several views keep it once.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from itertools import count
from typing import TYPE_CHECKING, Any

from everview.analysis import changes_of, with_changes
from everview.errors import (
    Damaged,
    DataError,
    EngineFailed,
    EverviewError,
    OutOfReach,
    Overflow,
    SqlError,
    TooManyRows,
    UnsupportedSql,
)
from everview.plan.distribution import UNNAMED, distribution, shards_by
from everview.plan.jobs import jobs
from everview.plan.nodes import Replace, node_of
from everview.plan.ordering import has_map
from everview.run.cut import Positions, cut, positions_at, time_now
from everview.run.diagnosis import failing_row
from everview.run.engine import Engine
from everview.run.failures import UNKNOWN_TRIES, run_again
from everview.run.programs import Load, Programs
from everview.run.recovery import (
    ahead_of_logs,
    anew,
    epoch_document,
    read_positions,
    recover,
    settle_if_quiet,
)
from everview.run.rounds import Kept
from everview.run.watching import Epoch, Watcher
from everview.run.workers import Step
from everview.schema import has_floats
from everview.stores.base import OF_VIEWS
from everview.stores.embedded import unsynced
from everview.stores.embedded.lease import ASIDE_SECONDS, LEASE_SECONDS, WORK
from everview.view import WAITING, age_of, oldest_pending
from everview.view import View as Handle

if TYPE_CHECKING:
    from everview.stores.embedded import EmbeddedStore

View = dict[str, Any]
FAILURES = (SqlError, DataError, Damaged)  # of a view; the others go on
TRIM_EVERY = 20  # epochs
KEPT_SECONDS = 600.0


@dataclass
class Report:
    """What `maintain` did; `failed` says why views had to stop, `recovered` why all were made anew
    after a crash of the machine."""

    epochs: int = 0
    changes: int = 0
    rows: int = 0
    seconds: float = 0.0
    loaded: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    recovered: str | None = None
    watch: Watcher = field(default_factory=Watcher, repr=False, compare=False)


def maintain(
    store: EmbeddedStore,
    engine: Engine,
    watch: Watcher | None = None,
    lease: float = LEASE_SECONDS,
) -> Report:
    """Bring every view up to the newest change; waits while another process does so.

    One that gives no sign of life for `lease` seconds is superseded. If that happens to this one,
    it waits for its turn again.
    """
    report, begun = Report(watch=watch or Watcher()), time.monotonic()
    while not _maintain(store, engine, report, lease):
        time.sleep(ASIDE_SECONDS)
    report.seconds = time.monotonic() - begun
    return report


def _maintain(store: EmbeddedStore, engine: Engine, report: Report, lease: float) -> bool:
    """False if another took over meanwhile, or waits for its turn."""
    with store.leases.held(WORK, lease, report.watch.waiting) as token:
        try:
            if reason := recover(store, token):
                report.recovered = reason
                report.watch.recovering(reason)
            _fence(store, token)
            _stop_ahead(store, token, report)
            _reload_doubtful(store, token)
            is_done = _run_epochs(store, engine, token, report)  # new views are loaded as of now
            while _load_new(store, engine, token, report):
                is_done = _run_epochs(store, engine, token, report)
            if is_done:
                settle_if_quiet(store, token)
            if store.document(WAITING) is not None:
                store.store_documents({WAITING: None}, token)
        except EverviewError as error:
            if store.leases.token != token:
                return False
            if isinstance(error, EngineFailed):
                store.store_documents({WAITING: {"why": str(error)}}, token)
            raise
    return is_done


def _fence(store: EmbeddedStore, token: int) -> None:
    """After a maintainer was superseded, see to it that it can write nothing any more."""
    if store.leases.is_fenced:
        return
    unsynced.mark(store, token)
    views = store.documents("view/")
    shards = {state: view["shards"] for view in views.values() for state in view["states"].values()}
    names = {state: store.fence(state, numbers, token) for state, numbers in shards.items()}
    moved = {
        key: view | {"states": {node: names[state] for node, state in view["states"].items()}}
        for key, view in views.items()
        if any(names[state] != state for state in view["states"].values())
    }
    store.store_documents(moved, token)
    store.leases.set_fenced(token)
    for state in names:
        if names[state] != state:
            store.drop_state(state)


def _stop_ahead(store: EmbeddedStore, token: int, report: Report) -> None:
    """Stop views that have more of a table than its log: what comes next, they would not see."""
    epoch, views = store.document("epoch"), store.documents("view/").values()
    live = [view for view in views if view["status"] == "live"]
    if epoch is None or not live:
        return
    ahead = ahead_of_logs(store, store.document("intent") or {}) | ahead_of_logs(store, epoch)
    for view in live:
        if found := [ahead[table] for table in view["tables"] if table in ahead]:
            positions = read_positions(epoch["positions"])
            step = _step(store, view, token, epoch["number"] + 1, positions, positions)
            _stop(store, view, step, "; ".join(found), report)


def _reload_doubtful(store: EmbeddedStore, token: int) -> None:
    """Have views made anew that were loaded before every operator had to note its end: one that an
    engine left out would have no state."""
    doubtful = {
        key: anew(view)
        for key, view in store.documents("view/").items()
        if view["status"] == "live" and not view.get("noted")
    }
    if doubtful:
        store.store_documents(doubtful, token)


@contextmanager
def alone(store: EmbeddedStore) -> Iterator[int]:
    """Inside the block nothing is maintained; gives the token to write with."""
    with store.leases.held(WORK, LEASE_SECONDS, Watcher().waiting) as token:
        _fence(store, token)
        yield token


def forget_views(store: EmbeddedStore, names: list[str], token: int) -> None:
    """Stop maintaining views, and keeping what no other view needs: state and logs."""
    kinds = ("view", "replacement")
    _change_views(store, token, {f"{kind}/{n.lower()}": None for kind in kinds for n in names})


def _change_views(store: EmbeddedStore, token: int, changes: dict[str, View | None]) -> None:
    """Write documents of views, and let go of the state and logs that no view needs then."""
    before = store.documents("view/")
    after = {key: view for key, view in (before | changes).items() if key.startswith("view/")}
    views = [view for view in after.values() if view is not None]
    unused = _tables_of(before.values()) - _tables_of(views)
    epoch = store.document("epoch")
    if epoch is not None and unused:
        kept = {t: p for t, p in epoch["positions"].items() if t not in unused}
        changes = changes | {"epoch": epoch | {"positions": kept}}
        changes |= dict.fromkeys(map(changes_of, unused))
    store.store_documents(changes, token)
    _drop_states(store, _all_states(before.values()), views)
    for table in unused:
        store.unregister(table, OF_VIEWS)


def rebuild_view(store: EmbeddedStore, name: str) -> None:
    """Have a view made anew by the next `maintain`, and those that share state with it."""
    with alone(store) as token:
        name = Handle(store, name).name  # unless it went meanwhile
        views = store.documents("view/")
        states = set(views[f"view/{name.lower()}"]["states"].values())
        affected = {
            key: anew(view)
            for key, view in views.items()
            if states & set(view["states"].values()) or key == f"view/{name.lower()}"
        }
        store.store_documents(affected, token)


def _drop_states(store: EmbeddedStore, states: Iterable[str], views: Iterable[View]) -> None:
    for state in set(states) - _all_states(views):
        store.drop_state(state)


def _all_states(views: Iterable[View]) -> set[str]:
    return {state for view in views for state in view["states"].values()}


def _load_new(store: EmbeddedStore, engine: Engine, token: int, report: Report) -> bool:
    """Load views that were just created, and new definitions of others; False if there are none."""
    groups = _waiting(store)
    numbers, of = count(1), sum(map(len, groups))
    for group in groups:
        loaded: dict[str, tuple[View, float]] = {}
        for view in group:
            report.watch.loading(view["name"], next(numbers), of)
            begun = time.monotonic()
            view, step, load = _prepared(store, token, view, [one for one, _ in loaded.values()])
            try:
                report.rows += _run(engine, lambda it: it.load(view, step, load))  # noqa: B023
            except FAILURES as error:
                _give_up(store, view, step, _placed(store, engine, view, step, {}, error), report)
                break
            finally:
                _drop_states(store, load.places.values(), [])
            loaded[view["name"]] = view, time.monotonic() - begun
        else:
            _put_in_place(store, token, [view for view, _ in loaded.values()])
            for name, (_, seconds) in loaded.items():
                report.loaded.append(name)
                report.watch.loaded(name, seconds)
    return bool(groups)


def _waiting(store: EmbeddedStore) -> list[list[View]]:
    """What is to be loaded, each view after those that it reads: new ones one by one, definitions
    that replace others with those of the same statement."""
    new = [view for view in store.documents("view/").values() if view["status"] == "new"]
    replacing: dict[str, list[View]] = {}
    for view in store.documents("replacement/").values():
        replacing.setdefault(view["root"], []).append(view)
    return [*([view] for view in _in_order(new)), *map(_in_order, replacing.values())]


def _in_order(views: list[View]) -> list[View]:
    """Each view after those that it reads."""
    named = {view["name"].lower(): view for view in views}
    over = {name: map(str.lower, view["views"].values()) for name, view in named.items()}
    return [named[name] for name in TopologicalSorter(over).static_order() if name in named]


def _prepared(
    store: EmbeddedStore, token: int, view: View, beside: list[View]
) -> tuple[View, Step, Load]:
    """What it takes to load a view beside others that were just loaded: the view with places for
    its state, the step, and the rest.

    A view is loaded as of the committed epoch: also of tables that no live view follows, its time
    is what counts.
    """
    live = [one for one in store.documents("view/").values() if one["status"] == "live"]
    followed = _tables_of([*live, *beside])
    epoch = store.document("epoch") or epoch_document(1, {}, 0)
    positions, now = read_positions(epoch["positions"]), time_now()
    if positions_at(store, positions, followed, now) != positions:
        now = epoch["time"]  # changes came since the last epoch
    for table in _tables_of([view]) - followed:
        positions[table] = store.positions_at(table, now)
        store.register(table, OF_VIEWS, positions[table])
    unsynced.mark(store, token)
    view, load = _with_states(store, view, beside)
    store.store_documents({"epoch": epoch_document(epoch["number"], positions, now)}, token)
    return view, _step(store, view, token, epoch["number"], None, positions), load


def _with_states(store: EmbeddedStore, view: View, beside: list[View]) -> tuple[View, Load]:
    """The view with a place for each operator's state: that of an equal one, or a fresh one."""
    views = store.documents("view/").values()
    _drop_states(store, store.states(), [*views, *beside])  # what a load left that failed
    plan = node_of(view["plan"])
    operators = {node.identity: node for node in plan.walk() if node.is_operator}
    there = [*(other for other in views if other["status"] == "live"), *beside]
    live = _states(there)
    fresh = {identity: _new_state() for identity in operators.keys() - live.keys()}
    shared = {identity: live[identity] for identity in operators.keys() & live.keys()}
    states = {**shared, **fresh, "view": _new_state()}
    recomputed = {i: Kept(at) for i, at in shared.items() if isinstance(operators[i], Replace)}
    lie_by_columns = any(UNNAMED in shards_by(node) for node in operators.values())
    rows = (_rows_of(other, lie_by_columns) for other in there)
    kept = recomputed | dict(filter(None, rows))
    found = jobs([plan], worth=1, given=kept)
    places = {node.identity: _new_state() for part in found.ahead for node in part}
    for state in (*fresh.values(), states["view"], *places.values()):
        for shard in view["shards"]:
            store.shard(state, shard, create=True)
    return view | {"states": states}, Load(fresh, kept, found, places)


def _new_state() -> str:
    return uuid.uuid4().hex[:12]


def _rows_of(view: View, lie_by_columns: bool) -> tuple[str, Kept] | None:
    """The rows of a view in place of its plan; not if they are told apart by doubles, as 0.0 and
    -0.0 are there as one, nor if they have maps, whose entries are there in another order, nor if
    they have to lie where they do and no column says where."""
    plan = node_of(view["plan"])
    has_place = distribution(plan) != UNNAMED or not lie_by_columns
    has_doubles = any(has_floats(plan.column(name).type) for name in view["key"])
    if not has_place or has_doubles or any(has_map(column.type) for column in plan.columns):
        return None
    return plan.identity, Kept(view["states"]["view"], tuple(view["key"]))


def _put_in_place(store: EmbeddedStore, token: int, views: list[View]) -> None:
    """Let readers see views that were loaded, in place of those that they replace."""
    changes: dict[str, View | None] = {}
    live = {
        "status": "live",
        "noted": True,
        "loaded_at": (store.document("epoch") or epoch_document(1, {}, 0))["number"],
    }
    for view in views:
        kept = {name: value for name, value in view.items() if name not in ("root", "rebuilding")}
        changes[f"view/{view['name'].lower()}"] = kept | live
        changes[f"replacement/{view['name'].lower()}"] = None
    _change_views(store, token, changes)


def _give_up(store: EmbeddedStore, view: View, step: Step, what: str, report: Report) -> None:
    """Stop a view that can't be loaded; or if it was to replace another, let that one be."""
    if "root" not in view:
        _stop(store, view | {"states": {}}, step, what, report)
    else:
        reason = (
            f"{what}; so nothing was replaced. Write CREATE OR REPLACE again when that is mended, "
            "or with another query"
        )
        root, changes = view["root"], dict[str, View | None]()
        for key, other in store.documents("replacement/").items():
            if other["root"] == root:
                changes[key] = None
        key = f"view/{root.lower()}"
        changes[key] = (store.document(key) or {}) | {"error": reason}
        store.store_documents(changes, step.token)
        report.failed[root] = reason
        report.watch.kept(root, reason)
    _drop_states(store, store.states(), store.documents("view/").values())


def _run_epochs(store: EmbeddedStore, engine: Engine, token: int, report: Report) -> bool:
    """Until nothing is pending; False if others come first, as changes may never cease: a view
    is to be loaded, or someone waits for the lease."""
    while report.watch.goes_on() and _run_epoch(store, engine, token, report):
        if _waiting(store):
            return False
        if store.leases.is_wanted(WORK):
            return False
    return True


def _run_epoch(store: EmbeddedStore, engine: Engine, token: int, report: Report) -> bool:
    """Run one epoch, or the one that was not finished; False if nothing is pending."""
    views = [v for v in store.documents("view/").values() if v["status"] == "live"]
    epoch, intent = store.document("epoch"), store.document("intent")
    if not views or epoch is None:
        if intent is not None:  # what was begun was for views that are gone
            store.store_documents({"intent": None}, token)
        return False
    start = read_positions(epoch["positions"])
    if intent is None or intent["number"] <= epoch["number"]:
        end, now = cut(store, start, views)
        if end == start:
            return False
        intent = epoch_document(epoch["number"] + 1, end, now)
        store.store_documents({"intent": intent}, token)
    unsynced.mark(store, token)
    begun = read_positions(intent["positions"])
    # a table that was let go of since, and is followed again, may be further than it was then
    end = {
        table: {r: max(s, begun.get(table, regions).get(r, s)) for r, s in regions.items()}
        for table, regions in start.items()
    }
    began, rows, oldest = time.monotonic(), report.rows, oldest_pending(store, start)
    touched = [view for view in views if any(start[t] != end[t] for t in view["tables"])]
    step = _step(store, views[0], token, intent["number"], start, end)
    _run_or_stop(store, engine, touched, step, report)
    committed = epoch_document(intent["number"], end, intent["time"])
    changes = with_changes(store, step.epoch, start, end)
    store.store_documents({"epoch": committed, "intent": None, **changes}, token)
    for table, positions in end.items():
        store.acknowledge(table, OF_VIEWS, positions)
        if intent["number"] % TRIM_EVERY == 0:
            store.trim(table, positions, KEPT_SECONDS)
    report.epochs += 1
    report.changes += step.changes
    report.watch.committed(
        Epoch(
            step.epoch, step.changes, report.rows - rows, time.monotonic() - began, age_of(oldest)
        )
    )
    return True


def _run_or_stop(
    store: EmbeddedStore, engine: Engine, views: list[View], step: Step, report: Report
) -> None:
    """Run an epoch for all views at once; if that fails, whatever the engine throws, one by one,
    and stop those that fail.

    One that fails is tried again before it is stopped: it may have been the engine's fault.
    """
    try:
        tries = 1 if len(views) > 1 else UNKNOWN_TRIES
        report.rows += _run(engine, lambda it: it.run(views, step, _states(views)), tries)
    except FAILURES:
        for view in views:
            states = _states([view])
            try:
                report.rows += _run(engine, lambda it: it.run([view], step, states), 1)  # noqa: B023
            except FAILURES as error:
                placed = _placed(store, engine, view, step, states, error)
                _stop(store, view, step, placed, report)


def _placed(
    store: EmbeddedStore,
    engine: Engine,
    view: View,
    step: Step,
    states: Mapping[str, str],
    error: EverviewError,
) -> str:
    """What went wrong, and on which row, with a remedy; operators say so themselves."""
    what = " ".join(str(error).split("\n== SQL")[0].split())
    if isinstance(error, Overflow | Damaged | TooManyRows | OutOfReach | UnsupportedSql):
        return what
    tables = {table: store.describe(table) for table in view["tables"]}
    keys = {name: tuple(map(table.column, table.key)) for name, table in tables.items()}
    row = failing_row(engine.session, node_of(view["plan"]), step, states, keys)
    if row is not None:
        return f"{what.rstrip('.')}, on {row}; mend the row"
    if engine.name == "sail":
        return f"{what.rstrip('.')}; if it is Sail that lacks something, use the engine spark"
    return what


def _stop(store: EmbeddedStore, view: View, step: Step, what: str, report: Report) -> None:
    """Keep a view as it was before a step, and say why."""
    name = view["name"]
    reason = (
        f"{what}. When that is mended, everview verify DB {name} --repair makes the view anew; or "
        f"DROP VIEW {name} and create it with another query"
    )
    stopped = {
        "status": "stopped",
        "stopped_at": 0 if step.start is None else step.epoch - 1,
        "positions": {t: p for t, p in (step.start or {}).items() if t in view["tables"]},
        "error": reason,
    }
    store.store_documents({f"view/{name.lower()}": view | stopped}, step.token)
    report.failed[name] = reason
    report.watch.stopped(name, reason)


def _run(
    engine: Engine, work: Callable[[Programs], int], unknown_tries: int = UNKNOWN_TRIES
) -> int:
    return run_again(engine, lambda: work(engine.programs), unknown_tries)


def _step(
    store: EmbeddedStore,
    view: View,
    token: int,
    epoch: int,
    start: Positions | None,
    end: Positions,
) -> Step:
    shards = tuple(view["shards"])
    return Step(store.path, store.durability, shards, token, epoch, start, end)


def _states(views: list[View]) -> dict[str, str]:
    """Where operators keep their state, by identity."""
    return {i: state for v in views for i, state in v["states"].items() if i != "view"}


def _tables_of(views: Iterable[View]) -> set[str]:
    return {table for view in views for table in view["tables"]}
