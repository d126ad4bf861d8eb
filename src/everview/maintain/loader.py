"""The thread that loads the views of a record, and lets them catch up."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from everview.catalog import LOAD, LoadRecord, Positions, ViewRecord
from everview.catalog.loads import CATCHING_UP, READY
from everview.engines.failures import run_again
from everview.errors import EverviewError, LoadEnded
from everview.maintain.cut import cut, moment_of
from everview.maintain.loads import create_states, give_up, new_state, volume_of
from everview.maintain.maintainer import FAILURES, Maintainer, run_alone
from everview.maintain.views import followed_tables, views_touched
from everview.maintain.waiting import recomputed, still_waiting
from everview.plan.jobs import jobs
from everview.plan.nodes import Node
from everview.programs import streamed
from everview.programs.programs import Load, Programs
from everview.programs.step import FEW_CHANGES, Step
from everview.progress import progress_of
from everview.stores.base import LOADS, OF_LOADS, Store

# On Sail a load computes in this process. A thread that wants to run waits this long for another:
# epochs have many short steps, each of which waits.
_SWITCH_SECONDS = 0.0005


def latest(store: Store, group: str, tables: Iterable[str]) -> Positions:
    """The positions of tables in the committed epoch of a group; of tables that no live view of the
    group follows, the positions at the same moment."""
    epoch, followed = store.catalog.epoch_of(group), followed_tables(store, group)
    moment = moment_of(store, epoch, followed)
    return {
        table: epoch.positions[table] if table in followed else store.positions_at(table, moment)
        for table in tables
    }


@dataclass(frozen=True)
class _Failure:
    """A view that can't be loaded, in which step, and why."""

    view: ViewRecord
    step: Step
    reason: str


class Loader(threading.Thread):
    """Loads the views of a record and lets them catch up. An error of the engine stays in `error`,
    and views that fail in `failures`."""

    def __init__(self, maintainer: Maintainer, record: LoadRecord, is_new: bool) -> None:
        super().__init__(name="everview load", daemon=True)
        self.token = maintainer.token
        self.ends = threading.Event()
        self.failures: list[_Failure] = []
        self.error: BaseException | None = None
        self._maintainer, self._store = maintainer, maintainer.store
        self._record, self._is_new = record, is_new
        self._programs: Programs | None = None
        self.start()

    def settle(self, maintainer: Maintainer) -> None:
        """Stop the views that failed. Raises the error with which the load ended."""
        record = self._store.catalog.get(LOAD)
        waiting = [] if record is None else [v.name for v in still_waiting(self._store, record)]
        for failure in self.failures:
            if failure.view.name not in waiting:
                continue  # dropped meanwhile
            step = replace(failure.step, start=None)
            give_up(maintainer, self._record.root, failure.view, step, failure.reason)
        if self.error is not None and not isinstance(self.error, LoadEnded):
            raise self.error

    def run(self) -> None:
        switch = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            with self._store.leases.hold_if_free(LOADS) as token:
                record = self._store.catalog.get(LOAD)
                if token != self.token or record is None or record.notes != self._record.notes:
                    return
                self._record = record
                if not self._is_new:
                    self._go_on()
                self._load()
                if not self.failures:
                    self._catch_up()
        except BaseException as error:
            self.error = error
        finally:
            sys.setswitchinterval(switch)

    def _go_on(self) -> None:
        """Go on after an earlier try. Operators that the engine computes begin with new states:
        rows may come out otherwise this time, and a process of the earlier try may still write."""
        record = self._record
        unloaded = [view for view in record.views if view.name not in record.loaded]
        identities = {node.identity for view in unloaded for node in recomputed(view.plan)}
        volume, of_places = (volume_of(state) for state in (record.views[0].rows, record.notes))
        fresh = {identity: new_state(volume) for identity in identities - set(record.outputs)}
        places = {identity: new_state(of_places) for identity in fresh}
        create_states(self._store, (*fresh.values(), *places.values()), self._shards)
        views = [
            replace(view, states={i: fresh.get(i, state) for i, state in view.states.items()})
            for view in record.views
        ]
        before = progress_of(self._store, record)
        self._write(
            views=tuple(views),
            places={**record.places, **places},
            begun=time.time(),
            rows_before=before.rows,
            share_before=before.share,
        )

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
        self._load_streamed()
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

    def _load_streamed(self) -> None:
        """Load views that need no engine. Whatever fails, the engine tries view by view."""
        record = self._record
        views = [view for view in record.views if view.name not in record.loaded]
        step = self._step(record.number, None, record.positions)
        states = {i: state for view in views for i, state in view.operators.items()}
        try:
            rows, others = streamed.load(views, step, states)
        except LoadEnded:
            raise
        except Exception:
            return
        self._maintainer.report.rows += rows
        names = {view.name for view in others}
        loaded = [view.name for view in views if view.name not in names]
        self._write(loaded=(*record.loaded, *loaded))

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
        view = record.views[0]
        return Step(
            address,
            view.shards,
            self.token,
            number,
            start,
            end,
            notes=record.notes,
            slots=view.slots,
        )

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
        newest = latest(store, record.group, record.tables)
        views = [replace(view, consistency="strong") for view in record.views]  # nobody sees them
        batch_end, _ = cut(store, record.positions, views, self._maintainer.batch)
        regions = [(t, r, s) for t, at in record.positions.items() for r, s in at.items()]
        end: dict[str, dict[int, int]] = {table: {} for table in record.positions}
        for table, region, start in regions:
            end[table][region] = max(start, min(batch_end[table][region], newest[table][region]))
        left = sum(max(0, newest[t][r] - start) for t, r, start in regions)
        return end, left

    def _run_views(self, step: Step) -> None:
        """Run an epoch for all views at once; if that fails, view by view."""
        views = views_touched(self._record.views, step)
        states = {i: state for view in views for i, state in view.operators.items()}
        try:
            self._run(lambda programs: programs.run(views, step, states))
        except FAILURES:
            for view in views:
                try:
                    self._run(partial(run_alone, view, step))
                except FAILURES as error:
                    self._fail(view, step, view.operators, error)
