"""Who follows the changes of a view, and what they read.

A view has a log of its changes while someone follows it: what its sink changed, epoch by epoch. A
follower has a name and an epoch up to which it has read; the log stays after the epoch of the
slowest one. A follower that stores its epoch together with what it made of the changes, and asks
for the changes after that epoch, sees each change exactly once.
"""

from __future__ import annotations

import heapq
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from everview.catalog import (
    FOLLOWERS,
    VIEWS,
    Follower,
    Followers,
    ViewRecord,
    epoch_key,
    intent_key,
)
from everview.closing import Closing
from everview.errors import Conflict, LogError, LogTrimmed, NotLoaded, UnknownConsumer, ViewNotFound
from everview.explain.views import epoch_of
from everview.operators.sink import Touched, ViewSink, all_current, sink_of
from everview.stores.base import RecordChanges, Store

FEED_SECONDS = 60.0  # that the log stays for a feed that gives no sign of life


def changes_schema(sink: ViewSink) -> pa.Schema:
    """The columns of a view's changes; `before` and `after` are structs of the view's columns."""
    return pa.schema(
        [
            pa.field("epoch", pa.int64(), False),
            pa.field("op", pa.string(), False),
            pa.field("before", sink.image),
            pa.field("after", sink.image),
        ]
    )


def register(
    store: Store, view: str, name: str, after: int | None = None, seconds: float | None = None
) -> int:
    """Keep a view's changes after an epoch until the follower has read them; returns the epoch.

    Without `after` this is where the follower was, or for a new one the present: the committed
    epoch, or the one that is begun. With `seconds` the follower is forgotten after that time.
    """
    catalog = store.catalog
    while True:
        record, followers = _view(store, view), catalog.get(FOLLOWERS[view])
        if not record.is_loaded:
            raise NotLoaded(f"view {view} has no rows yet, so it has no changes to follow")
        of_epoch, of_intent = epoch_key(record.group), intent_key(record.group)
        epoch, intent = catalog.get(of_epoch), catalog.get(of_intent)
        begun = max(one.number for one in (epoch, intent) if one is not None)
        since = begun if followers is None else followers.since
        start = after
        if start is None:
            known = followers.by_name.get(name) if followers else None
            start = known.epoch if known else begun
        _check_log(view, start, since)
        if start > begun:
            raise LogError(f"view {view} has not come to epoch {start} yet; its newest is {begun}")
        until = None if seconds is None else time.time() + seconds
        added = (followers or Followers(since, {})).read_by(name, Follower(start, until))
        seen: RecordChanges = {VIEWS[view]: record, of_epoch: epoch, of_intent: intent}
        seen = {**seen, FOLLOWERS[view]: followers}
        with suppress(Conflict):
            catalog.write({FOLLOWERS[view]: added}, expected=seen)
            return start


def _check_log(view: str, after: int, since: int) -> None:
    if after < since:
        raise LogTrimmed(
            f"the log of view {view} begins after epoch {since}, so there are no changes after "
            f"epoch {after}; begin with all rows of the view"
        )


def no_followers(view: str) -> LogError:
    return LogError(
        f"nobody follows view {view}, so it has no log of changes; register first, as with "
        f'db.view("{view}").register("name")'
    )


def acknowledge(
    store: Store, view: str, name: str, epoch: int, seconds: float | None = None
) -> None:
    """Say that a follower has read all changes up to an epoch; it has `seconds` for the next."""
    until = None if seconds is None else time.time() + seconds

    def read(followers: Followers) -> Followers:
        known = followers.by_name[name].epoch
        if epoch < known:
            raise LogError(f"{name} has read view {view} up to epoch {known}, so not up to {epoch}")
        committed = epoch_of(store, _view(store, view))
        if epoch > committed:
            raise LogError(f"view {view} has not come to epoch {epoch} yet; it is at {committed}")
        return followers.read_by(name, Follower(epoch, until))

    _change(store, view, name, read)


def unregister(store: Store, view: str, name: str) -> None:
    """Say that a follower needs no more changes. Without followers, a view has no log."""
    _change(store, view, name, lambda followers: followers.without(name))


def _change(
    store: Store, view: str, name: str, change: Callable[[Followers], Followers | None]
) -> None:
    """Change the record of a view that has this follower, as it is at that moment."""
    while True:
        followers = _followers(store, view, name)
        with suppress(Conflict):
            changes = {FOLLOWERS[view]: change(followers)}
            store.catalog.write(changes, expected={FOLLOWERS[view]: followers})
            return


