"""The handle of a view: reads its rows as of the committed epoch.

A read sees one committed epoch of the whole view. It never blocks maintenance, and never waits for
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from everview import following
from everview.advice import how_to_maintain, how_to_read_table
from everview.catalog import FOLLOWERS, VIEWS, WAITING, Positions, ViewRecord, title_of
from everview.catalog.views import STOPPED
from everview.codec import KeyCodec
from everview.codec.point import python_rows
from everview.compute.hashing import hash_of
from everview.errors import (
    EverviewError,
    LogError,
    NotLoaded,
    ReadOnly,
    UnsupportedSql,
    ViewNotFound,
    reason_of,
    suggestion,
)
from everview.explain.measured import with_analysis
from everview.explain.plan import Document
from everview.explain.views import epoch_of, explain_view, positions_of
from everview.explain.work import Analysis, analyze
from everview.following import Feed
from everview.freshness import age_of, oldest_pending
from everview.intake import keys_to_arrow
from everview.member import Member
from everview.operators.sink import ViewSink, current, sink_of
from everview.plan.distribution import columns_of_slot
from everview.plan.nodes import Node, Order
from everview.progress import Progress, progress
from everview.results import frames
from everview.results.html import SHOWN_ROWS, html_of
from everview.schema import Column, TableSchema, ViewKey, is_nested
from everview.stores.base import SUSPECT, PinnedStore, Reader, Store, check_consumer
from everview.table import Table

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Row = dict[str, Any]
T = TypeVar("T")


class View:
    """A query whose result Everview keeps current.

    A handle is cheap to make. After the view is dropped, every use of it raises `ViewNotFound`.
    """

    def __init__(self, store: Reader, name: str) -> None:
        self._store = store
        if not isinstance(name, str):
            raise ViewNotFound(f"the name of a view must be text, not {type(name).__name__}")
        self.name = self._record(name).name

    def at(self, store: Reader) -> Self:
        """The view in another store, as in a pin."""
        return type(self)(store, self.name)

    def __repr__(self) -> str:
        try:
            at = f"epoch {self.epoch}" if self.is_loaded else "not loaded yet"
            return f"<view {self.name}: {self.status}, {at}>"
        except EverviewError as error:
            return f"<view {self.name}: {reason_of(error)}>"

    def _repr_html_(self) -> str:
        def first_rows() -> tuple[pa.Table, int]:
            rows = self.to_arrow()
            return rows.slice(0, SHOWN_ROWS), rows.num_rows

        return html_of(self, first_rows)

    def _record(self, name: str | None = None) -> ViewRecord:
        name = self.name if name is None else name
        record = self._store.catalog.get(VIEWS[name])
        if record is None:
            raise self._missing(name)
        return record

    def _missing(self, name: str) -> ViewNotFound:
        if any(name.lower() == table.lower() for table in self._store.tables()):
            return ViewNotFound(
                f"{name} is a table, not a view; read it with {how_to_read_table(name)}"
            )
        views = self._store.catalog.view_names()
        existing = f"views: {', '.join(views)}" if views else "there are no views yet"
        return ViewNotFound(f"there is no view {name}; {suggestion(name, views)}{existing}")

    @property
    def sql(self) -> str:
        """The query that defines the view, as it was written."""
        return self._record().definition.text

    @property
    def plain_sql(self) -> str:
        """The query, with the columns of the table of members for the parameters."""
        return self._record().definition.query

    @property
    def family(self) -> str | None:
        """The family of views like it that it is maintained with; None if it is not."""
        return None

    @property
    def is_full(self) -> bool:
        """Whether the engine computes the whole query anew in every epoch that may change it."""
        return self._record().definition.is_full

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its parameters, which are its first columns; mostly there are none."""
        return self._record().parameters

    @property
    def members(self) -> Table:
        """The table with a row for each member: `put` and `delete` its rows. Raises
        `UnsupportedSql` if the view has no parameters."""
        family = self._record().definition.family
        if family is None:
            raise self._no_members()
        return Table(self._store, family.members)

    def _no_members(self) -> UnsupportedSql:
        return UnsupportedSql(
            f"view {self.name} has no parameters, so it has no members; create one with CREATE "
            "MATERIALIZED VIEW name (parameter TYPE, ...) AS SELECT ... :parameter ..."
        )

    @property
    def parameter_schema(self) -> TableSchema:
        """The parameters as the columns of a key. Raises `UnsupportedSql` if there are none."""
        record = self._record()
        if not record.parameters:
            raise self._no_members()
        columns = [record.plan.column(name) for name in record.parameters]
        return ViewKey(self.name, tuple(columns), record.parameters)

    def member(self, *values: Any, **named_values: Any) -> Member:
        """The rows for some values of the parameters: `spend.member('EU', since=date(2026, 1, 1))`.

        A member that is not in the table of `members` has no rows.
        """
        return Member(self, values, named_values)

    @property
    def plan(self) -> Node:
        """The plan by which the view is maintained."""
        return self._record().plan

    @property
    def is_open(self) -> bool:
        """Whether SQL allows several answers to the query, as with `first` or rows that tie."""
        return self._record().is_open

    @property
    def views(self) -> dict[str, str]:
        """The views that this view reads: {name in the query: name of the view}."""
        return dict(self._record().views)

    @property
    def tables(self) -> list[str]:
        """The tables that the view reads, directly or through other views.

        The plan may not need all of them.
        """
        return list(self._record().tables)

    @property
    def named_tables(self) -> tuple[str, ...]:
        """The tables in its query, also those that its answer can't depend on."""
        return tuple(self._record().widths)

    @property
    def table_columns(self) -> dict[str, tuple[str, ...]]:
        """The columns that its tables had when it was made; its query sees only these."""
        widths = self._record().widths
        schemas = {table: self._store.describe(table) for table in self.tables}
        return {
            table: schema.names[: widths.get(table, schema.widths[0])]
            for table, schema in schemas.items()
        }

    @property
    def status(self) -> str:
        """'new', 'live', 'stopped', 'waiting' or 'suspect'; `error` says why.

        A view is 'new' until it is loaded, and then 'live'. It is 'stopped' after it failed, and
        'waiting' while the engine fails. It is 'suspect' if the machine crashed before the state
        of views was on disk.
        """
        if self._is_suspect():
            return "suspect"
        return "waiting" if self._waits_for() else self._record().status

    def _waits_for(self) -> str | None:
        """Why the engine failed when it last tried to bring the view up to date; None if it did
        not, or if the view is stopped."""
        waiting, record = self._store.catalog.get(WAITING), self._record()
        is_held = waiting is not None and waiting.holds(record.group)
        return waiting.why if waiting and is_held and record.status != STOPPED else None

    def _is_suspect(self) -> bool:
        return self.is_loaded and self._store.states.is_suspect

    @property
    def group(self) -> str:
        """The group of views that it moves together with; 'main' if its statement named none."""
        return title_of(self._record().group)

    @property
    def consistency(self) -> str:
        """'strong', or 'complete' if readers can see a state after every single change."""
        return self._record().consistency

    @property
    def error(self) -> str | None:
        """Why the view is stopped, waiting, suspect or not replaced, and what to do; else None."""
        if self._is_suspect():
            return SUSPECT
        return self._waits_for() or self._record().error

    @property
    def note(self) -> str:
        """What a reader should know: that the view is not loaded, or is stopped; else ''."""
        record = self._record()
        if not self.is_loaded:
            reason = record.error or f"{how_to_maintain()} loads it"
            return f"view {self.name} is not loaded yet, so it has no rows: {reason}"
        if record.status != STOPPED:
            return ""
        return f"view {self.name} is stopped, and its rows are of epoch {self.epoch}: {self.error}"

    @property
    def epoch(self) -> int:
        """The epoch that the rows show: the newest committed one, or the last before a stop."""
        return epoch_of(self._store, self._record())

    @property
    def freshness(self) -> timedelta:
        """The age of the oldest change that the view does not show yet; zero if it shows all."""
        positions = positions_of(self._store, self._record())
        oldest = oldest_pending(self._store, self.tables, positions)
        return timedelta(seconds=age_of(oldest))

    @property
    def progress(self) -> Progress | None:
        """How far the load of a large view is; None if it is not being loaded now."""
        now = progress(self._store)
        return now if now is not None and self._record().title in now.views else None

    @property
    def is_loaded(self) -> bool:
        """Whether it has rows to read; a view that was stopped after it was loaded has."""
        return self._record().is_loaded

    @property
    def positions(self) -> Positions | None:
        """How far a stopped view follows its tables' logs; None if it follows the epochs."""
        return self._record().positions

    @property
    def order(self) -> tuple[Order, ...]:
        """The order in which reads return the rows."""
        return self._record().order

    def explain(self, analyze: bool = False) -> Document:
        """How the view is maintained, as `everview.explain.plan` has it; with `analyze` also what
        its last epochs took."""
        document = self._read_steadily(lambda: explain_view(self._store, self._record()))
        return with_analysis(document, self._record().plan, self.analyze()) if analyze else document

    def analyze(self) -> Analysis | None:
        """The work that the last epochs took, by operator and shard; None if it is not loaded."""

        def measure() -> Analysis | None:
            epoch, record = self.epoch, self._record()
            return analyze(self._store, record, epoch) if record.is_loaded else None

        return self._read_steadily(measure)

    def _read_steadily(self, read: Callable[[], T]) -> T:
        """The result of `read`, which is repeated if it fails and the views changed meanwhile."""
        while True:
            before = self._store.catalog.all(VIEWS)
            try:
                return read()
            except EverviewError:
                if self._store.catalog.all(VIEWS) == before:
                    raise

    @property
    def schema(self) -> pa.Schema:
        return _schema_of(self._record().plan)

    @property
    def sink(self) -> ViewSink:
        """What reads and writes its rows."""
        return self._sink(self._record())

    def _sink(self, record: ViewRecord) -> ViewSink:
        return sink_of(record.plan.columns, record.key, record.parameters)

    def to_arrow(self) -> pa.Table:
        """All rows, in the order of the query's ORDER BY if it has one."""
        return read_together([self])[self.name]

    def rows_of_member(self, values: pa.Table) -> pa.Table:
        """The rows that have some values of the parameters, which are one row of `values`; of very
        long values perhaps others, too."""
        with _pinned_store(self._store, [self.name]) as pinned:
            return self.at(pinned)._rows(self.sink.prefix_of(values))

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame; see `everview.results.frames`."""
        return frames.to_pandas(self.to_arrow())

    def to_polars(self) -> pl.DataFrame:
        """All rows as a Polars frame."""
        return frames.to_polars(self.to_arrow())

    def _rows(self, prefix: bytes = b"") -> pa.Table:
        """The rows whose keys begin with a prefix, in a store that is pinned."""
        record, epoch = self._record(), self.epoch
        _check_readable(record)
        tables = [self.schema.empty_table()]
        if record.is_loaded:
            sink = self._sink(record)
            for number in record.shards:
                shard = self._store.states.shard(record.rows, number)
                tables += sink.read(shard.values(prefix), epoch)
        return in_order(pa.concat_tables(tables), record.order)

    def scan(self) -> Iterator[Row]:
        """All rows as dicts, of one epoch."""
        for batch in self.to_arrow().to_batches():
            yield from python_rows(batch)

    @property
    def changes_schema(self) -> pa.Schema:
        """The columns of its changes; `before` and `after` are structs of its own columns."""
        return following.changes_schema(self.sink)

    @property
    def followed_name(self) -> str:
        """The name of the view whose log has its changes."""
        return self.name

    def follower_name(self, consumer: str) -> str:
        """What that log calls a consumer of this view."""
        return consumer

    def check_followed(self) -> None:
        """Raises `LogError` if nobody follows the view, so that it has no log."""
        if self._store.catalog.get(FOLLOWERS[self.followed_name]) is None:
            raise following.no_followers(self.name)

    def own_changes(self, changes: pa.Table) -> pa.Table:
        """Its own part of the changes in that log."""
        return changes

    def changes(self, after: int | None = None) -> Iterator[pa.RecordBatch]:
        """What committed epochs after one changed, with `epoch`, `op`, `before` and `after`.

        Epochs come in their order, and all changes of an epoch or none of them. Without `after`,
        all that the log has. A view has a log only while someone follows it: `register` first.
        Raises `LogTrimmed` if the log begins later, or if the view was loaded again since.
        """
        return following.read_changes(self._followed, self.name, after)

    def follow(
        self, start: Literal["snapshot", "now"] | int = "snapshot", every: float = 0.1
    ) -> Feed:
        """The view's changes as they are committed: `with view.follow() as feed: ...`

        The feed is to be iterated over. Each item has the number of an `epoch` and its `changes`,
        as `changes` returns them. The first has all rows of the view as inserts, unless `start` is
        'now' or an epoch to go on from. The feed looks for new epochs `every` so many seconds, and
        ends when it is closed.
        """
        check_start(start)
        after = start if isinstance(start, int) else None
        followed, is_whole = self.followed_name, start == "snapshot"
        return Feed(self._followed, followed, is_whole, after, every, self.own_changes)

    def register(self, consumer: str, after: int | None = None) -> int:
        """Keep the view's changes in a log until `consumer` acknowledges them.

        Returns the epoch after which they are kept: the present one, or that of a consumer that
        was registered before, or `after`.
        """
        check_consumer(consumer)
        follower = self.follower_name(consumer)
        return following.register(self._followed, self.followed_name, follower, after)

    def acknowledge(self, consumer: str, epoch: int) -> None:
        """Say that `consumer` no longer needs the changes up to this epoch."""
        check_consumer(consumer)
        follower = self.follower_name(consumer)
        following.acknowledge(self._followed, self.followed_name, follower, epoch)

    def unregister(self, consumer: str) -> None:
        """Say that `consumer` no longer needs any changes."""
        check_consumer(consumer)
        follower = self.follower_name(consumer)
        following.unregister(self._followed, self.followed_name, follower)

    @property
    def _followed(self) -> Store:
        if not isinstance(self._store, Store):
            raise ReadOnly("a pin has one epoch and no changes; follow the view of the database")
        return self._store

    def get(self, *key: Any) -> Row | None:
        """The row with that key, or None; `key` says which columns form the key."""
        key = key[0] if len(key) == 1 and isinstance(key[0], tuple) else key
        with _pinned_store(self._store, [self.name]) as pinned:
            return self.at(pinned)._row(key)

    def _row(self, key: tuple[Any, ...]) -> Row | None:
        """The row with that key, in a store that is pinned."""
        record = self._record()
        key_columns = self._key_columns(record)
        _check_readable(record)
        if not record.is_loaded:
            return None
        sink = self._sink(record)
        encoded_key = None
        if len(key) == len(key_columns):
            values = dict(zip(record.key, key, strict=True))
            encoded_key = sink.plain_key([values[column.name] for column in key_columns])
        if encoded_key is None:
            keys = [key[0] if len(key) == 1 else key]
            rows = keys_to_arrow(self.key_schema, keys, nullable=True)
            (encoded_key,) = sink.key_of(rows)
        epoch = self.epoch
        for number in _shards_with(record, key):
            shard = self._store.states.shard(record.rows, number)
            if row := current(shard.get(encoded_key), epoch):
                return sink.decode_row(row)
        return None

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return self._record().key

    @property
    def key_schema(self) -> TableSchema:
        """The columns of the key. Raises `UnsupportedSql` if no row can be read by its key."""
        record = self._record()
        return ViewKey(self.name, self._key_columns(record), record.key)

    def _key_columns(self, record: ViewRecord) -> tuple[Column, ...]:
        """The columns of the key, in the order of the view's."""
        return self._columns_of_key(record.plan.columns, record.key)

    def _columns_of_key(
        self, columns: tuple[Column, ...], key: tuple[str, ...]
    ) -> tuple[Column, ...]:
        key_columns = tuple(column for column in columns if column.name in key)
        if len(key_columns) in (0, len(columns)) or any(
            is_nested(column.type) for column in key_columns
        ):
            raise UnsupportedSql(
                f"view {self.name} has no key by which a single row can be read; scan the view"
            )
        return key_columns

    def __len__(self) -> int:
        return int(self.to_arrow().num_rows)


