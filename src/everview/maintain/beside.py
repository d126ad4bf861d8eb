"""Loads beside epochs: large views get their rows in a thread, while the others go on.

A load has views of one group. It reads the tables as they were at the group's committed epoch, into
states of its own. Then it catches up with the changes since, in large epochs that nobody sees. When
few are left it is ready, and its views join the group at one epoch (`joining`). The record `load`
has its progress: after a crash the next maintainer goes on with the operators and shards that were
not done.

Who holds the lease of loads may change that record; when the load is ready, the maintainer may.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count

from everview.catalog import (
    LOAD,
    PACE,
    VIEWS,
    Epoch,
    LoadRecord,
    Pace,
    ViewRecord,
)
from everview.catalog.loads import BEGINNING, OVER, READY
from everview.catalog.views import ROWS
from everview.errors import EverviewError, TableNotFound
from everview.maintain.loader import Loader, latest
from everview.maintain.loads import FIRST, create_states
from everview.maintain.maintainer import Maintainer
from everview.maintain.recovery import ahead_of_logs
from everview.maintain.views import drop_states, of_group, tables_of, without_load
from everview.maintain.waiting import (
    Newcomers,
    expected_rows,
    shares_recomputed,
    small_and_large,
    still_waiting,
)
from everview.plan.nodes import Node
from everview.progress import progress
from everview.stores.base import OF_LOADS, Store

_LOST = (BEGINNING, OVER)  # the stages of a load that nobody goes on with
_LAG_PART = 0.5  # of the bound, below which a load that gave way goes on
_LOOK_SECONDS = 0.05
_TELL_SECONDS = 0.5
_STOP_SECONDS = 60.0  # for which the end of a load is awaited


class Loading:
    """The load beside the epochs of one maintainer, if there is one."""

    def __init__(self) -> None:
        self._loader: Loader | None = None
        self._tell_after = 0.0

    def advance(self, maintainer: Maintainer) -> bool:
        """Begin a load, look after it, or clean up after it; whether there is one."""
        store = maintainer.store
        record = store.catalog.get(LOAD)
        if record is not None and not self._is_current(maintainer, record):
            if not self._stops(store, maintainer.token):
                _drop_changed(maintainer)
            return True
        is_new = record is None
        if record is None:
            newcomers = _large(store)
            if newcomers is None:
                return False
            record = _begun(maintainer, newcomers)
            for number, view in enumerate(record.views, 1):
                maintainer.report.watch.loading(view.title, number, len(record.views))
        self._set_pace(maintainer, record)
        if self._loader is None and record.stage != READY:
            self._loader = Loader(maintainer, record, is_new)
        elif self._loader is not None and not self._loader.is_alive():
            loader, self._loader = self._loader, None
            loader.settle(maintainer)
        self._tell(maintainer)
        return True

    def _is_current(self, maintainer: Maintainer, record: LoadRecord) -> bool:
        """Whether the load is still for views that wait for it, and for this maintainer."""
        if self._loader is not None and self._loader.token != maintainer.token:
            return False
        if record.stage in _LOST or shares_recomputed(maintainer.store, record.views):
            return False
        return len(still_waiting(maintainer.store, record)) == len(record.views)

    def _set_pace(self, maintainer: Maintainer, record: LoadRecord) -> None:
        """Let the load wait while live views are too far behind."""
        pace = maintainer.store.catalog.get(PACE)
        bound = min(view.load_lag for view in record.views)
        waits = pace is not None and pace.waits
        waits = max(maintainer.lags, default=0.0) > (bound * _LAG_PART if waits else bound)
        maintainer.lags.clear()
        if (new := Pace(record.notes, waits)) != pace:
            maintainer.store.catalog.write({PACE: new}, maintainer.token)

    def _tell(self, maintainer: Maintainer) -> None:
        """Tell now and then how far the load is."""
        if time.monotonic() > self._tell_after:
            self._tell_after = time.monotonic() + _TELL_SECONDS
            if (now := progress(maintainer.store)) is not None:
                maintainer.report.watch.progress(now)

    def wait(self) -> None:
        """Wait a moment for the load."""
        if self._loader is None:
            time.sleep(_LOOK_SECONDS)
        else:
            self._loader.join(_LOOK_SECONDS)

    def _stops(self, store: Store, token: int) -> bool:
        """Ask the thread of the load to stop; whether it still runs."""
        if self._loader is None or not self._loader.is_alive():
            self._loader = None
            return False
        if not self._loader.ends.is_set():
            self._loader.ends.set()
            with suppress(EverviewError):
                store.catalog.write({PACE: None}, token)
        return True

    def end(self, store: Store, token: int) -> None:
        """Stop the thread of the load; the next maintainer goes on with the rest."""
        loader = self._loader
        if self._stops(store, token) and loader is not None:
            loader.join(_STOP_SECONDS)


def _drop_changed(maintainer: Maintainer) -> None:
    """Leave views out of the load that were dropped or changed meanwhile; end the load if none are
    left, or if all go together."""
    store, token = maintainer.store, maintainer.token
    record = store.catalog.get(LOAD)
    if record is None:
        return
    wanted = still_waiting(store, record)
    is_lost = record.stage in _LOST or shares_recomputed(store, record.views)
    is_lost |= bool(ahead_of_logs(store, Epoch(record.number, record.positions)))
    is_whole = len(wanted) == len(record.views) or record.root is None
    if wanted and is_whole and not is_lost:
        less = record.of(wanted)
        store.catalog.write({LOAD: less}, token)
        _unregister(store, record.tables - less.tables)
    else:
        store.catalog.write(without_load(store), token)
        clean_up(store, token)


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


def _large(store: Store) -> Newcomers | None:
    """The next views to load beside epochs: all large new ones of a group, or new definitions that
    replace others together."""
    _, large = small_and_large(store)
    new = [view for newcomers in large if newcomers.root is None for view in newcomers.views]
    return Newcomers(of_group(new, new[0].group)) if new else next(iter(large), None)


def _begun(maintainer: Maintainer, newcomers: Newcomers) -> LoadRecord:
    """A new load, as of the committed epoch of its group, with places for all of its states; tables
    that no live view of the group follows are read as of the same moment."""
    store, token = maintainer.store, maintainer.token
    epoch, views = store.catalog.epoch_of(newcomers.group), newcomers.views
    positions = latest(store, newcomers.group, tables_of(views))
    names, others = _states_of_new_volume(), _states_of_new_volume()
    operators = {node.identity: next(names) for node in _operators(views)}
    places = {node.identity: next(others) for node in _operators(views)}
    placed = tuple(
        replace(view, states={i: operators[i] for i in _identities(view)} | {ROWS: next(names)})
        for view in views
    )
    record = LoadRecord(
        views=placed,
        root=newcomers.root,
        number=max(epoch.number, FIRST),
        positions=positions,
        places=places,
        notes=next(others),
        expected_rows=expected_rows(store, views),
        begun=time.time(),
    )
    store.states.begin(token)
    store.catalog.write({LOAD: replace(record, stage=BEGINNING)}, token)
    create_states(store, record.states, views[0].shards)
    for table, regions in positions.items():
        store.register(table, OF_LOADS, regions)
    store.catalog.write({LOAD: record, PACE: Pace(record.notes)}, token)
    return record


def _states_of_new_volume() -> Iterator[str]:
    """Names in a volume that the epochs of other views do not write. They ascend, so that what is
    loaded later is appended."""
    volume = uuid.uuid4().hex[:12]
    return (f"{volume}.{number:012x}" for number in count())


def _operators(views: Sequence[ViewRecord]) -> list[Node]:
    return [node for view in views for node in view.plan.walk() if node.is_operator]


def _identities(view: ViewRecord) -> list[str]:
    return [node.identity for node in _operators([view])]
