"""The handle of a view: reads its rows as of the committed epoch.

A read sees one committed epoch of the whole view. It never blocks maintenance, and never waits for
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from everview import frames
from everview.advice import how_to_maintain, how_to_read_table
from everview.analysis import Analysis, analyze
from everview.codec import KeyCodec
from everview.codec.point import python_rows
from everview.errors import (
    EverviewError,
    NotLoaded,
    UnsupportedSql,
    ViewNotFound,
    meant,
    reason_of,
)
from everview.html import SHOWN_ROWS, html_of
from everview.intake import keys_to_arrow
from everview.operators.sink import ViewSink, current
from everview.plan.analyze import analyzed
from everview.plan.explain import Document, explain
from everview.plan.nodes import Node, Order, node_of
from everview.schema import Column, TableSchema, ViewKey, is_nested
from everview.stores.embedded import EmbeddedStore, unsynced
from everview.stores.embedded.pinned import PinnedStore, is_loaded

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Row = dict[str, Any]
WAITING = "waiting"  # the document that says why no view can be maintained
T = TypeVar("T")


class View:
    """A query whose result Everview keeps current.

    A handle is cheap to make. After the view is dropped, every use of it raises `ViewNotFound`.
    """

    def __init__(self, store: EmbeddedStore, name: str) -> None:
        self._store = store
        if not isinstance(name, str):
            raise ViewNotFound(f"the name of a view must be text, not {type(name).__name__}")
        self.name = self._document(name)["name"]

    def __repr__(self) -> str:
        try:
            at = f"epoch {self.epoch}" if self.is_loaded else "not loaded yet"
            return f"<view {self.name}: {self.status}, {at}>"
        except EverviewError as error:
            return f"<view {self.name}: {reason_of(error)}>"

    def _repr_html_(self) -> str:
        def look() -> tuple[pa.Table, int]:
            rows = self.to_arrow()
            return rows.slice(0, SHOWN_ROWS), rows.num_rows

        return html_of(self, look)

    def _document(self, name: str | None = None) -> dict[str, Any]:
        name = self.name if name is None else name
        found = self._store.document(f"view/{name.lower()}")
        if found is None:
            raise self._missing(name)
        return found

    def _missing(self, name: str) -> ViewNotFound:
        if any(name.lower() == table.lower() for table in self._store.tables()):
            return ViewNotFound(
                f"{name} is a table, not a view; read it with {how_to_read_table(name)}"
            )
        views = sorted(v["name"] for v in self._store.documents("view/").values())
        have = f"views: {', '.join(views)}" if views else "there are no views yet"
        return ViewNotFound(f"there is no view {name}; {meant(name, views)}{have}")

    @property
    def sql(self) -> str:
        """The query that defines the view."""
        return str(self._document()["sql"])

    @property
    def plan(self) -> Node:
        """The plan by which the view is maintained."""
        return node_of(self._document()["plan"])

    @property
    def is_open(self) -> bool:
        """Whether SQL allows several answers to the query, as with `first` or rows that tie."""
        return bool(self._document()["open"])

    @property
    def views(self) -> dict[str, str]:
        """The views that this view reads: {name in the query: name of the view}."""
        return dict(self._document()["views"])

    @property
    def tables(self) -> list[str]:
        """The tables that the view reads, directly or through other views.

        The plan may not need all of them.
        """
        return list(self._document()["tables"])

    @property
    def named_tables(self) -> tuple[str, ...]:
        """The tables that the query names, also those that can't change its answer."""
        return tuple(self._document().get("widths", {}))

    @property
    def table_columns(self) -> dict[str, tuple[str, ...]]:
        """The columns that each table had when the view was created; the query sees only these."""
        widths = self._document().get("widths", {})
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
        return "waiting" if self._waits_for() else str(self._document()["status"])

    def _waits_for(self) -> str | None:
        """Why the engine failed in the last run; None if it worked, or if the view is stopped."""
        waiting = self._store.document(WAITING)
        return waiting["why"] if waiting and self._document()["status"] != "stopped" else None

    def _is_suspect(self) -> bool:
        return self.is_loaded and unsynced.is_suspect(self._store.document(unsynced.DOCUMENT))

    @property
    def consistency(self) -> str:
        """'strong', or 'complete' if readers can see a state after every single change."""
        return str(self._document()["consistency"])

    @property
    def error(self) -> str | None:
        """Why the view is stopped, waiting, suspect or not replaced, and what to do; else None."""
        if self._is_suspect():
            return unsynced.SUSPECT
        return self._waits_for() or self._document().get("error")

    @property
    def note(self) -> str:
        """What a reader must know about the rows: that the view is not loaded, or stopped.

        '' if the rows are current.
        """
        document = self._document()
        if not is_loaded(document):
            why = document.get("error") or f"{how_to_maintain()} loads it"
            return f"view {self.name} is not loaded yet, so it has no rows: {why}"
        if document["status"] != "stopped":
            return ""
        return f"view {self.name} is stopped, and its rows are of epoch {self.epoch}: {self.error}"

    @property
    def epoch(self) -> int:
        """The epoch that the rows show: the newest committed one, or the last before a stop."""
        committed = int((self._store.document("epoch") or {"number": 0})["number"])
        return min(committed, int(self._document().get("stopped_at", committed)))

    @property
    def freshness(self) -> timedelta:
        """The age of the oldest change that the view does not show yet; zero if it shows all."""
        oldest = oldest_pending(self._store, self.tables, self.positions)
        return timedelta(seconds=age_of(oldest))

    @property
    def is_loaded(self) -> bool:
        """Whether the view has rows to read. A view that stopped after its load still has them."""
        return is_loaded(self._document())

    @property
    def positions(self) -> dict[str, dict[str, int]] | None:
        """How far a stopped view follows the log of each table; None if it is not stopped."""
        return self._document().get("positions")

    @property
    def order(self) -> tuple[Order, ...]:
        """The order in which reads return the rows."""
        return tuple(Order(*by) for by in self._document()["order"])

    def explain(self, analyze: bool = False) -> Document:
        """How the view is maintained, as a document; `everview.plan.explain` describes it.

        With `analyze` it also has the work that the last epochs took.
        """
        found = self._steady(lambda: explain_view(self._store, self._document()))
        return analyzed(found, self.plan, self.analyze()) if analyze else found

    def analyze(self) -> Analysis | None:
        """The work that the last epochs took, by operator and shard; None if it is not loaded."""

        def found() -> Analysis | None:
            epoch, document = self.epoch, self._document()
            return analyze(self._store, document, epoch) if is_loaded(document) else None

        return self._steady(found)

    def _steady(self, look: Callable[[], T]) -> T:
        """What `look` returns; repeats it if the views changed meanwhile and it failed."""
        while True:
            before = self._store.documents("view/")
            try:
                return look()
            except EverviewError:
                if self._store.documents("view/") == before:
                    raise

    @property
    def schema(self) -> pa.Schema:
        return _schema_of(self._document()["plan"])

    def to_arrow(self) -> pa.Table:
        """All rows, in the order of the query's ORDER BY if it has one."""
        return read_together([self])[self.name]

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame; see `everview.frames`."""
        return frames.to_pandas(self.to_arrow())

    def to_polars(self) -> pl.DataFrame:
        """All rows as a Polars frame."""
        return frames.to_polars(self.to_arrow())

    def _rows(self) -> pa.Table:
        """All rows; the store must be pinned."""
        document, epoch = self._document(), self.epoch
        _check_readable(document)
        found = [self.schema.empty_table()]
        if is_loaded(document):
            sink = _sink(document)
            for number in document["shards"]:
                shard = self._store.shard(document["states"]["view"], number)
                found += sink.read(shard.values(), epoch)
        return _in_order(pa.concat_tables(found), document["order"])

    def scan(self) -> Iterator[Row]:
        """All rows as dicts, of one epoch."""
        for batch in self.to_arrow().to_batches():
            yield from python_rows(batch)

    def get(self, *key: Any) -> Row | None:
        """The row with that key, or None; `key` says which columns form the key."""
        key = key[0] if len(key) == 1 and isinstance(key[0], tuple) else key
        with _pinned(self._store, [self.name]) as pinned:
            return View(pinned, self.name)._row(key)

    def _row(self, key: tuple[Any, ...]) -> Row | None:
        """The row with that key, or None; the store must be pinned."""
        document = self._document()
        key_columns = self._key_columns(document)
        _check_readable(document)
        if not is_loaded(document):
            return None
        sink = _sink(document)
        encoded = None
        if len(key) == len(key_columns):
            given = dict(zip(document["key"], key, strict=True))
            encoded = sink.plain_key([given[column.name] for column in key_columns])
        if encoded is None:
            given_key = [key[0] if len(key) == 1 else key]
            rows = keys_to_arrow(self.key_schema, given_key, nullable=True)
            (encoded,) = sink.key_of(rows)
        epoch = self.epoch
        for number in document["shards"]:
            shard = self._store.shard(document["states"]["view"], number)
            if row := current(shard.get(encoded), epoch):
                return sink.decode_row(row)
        return None

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return tuple(self._document()["key"])

    @property
    def key_schema(self) -> TableSchema:
        """The columns of the key with their types. Raises `UnsupportedSql` if `get` can't work."""
        document = self._document()
        return ViewKey(self.name, self._key_columns(document), tuple(document["key"]))

    def _key_columns(self, document: dict[str, Any]) -> tuple[Column, ...]:
        """The columns of the key, in the order of the view's columns."""
        columns = node_of(document["plan"]).columns
        found = tuple(column for column in columns if column.name in document["key"])
        if len(found) in (0, len(columns)) or any(is_nested(column.type) for column in found):
            raise UnsupportedSql(
                f"view {self.name} has no key by which a single row can be read; scan the view"
            )
        return found

    def __len__(self) -> int:
        return int(self.to_arrow().num_rows)


