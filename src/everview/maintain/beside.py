"""Loads beside epochs: large views get their rows in a thread, while the others go on.

A load reads the tables as they were at the committed epoch, into states of its own. Then it catches
up with the changes since, in large epochs that nobody sees. When few are left it is ready, and its
views join the others at one epoch (`epochs`). The record `load` has its progress: after a crash the
next maintainer goes on with the operators and shards that were not done.

Who holds the lease of loads may change that record; when the load is ready, the maintainer may.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from everview.catalog import (
    LOAD,
    PACE,
    REPLACEMENTS,
    VIEWS,
    Epoch,
    LoadRecord,
    Pace,
    Positions,
    ViewRecord,
)
from everview.catalog.records import BEGINNING, CATCHING_UP, NEW, OVER, READY, ROWS
from everview.engines.failures import run_again
from everview.errors import EverviewError, LoadEnded, TableNotFound
from everview.maintain.cut import cut, time_now
from everview.maintain.loads import FIRST, give_up, new_state
from everview.maintain.maintainer import FAILURES, Maintainer, run_alone
from everview.maintain.recovery import ahead_of_logs
from everview.maintain.views import drop_states, followed_tables, tables_of, without_load
from everview.maintain.waiting import (
    Group,
    is_small,
    recomputed,
    rows_to_read,
    shares_recomputed,
    waiting,
)
from everview.plan.jobs import jobs
from everview.plan.nodes import Node
from everview.programs.programs import Load, Programs
from everview.programs.step import FEW_CHANGES, Step
from everview.progress import progress
from everview.stores.base import LOADS, OF_LOADS, Store

_LOST = (BEGINNING, OVER)  # the stages of a load that nobody goes on with
_LAG_PART = 0.5  # of the bound, below which a load that gave way goes on
_LOOK_SECONDS = 0.05
_TELL_SECONDS = 0.5
_STOP_SECONDS = 60.0  # for which the end of a load is awaited


class Loading:
    """The load beside the epochs of one maintainer, if there is one."""

    def __init__(self) -> None:
        self._loader: _Loader | None = None
        self._tell_after = 0.0

    def advance(self, maintainer: Maintainer) -> bool:
        """Begin a load, look after it, or clean up after it; whether there is one."""
        store = maintainer.store
        record = store.catalog.get(LOAD)
        if record is not None and not self._is_current(maintainer, record):
            self.end(store, maintainer.token)
            record = _without_changed(maintainer)
            if record is None:
                return True
        if record is None:
            group = _large(store)
            if group is None:
                return False
            record = _begun(maintainer, group)
            for number, view in enumerate(record.views, 1):
                maintainer.report.watch.loading(view.name, number, len(record.views))
        if self._loader is None and record.stage != READY:
            self._loader = _Loader(maintainer, record)
        elif self._loader is not None and not self._loader.is_alive():
            loader, self._loader = self._loader, None
            loader.settle(maintainer)
        self._set_pace(maintainer, record)
        return True

    def _is_current(self, maintainer: Maintainer, record: LoadRecord) -> bool:
        """Whether the load is still for views that wait for it, and for this maintainer."""
        if self._loader is not None and self._loader.token != maintainer.token:
            return False
        if record.stage in _LOST or shares_recomputed(maintainer.store, list(record.views)):
            return False
        return len(_wanted(maintainer.store, record)) == len(record.views)

    def _set_pace(self, maintainer: Maintainer, record: LoadRecord) -> None:
        """Let the load wait while live views are too far behind."""
        pace = maintainer.store.catalog.get(PACE)
        bound = min(view.load_lag for view in record.views)
        waits = pace is not None and pace.waits
        waits = max(maintainer.lags, default=0.0) > (bound * _LAG_PART if waits else bound)
        maintainer.lags.clear()
        if (new := Pace(record.notes, waits)) != pace:
            maintainer.store.catalog.write({PACE: new}, maintainer.token)

    def wait(self, maintainer: Maintainer) -> None:
        """Wait a moment for the load, and tell how far it is."""
        if self._loader is None:
            time.sleep(_LOOK_SECONDS)
        else:
            self._loader.join(_LOOK_SECONDS)
        if time.monotonic() > self._tell_after:
            self._tell_after = time.monotonic() + _TELL_SECONDS
            if (now := progress(maintainer.store)) is not None:
                maintainer.report.watch.progress(now)

    def end(self, store: Store, token: int) -> None:
        """Stop the thread of the load, if it runs; the next `advance` goes on with the rest."""
        loader, self._loader = self._loader, None
        if loader is not None:
            with suppress(EverviewError):
                store.catalog.write({PACE: None}, token)
            loader.ends.set()
            loader.join(_STOP_SECONDS)


def _wanted(store: Store, record: LoadRecord) -> list[ViewRecord]:
    """The views of a load that wait for it, as they were when it began."""
    return [view for view in record.views if _waiting_view(store, record, view) == _plain(view)]


def _waiting_view(store: Store, record: LoadRecord, view: ViewRecord) -> ViewRecord | None:
    if record.root is None:
        new = store.catalog.get(VIEWS[view.name])
        return None if new is None or new.status != NEW else _plain(new)
    replacement = store.catalog.get(REPLACEMENTS[view.name])
    if replacement is None or replacement.root != record.root:
        return None
    return _plain(replacement.view)


def _plain(view: ViewRecord) -> ViewRecord:
    return replace(view, states={})


def _without_changed(maintainer: Maintainer) -> LoadRecord | None:
    """The load without views that were dropped or changed meanwhile; None if none are left, or if
    all go together."""
    store, token = maintainer.store, maintainer.token
    record = store.catalog.get(LOAD)
    if record is None:
        return None
    wanted = _wanted(store, record)
    is_lost = record.stage in _LOST or shares_recomputed(store, list(record.views))
    is_lost |= bool(ahead_of_logs(store, Epoch(record.number, record.positions)))
    is_whole = len(wanted) == len(record.views) or record.root is None
    if wanted and is_whole and not is_lost:
        less = record.of(wanted)
        store.catalog.write({LOAD: less}, token)
        _unregister(store, record.tables - less.tables)
        return less
    store.catalog.write(without_load(store), token)
    clean_up(store, token)
    return None


def clean_up(store: Store, token: int) -> None:
    """Let go of the logs and states of a load that is over."""
    record = store.catalog.get(LOAD)
    if record is None or record.stage != OVER:
        return
    _unregister(store, record.tables)
    drop_states(store, store.states.names(), store.catalog.all(VIEWS).values())
    store.catalog.write({LOAD: None, PACE: None}, token)


def _unregister(store: Store, tables: Iterable[str]) -> None:
    for table in tables:
        with suppress(TableNotFound):
            store.unregister(table, OF_LOADS)


def _large(store: Store) -> Group | None:
    """The next views to load beside epochs: all large new ones, or a group of new definitions."""
    groups = [group for group in waiting(store) if not is_small(store, group)]
    new = [view for group in groups if group.root is None for view in group.views]
    return Group(new) if new else next(iter(groups), None)


def _begun(maintainer: Maintainer, group: Group) -> LoadRecord:
    """A new load, as of the committed epoch, with places for all of its states; tables that no live
    view follows are read as of the epoch's time."""
    store, token = maintainer.store, maintainer.token
    epoch, views = store.catalog.epoch, group.views
    positions = _latest(store, tables_of(views))
    operators = {node.identity: new_state() for node in _operators(views)}
    places = {node.identity: new_state() for node in _operators(views)}
    placed = tuple(
        replace(view, states={i: operators[i] for i in _identities(view)} | {ROWS: new_state()})
        for view in views
    )
    record = LoadRecord(
        views=placed,
        root=group.root,
        number=max(epoch.number, FIRST),
        positions=positions,
        places=places,
        notes=new_state(),
        expected_rows=rows_to_read(store, views),
        begun=time.time(),
    )
    store.states.begin(token)
    store.catalog.write({LOAD: replace(record, stage=BEGINNING)}, token)
    for state in record.states:
        store.states.create(state, views[0].shards)
    for table, regions in positions.items():
        store.register(table, OF_LOADS, regions)
    store.catalog.write({LOAD: record, PACE: Pace(record.notes)}, token)
    return record


