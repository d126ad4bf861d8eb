"""The maintainer: its store and engine, and what it does when a view fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from everview.batch import USUAL, Batch
from everview.catalog import FOLLOWERS, VIEWS, Positions, ViewRecord
from everview.engines.engine import Engine
from everview.engines.failures import UNKNOWN_TRIES, run_again
from everview.errors import (
    Conflict,
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
from everview.maintain.report import Report
from everview.programs.diagnosis import failing_row
from everview.programs.programs import Programs
from everview.programs.step import Step
from everview.stores.base import Store

FAILURES = (SqlError, DataError, Damaged)  # of a view; the others go on


def run_alone(view: ViewRecord, step: Step, programs: Programs) -> int:
    """Do one view's part of an epoch; returns the rows it touched."""
    return programs.run([view], step, view.operators)


@dataclass(frozen=True)
class Maintainer:
    """The one maintainer of a database, while it holds the lease with this token. It changes views
    of all groups."""

    store: Store
    engine: Engine
    token: int
    report: Report
    batch: Batch = USUAL
    lags: list[float] = field(default_factory=list)  # of the epochs since someone looked
    turns: list[str] = field(default_factory=list)  # groups in the order of their last epochs
    held: dict[str, EngineFailed] = field(default_factory=dict)  # why groups wait for the engine

    def step(
        self, epoch: int, start: Positions | None, end: Positions, tasks: tuple[int, ...] = ()
    ) -> Step:
        """The work of an epoch, or of a load."""
        logs = {} if start is None else self._logs()
        return replace(self.quiet_step(epoch, start, end), logs=logs, tasks=tasks)

    def quiet_step(self, epoch: int, start: Positions | None, end: Positions) -> Step:
        """The same without logs; all views have the same slots and shards."""
        view = next(iter(self.store.catalog.all(VIEWS).values()))
        return Step(
            self.store.address, view.shards, self.token, epoch, start, end, slots=view.slots
        )

    def _logs(self) -> dict[str, int]:
        """The states of views that someone follows, each with where its log begins. To be asked
        when the intent is written: who begins to follow until then, has that in mind."""
        catalog, now = self.store.catalog, time.time()
        logs = {}
        for key, followers in catalog.all(FOLLOWERS).items():
            view = catalog.get(VIEWS[key.name])
            left = followers.without(*followers.expired(now))
            if left != followers:
                with suppress(Conflict):  # then the next epoch does it
                    catalog.write({key: left}, self.token, expected={key: followers})
            if left is not None and view is not None and view.is_live:
                logs[view.rows] = followers.since
        return logs

    def run(self, work: Callable[[Programs], int], unknown_tries: int = UNKNOWN_TRIES) -> None:
        """Do work on the engine, and again if the engine fails; count the view rows it touched."""
        engine = self.engine
        self.report.rows += run_again(engine, lambda: work(engine.programs), unknown_tries)

    def stop(self, view: ViewRecord, step: Step, what: str) -> None:
        """Leave a view as it was before a step, and say why."""
        reason = (
            f"{what}. After you have corrected that, `everview verify DB {view.name} --repair` or "
            f"db.rebuild({view.name!r}) loads the view again; or DROP VIEW {view.name} and create "
            "it with another query"
        )
        epoch = 0 if step.start is None else step.epoch - 1
        stopped = view.stopped(epoch, step.start or {}, reason)
        self.store.catalog.write({VIEWS[view.name]: stopped}, self.token)
        self.report.failed[view.name] = reason
        self.report.watch.stopped(view.title, reason)

    def _whose(self, what: str, view: ViewRecord) -> str:
        """The other views that have the damaged state which an error message names, in words."""
        names = [
            other.name
            for other in self.store.catalog.all(VIEWS).values()
            if other.name != view.name
            and any(f"(state {state} in " in what for state in other.states.values())
        ]
        return f"; this is also state of view {', '.join(names)}" if names else ""

    def reason(
        self, view: ViewRecord, step: Step, states: Mapping[str, str], error: EverviewError
    ) -> str:
        """What went wrong, on which row, and a remedy; errors of operators say all that already."""
        what = " ".join(str(error).split("\n== SQL")[0].split())
        if isinstance(error, Damaged):
            return what + self._whose(what, view)
        if isinstance(error, Overflow | TooManyRows | OutOfReach | UnsupportedSql):
            return what
        tables = {table: self.store.describe(table) for table in view.tables}
        keys = {name: tuple(map(table.column, table.key)) for name, table in tables.items()}
        row = failing_row(self.engine.session, view.plan, step, states, keys)
        if row is not None:
            return f"{what.rstrip('.')}, on {row}; correct the row"
        if self.engine.name == "sail":
            return f"{what.rstrip('.')}; if Sail lacks something here, use the engine spark"
        return what