def read_together(views: list[View]) -> dict[str, pa.Table]:
    """The rows of several views of one store as of one epoch, by name."""
    names = [view.name for view in views]
    if not names:
        return {}
    with _pinned(views[0]._store, names) as pinned:
        return {name: View(pinned, name)._rows() for name in names}


@contextmanager
def _pinned(store: EmbeddedStore, views: list[str]) -> Iterator[PinnedStore]:
    """The store at one epoch, for the time of the block; a pinned store stays as it is."""
    if isinstance(store, PinnedStore):
        yield store
    else:
        with closing(PinnedStore(store, views, [])) as pinned:
            yield pinned


def explain_view(store: EmbeddedStore, view: dict[str, Any]) -> Document:
    """How a view is maintained, or would be maintained if it is not created yet."""
    others = [v for v in store.documents("view/").values() if v["name"] != view["name"]]
    live = [other for other in others if other["status"] == "live"]
    states = {i: state for other in live for i, state in other["states"].items() if i != "view"}
    states |= view["states"] if is_loaded(view) else {}

    def size(node: Node | None) -> tuple[int, int] | None:
        state = states.get("view" if node is None else node.identity)
        if state is None:
            return None
        sizes = [store.shard(state, number).size() for number in view["shards"]]
        return sum(rows for rows, _ in sizes), sum(size for _, size in sizes)

    def shared(node: Node) -> list[str]:
        identity = node.identity
        state = states.get(identity)
        return sorted(v["name"] for v in others if state and v["states"].get(identity) == state)

    plan = node_of(view["plan"])
    created = store.document(f"view/{view['name'].lower()}") is not None
    return {
        "view": view["name"],
        "status": view["status"] if created else "not created",
        "epoch": View(store, view["name"]).epoch if created else None,
        "error": view.get("error"),
        "query": view["sql"],
        "order": [str(Order(*by)) for by in view["order"]],
        "shards": len(view["shards"]),
        **explain(plan, tuple(view["key"]), size, shared),
    }


