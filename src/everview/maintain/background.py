"""Maintenance in the background of a process, while a block of code runs."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from everview.batch import USUAL, Batch
from everview.engines.engine import Engine
from everview.errors import PASSING, SECONDS_BETWEEN_TRIES
from everview.freshness import oldest_of_groups
from everview.maintain.report import Report
from everview.maintain.run import maintain
from everview.maintain.watching import Epoch, Watcher
from everview.stores.base import Store


class BackgroundMaintainer(Watcher):
    """Keeps the views current in a thread, until its block ends.

    It looks for changes `every` so many seconds, and once more when the block ends, so that the
    views show all changes made in the block. If the block raises an error, it skips that last look.

    While the disk is full, or the engine fails, `error` says so, and it tries again every two
    seconds. Any other error ends maintenance and stays in `error`. If there is an `error` when the
    block ends, it is raised. A view that fails is no such error: it stops, and `report.failed` says
    why.
    """

    def __init__(
        self, store: Store, engine: Engine, every: float = 0.2, batch: Batch = USUAL
    ) -> None:
        self._store = store
        self._engine = engine
        self._every = every
        self._batch = batch
        self._ending = threading.Event()
        self._ended: datetime | None = None
        self._thread = threading.Thread(target=self._run, name="everview maintainer", daemon=True)
        self.report = Report()
        self.latest: Epoch | None = None
        self.error: BaseException | None = None

    def __repr__(self) -> str:
        state = "running" if self._thread.is_alive() else "not running"
        error = f", {type(self.error).__name__}: {self.error}" if self.error else ""
        return f"<maintainer {state}{error}: {self.report}>"

    def goes_on(self) -> bool:
        """Until the block ends; then as long as there are changes from before its end."""
        if not self._ending.is_set():
            return True
        oldest = oldest_of_groups(self._store, self._store.catalog.groups())
        return self._ended is not None and oldest is not None and oldest <= self._ended

    def awaits_loads(self) -> bool:
        """Until the block ends with an error."""
        return not self._ending.is_set() or self._ended is not None

    def committed(self, epoch: Epoch) -> None:
        """Notes the newest epoch in `latest`, and adds it to `report`."""
        self.latest = epoch
        self.report.epochs += 1
        self.report.changes += epoch.changes
        self.report.rows += epoch.rows
        self.report.seconds += epoch.seconds

    def recovering(self, reason: str) -> None:
        self.report.recovered = reason

    def loaded(self, view: str, seconds: float) -> None:
        self.report.loaded.append(view)
        self.report.seconds += seconds

    def stopped(self, view: str, reason: str) -> None:
        self.report.failed[view] = reason

    kept = stopped

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                try:
                    self._maintain()
                    self._ending.wait(self._every)
                except PASSING as error:
                    self.error = error
                    self._ending.wait(max(self._every, SECONDS_BETWEEN_TRIES))
            if self._ended is not None:
                self._maintain()
        except BaseException as error:
            self.error = error

    def _maintain(self) -> None:
        maintain(self._store, self._engine, self, batch=self._batch)
        self.error = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended = datetime.now(UTC) if error is None else None
        self._ending.set()
        self._thread.join()
        if self.error is None:
            return
        if error is None:
            raise self.error
        error.add_note(f"and the maintainer failed: {type(self.error).__name__}: {self.error}")