def _latest(store: Store, tables: Iterable[str]) -> Positions:
    """The positions of tables in the committed epoch; of tables that no live view follows, the
    positions at its time."""
    epoch, followed = store.catalog.epoch, followed_tables(store)
    time_ = epoch.time if followed else time_now()
    return {
        table: epoch.positions[table] if table in followed else store.positions_at(table, time_)
        for table in tables
    }


def _operators(views: Sequence[ViewRecord]) -> list[Node]:
    return [node for view in views for node in view.plan.walk() if node.is_operator]


def _identities(view: ViewRecord) -> list[str]:
    return [node.identity for node in _operators([view])]


def _of_keys(values: Mapping[str, str], keys: Collection[str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if key in keys}


@dataclass(frozen=True)
class _Failure:
    """A view that can't be loaded, in which step, and why."""

    view: ViewRecord
    step: Step
    reason: str


class _Loader(threading.Thread):
    """Loads the views of a record and lets them catch up. An error of the engine stays in `error`,
    and views that fail in `failures`."""

    def __init__(self, maintainer: Maintainer, record: LoadRecord) -> None:
        super().__init__(name="everview load", daemon=True)
        self.token = maintainer.token
        self.ends = threading.Event()
        self.failures: list[_Failure] = []
        self.error: BaseException | None = None
        self._maintainer, self._store = maintainer, maintainer.store
        self._record = record
        self._programs: Programs | None = None
        self.start()

    def settle(self, maintainer: Maintainer) -> None:
        """Stop the views that failed. Raises the error with which the load ended."""
        record = self._store.catalog.get(LOAD)
        for failure in self.failures if record is not None else ():
            step = replace(failure.step, start=None)
            give_up(maintainer, self._record.root, failure.view, step, failure.reason)
        if self.error is not None and not isinstance(self.error, LoadEnded):
            raise self.error

    def run(self) -> None:
        try:
            with self._store.leases.hold_if_free(LOADS) as token:
                record = self._store.catalog.get(LOAD)
                if token != self.token or record is None or record.notes != self._record.notes:
                    return
                self._record = record
                self._go_on()
                self._load()
                if not self.failures:
                    self._catch_up()
        except BaseException as error:
            self.error = error

    def _go_on(self) -> None:
        """Go on after an earlier try. Operators that the engine computes begin with new states:
        rows may come out otherwise this time, and a process of the earlier try may still write."""
        record, states = self._record, self._store.states
        rows = sum(states.shard(record.notes, self._shards[0]).noted_rows().values())
        nodes = [node for view in record.views for node in recomputed(view.plan)]
        moved = {n.identity: new_state() for n in nodes if n.identity not in record.outputs}
        places = {identity: new_state() for identity in moved}
        for state in (*moved.values(), *places.values()) if rows else ():
            states.create(state, self._shards)
        if rows:
            views = [
                replace(v, states={**v.states, **_of_keys(moved, v.states)}) for v in record.views
            ]
            places = {**record.places, **places}
            self._write(begun=time.time(), rows_before=rows, views=tuple(views), places=places)

    @property
    def _shards(self) -> tuple[int, ...]:
        return self._record.views[0].shards

    def _write(self, **fields: Any) -> None:
        """Note progress."""
        if self.ends.is_set():
            raise LoadEnded("this load was ended; the next run goes on with it")
        self._record = replace(self._record, **fields)
        self._store.catalog.write({LOAD: self._record}, self.token)

    def _run(self, work: Callable[[Programs], int]) -> None:
        """Do work in programs of its own, beside those of epochs."""
        engine = self._maintainer.engine

        def run() -> int:
            if self._programs is None or self._programs.session is not engine.session:
                self._programs = Programs(engine.session, here=engine.name == "sail")
            return work(self._programs)

        self._maintainer.report.rows += run_again(engine, run)

    def _load(self) -> None:
        for view in self._record.views:
            if view.name in self._record.loaded or self.failures:
                continue
            record = self._record
            step = self._step(record.number, None, record.positions)
            try:
                self._run(partial(self._load_view, view, step))
            except FAILURES as error:
                self._fail(view, step, {}, error)
                continue
            self._write(loaded=(*self._record.loaded, view.name))

    def _load_view(self, view: ViewRecord, step: Step, programs: Programs) -> int:
        """Do what is left to do: an operator whose output is stored runs no more."""
        outputs = self._record.outputs
        fresh = {i: state for i, state in view.operators.items() if i not in outputs}
        planned = jobs([view.plan], worth=0, stored=outputs)
        load = Load(fresh, {}, planned, self._record.places, outputs, self._note_outputs)
        return programs.load(view, step, load)

    def _note_outputs(self, nodes: Sequence[Node]) -> None:
        identities = [node.identity for node in nodes]
        self._write(outputs=(*self._record.outputs, *identities))

    def _step(self, number: int, start: Positions | None, end: Positions) -> Step:
        record = self._record
        address = self._store.address
        return Step(address, self._shards, self.token, number, start, end, notes=record.notes)

    def _fail(
        self, view: ViewRecord, step: Step, states: dict[str, str], error: EverviewError
    ) -> None:
        """Note that a view fails, unless it does so because the load was ended."""
        if self.ends.is_set():
            raise LoadEnded("this load was ended") from error
        reason = self._maintainer.reason(view, step, states, error)
        self.failures.append(_Failure(view, step, reason))

    def _catch_up(self) -> None:
        """Run epochs of these views alone, until few changes are left, or ever more come."""
        before: float = float("inf")
        while True:
            if self._record.end is None:
                end, left = self._next_end()
                if left <= FEW_CHANGES or left >= before:
                    self._write(stage=READY)
                    return
                before = left
                self._write(stage=CATCHING_UP, end=end)
            record = self._record
            assert record.end is not None
            step = self._step(record.number + 1, record.positions, record.end)
            self._run_views(step)
            if self.failures:
                return
            self._write(number=step.epoch, positions=record.end, end=None)
            for table, positions in self._record.positions.items():
                self._store.acknowledge(table, OF_LOADS, positions)

    def _next_end(self) -> tuple[Positions, int]:
        """Where the next epoch of the load ends: not after the committed epoch, nor more than a
        batch; and how many changes there are up to the committed epoch."""
        record, store = self._record, self._store
        at_epoch = _latest(store, record.tables)
        latest = {
            t: {r: max(s, at_epoch[t][r]) for r, s in regions.items()}
            for t, regions in record.positions.items()
        }
        batch_end, _ = cut(store, record.positions, record.views, self._maintainer.batch)
        end = {
            t: {r: max(s, min(batch_end[t][r], latest[t][r])) for r, s in regions.items()}
            for t, regions in record.positions.items()
        }
        left = sum(
            latest[t][r] - s for t, regions in record.positions.items() for r, s in regions.items()
        )
        return end, left

    def _run_views(self, step: Step) -> None:
        """Run an epoch for all views at once; if that fails, view by view."""
        assert step.start is not None
        views = [
            view
            for view in self._record.views
            if any(step.start[t] != step.end[t] for t in view.tables)
        ]
        states = {i: state for view in views for i, state in view.operators.items()}
        try:
            self._run(lambda programs: programs.run(views, step, states))
        except FAILURES:
            for view in views:
                try:
                    self._run(partial(run_alone, view, step))
                except FAILURES as error:
                    self._fail(view, step, view.operators, error)