def oldest_pending(
    store: EmbeddedStore,
    tables: Iterable[str],
    positions: Mapping[str, Mapping[str, int]] | None = None,
) -> datetime | None:
    """The time of the oldest change after some positions, by default those of the last epoch."""
    if positions is None:
        positions = (store.document("epoch") or {"positions": {}})["positions"]
    times = [
        store.times_after(table, {int(r): s for r, s in positions.get(table, {}).items()}).values()
        for table in tables
    ]
    return min(chain.from_iterable(times), default=None)


def age_of(time: datetime | None) -> float:
    """Seconds since then; 0 if there was no such time."""
    return 0.0 if time is None else max(0.0, (datetime.now(UTC) - time).total_seconds())


def _check_readable(document: dict[str, Any]) -> None:
    if document.get("rebuilding"):
        raise NotLoaded(
            f"view {document['name']} has no rows until it is loaded again; {how_to_maintain()} "
            "loads it"
        )


def _in_order(rows: pa.Table, order: list[list[Any]]) -> pa.Table:
    """The rows, sorted, with NULLs first or last as the query says for each column."""
    for name, descending, nulls_first in reversed(order):
        places = pc.array_sort_indices(
            _comparable(rows[name].combine_chunks()),
            order="descending" if descending else "ascending",
            null_placement="at_start" if nulls_first else "at_end",
        )
        rows = rows.take(places)
    return rows


def _comparable(values: pa.Array) -> pa.Array:
    """Values that Arrow sorts as Spark does: Arrow would put NaN beside NULL."""
    if not pa.types.is_floating(values.type):
        return values
    ordered = KeyCodec([Column("", values.type)]).encode([values])
    return pc.if_else(values.is_valid(), ordered, pa.scalar(None, pa.binary()))


def _sink(document: dict[str, Any]) -> ViewSink:
    return _sink_of(document["plan"], tuple(document["key"]))


@lru_cache(1024)
def _schema_of(plan: str) -> pa.Schema:
    return pa.schema([pa.field(c.name, c.type, c.nullable) for c in node_of(plan).columns])


@lru_cache(1024)
def _sink_of(plan: str, key: tuple[str, ...]) -> ViewSink:
    return ViewSink(node_of(plan).columns, key)