def check_start(start: object) -> None:
    """Raises `LogError` if a feed can't start there."""
    if start not in ("snapshot", "now") and not isinstance(start, int):
        raise LogError(f"a feed can't start at {start!r}; use 'snapshot', 'now' or an epoch")


def read_together(views: list[View]) -> dict[str, pa.Table]:
    """The rows of several views of one store as of one epoch, by name."""
    names = [view.name for view in views]
    if not names:
        return {}
    with _pinned_store(views[0]._store, names) as pinned:
        return {view.name: view.at(pinned)._rows() for view in views}


@contextmanager
def _pinned_store(store: Reader, views: list[str]) -> Iterator[PinnedStore]:
    """The store at one epoch: the pin itself, or a new pin for as long as the block."""
    if isinstance(store, PinnedStore):
        yield store
    else:
        assert isinstance(store, Store)
        with closing(store.pins.pin(views, [])) as pinned:
            yield pinned


def _shards_with(record: ViewRecord, key: tuple[Any, ...]) -> Sequence[int]:
    """The shards that may have the row with a key: the one of its slot, if the values say it."""
    columns = columns_of_slot(record.plan, record.key)
    if len(key) != len(record.key):
        return record.shards
    values = dict(zip(record.key, key, strict=True))
    number = hash_of([(column.type, values[column.name]) for column in columns])
    if number is None:
        return record.shards
    slot = number % record.slots
    return [record.shards[slot % len(record.shards)]]


def _check_readable(record: ViewRecord) -> None:
    if record.rebuilding:
        raise NotLoaded(
            f"view {record.name} has no rows until it is loaded again; {how_to_maintain()} loads it"
        )


def in_order(rows: pa.Table, order: Sequence[Order]) -> pa.Table:
    """Rows sorted, each column with its NULLs where the query wants them."""
    for by in reversed(order):
        places = pc.array_sort_indices(
            _comparable(rows[by.column].combine_chunks()),
            order="descending" if by.descending else "ascending",
            null_placement="at_start" if by.nulls_first else "at_end",
        )
        rows = rows.take(places)
    return rows


def _comparable(values: pa.Array) -> pa.Array:
    """Values that Arrow sorts as Spark does: Arrow would put NaN beside NULL."""
    if not pa.types.is_floating(values.type):
        return values
    ordered = KeyCodec([Column("", values.type)]).encode([values])
    return pc.if_else(values.is_valid(), ordered, pa.scalar(None, pa.binary()))


@lru_cache(1024)
def _schema_of(plan: Node) -> pa.Schema:
    return pa.schema([pa.field(c.name, c.type, c.nullable) for c in plan.columns])