def read_changes(
    store: Store, view: str, after: int | None = None, upto: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The changes of committed epochs after one and up to one, by default all in the log, in
    batches of one epoch each."""
    with closing(_Pinned(store, view)) as pinned:
        after = pinned.check_log(after)
        for epoch, log in pinned.logs(after, pinned.epoch if upto is None else upto):
            yield from pinned.as_changes(epoch, pinned.sink.changes(log)).to_batches()


def read_snapshot(store: Store, view: str, epoch: int | None = None) -> tuple[int, pa.Table]:
    """All rows of a view as inserts, and their epoch: the committed one, or an earlier one after
    which the log has all changes."""
    with closing(_Pinned(store, view)) as pinned:
        if epoch is not None and epoch != pinned.epoch:
            pinned.check_log(epoch)
        epoch = pinned.epoch if epoch is None else epoch
        rows = pinned.rows_at(epoch)
        inserts = Touched([b""] * len(rows), rows).log()
        return epoch, pinned.as_changes(epoch, pinned.sink.changes(inserts))


class _Pinned:
    """A view at one epoch, with its log."""

    def __init__(self, store: Store, view: str) -> None:
        self._store, self._view = store, view
        self._pin = store.pins.pin([view], [])
        record = self._pin.catalog.get(VIEWS[view])
        if record is None:
            self._pin.close()
            raise ViewNotFound(f"view {view} was dropped")
        self.epoch = epoch_of(self._pin, record)
        self.sink = sink_of(record.plan.columns, record.key, record.parameters)
        self._shards = [self._pin.states.shard(record.rows, number) for number in record.shards]

    def check_log(self, after: int | None) -> int:
        """An epoch after which the log has all changes, by default the first. Raises `LogTrimmed`.

        Asked in the catalog of now, which also knows what was trimmed before this was pinned.
        """
        followers = self._store.catalog.get(FOLLOWERS[self._view])
        if followers is None:
            raise no_followers(self._view)
        after = followers.since if after is None else after
        _check_log(self._view, after, followers.since)
        return after

    def logs(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table]]:
        """The log of some epochs, in their order."""
        logs = (shard.log(after, upto) for shard in self._shards)
        return heapq.merge(*logs, key=lambda log: log[0])

    def rows_at(self, epoch: int) -> list[bytes]:
        """The stored rows as of an epoch: those of now, with later changes undone."""
        batches = (batch for shard in self._shards for batch in shard.values())
        rows = [row for batch in batches for row in all_current(batch, self.epoch) if row]
        later = list(self.logs(epoch, self.epoch))
        if not later:
            return rows
        left = set(rows)  # no row is stored twice: it has its key, and its count
        for _, log in reversed(later):
            before, after = (log[name].to_pylist() for name in ("before", "after"))
            left.difference_update(after)
            left.update(filter(None, before))
        return list(left)

    def as_changes(self, epoch: int, rows: pa.Table) -> pa.Table:
        epochs = pa.array([epoch] * rows.num_rows, pa.int64())
        columns = [epochs, *rows.columns]
        return pa.Table.from_arrays(columns, schema=changes_schema(self.sink)).combine_chunks()

    def close(self) -> None:
        self._pin.close()


@dataclass(frozen=True)
class EpochOfView:
    """What an epoch changed in a view, as `View.changes` has it."""

    epoch: int
    changes: pa.Table


class Feed(Closing):
    """The changes of a view, epoch by epoch, as they are committed.

    From a snapshot, it begins with all rows of the view, as inserts. It follows under a name of its
    own until it is closed, and is forgotten some time after its process has ended in another way.
    `stop` lets the iteration end.
    """

    def __init__(
        self,
        store: Store,
        view: str,
        from_snapshot: bool,
        after: int | None,
        every: float,
        own_part: Callable[[pa.Table], pa.Table] = lambda changes: changes,
    ) -> None:
        self._store = store
        self._view = view
        self._own_part = own_part  # of the view's changes, for a follower of some of its rows
        self._from_snapshot = from_snapshot
        self._every = every
        self._name = f"feed {uuid.uuid4().hex[:12]}"
        self._ending = threading.Event()
        self.epoch = register(store, view, self._name, after, FEED_SECONDS)
        self._sign_at = time.monotonic() + FEED_SECONDS / 3

    def __iter__(self) -> Iterator[EpochOfView]:
        if self._from_snapshot:
            yield self._snapshot()
        while not self._ending.is_set():
            newest = epoch_of(self._store, _view(self._store, self._view))
            if newest > self.epoch:
                batches = read_changes(self._store, self._view, self.epoch, newest)
                for epoch, parts in groupby(batches, lambda batch: batch.column(0)[0].as_py()):
                    if changes := self._own_part(pa.Table.from_batches(list(parts))):
                        yield EpochOfView(epoch, changes)
                    self.epoch = epoch
                self.epoch = newest
                self._acknowledge()
            elif time.monotonic() > self._sign_at:
                self._acknowledge()
            self._ending.wait(self._every)

    def _acknowledge(self) -> None:
        """Also a sign of life, where nothing changes."""
        if self.epoch <= epoch_of(self._store, _view(self._store, self._view)):
            acknowledge(self._store, self._view, self._name, self.epoch, FEED_SECONDS)
        self._sign_at = time.monotonic() + FEED_SECONDS / 3

    def _snapshot(self) -> EpochOfView:
        epoch, rows = read_snapshot(self._store, self._view)
        while epoch < self.epoch and not self._ending.wait(self._every):  # one that was begun
            epoch, rows = read_snapshot(self._store, self._view)
        self.epoch = epoch
        return EpochOfView(epoch, self._own_part(rows))

    def stop(self) -> None:
        """End the iteration after what it is about to return."""
        self._ending.set()

    def close(self) -> None:
        self.stop()
        with suppress(UnknownConsumer, ViewNotFound):
            unregister(self._store, self._view, self._name)


def _view(store: Store, view: str) -> ViewRecord:
    record = store.catalog.get(VIEWS[view])
    if record is None:
        raise ViewNotFound(f"there is no view {view}")
    return record


def _followers(store: Store, view: str, name: str) -> Followers:
    followers = store.catalog.get(FOLLOWERS[view])
    if followers is None or name not in followers.by_name:
        names = ", ".join(followers.by_name) if followers else "nobody"
        raise UnknownConsumer(
            f"{name} does not follow view {view} ({names} does); register it first"
        )
    return followers
