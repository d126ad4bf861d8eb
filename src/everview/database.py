"""A database as users hold it: tables, SQL, status.

`open` gives a handle; handles may be shared by threads, and any number of processes may hold one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

import pyarrow as pa

from everview.closing import Closing
from everview.engines import check_engine
from everview.errors import DatabaseError, EverviewError, UnsupportedSql, reason_of
from everview.pin import Pin
from everview.schema import DEFAULT_REGIONS, Column, TableSchema
from everview.stores.base import RegionStatus
from everview.stores.embedded import EmbeddedStore, compaction, pins
from everview.stores.embedded.compaction import Compaction
from everview.stores.embedded.lease import LEASE_SECONDS, RUN
from everview.stores.embedded.pinned import PinnedStore
from everview.stores.embedded.pins import MAX_AGE, PinNote
from everview.stores.embedded.space import Space
from everview.table import Table, check_name
from everview.view import View

if TYPE_CHECKING:
    from everview.check.verify import Verdict
    from everview.engines.engine import Engine
    from everview.maintain.background import Maintainer
    from everview.maintain.maintainer import Report
    from everview.maintain.watching import Watcher
    from everview.results.result import Result

Durability = Literal["always", "interval", "never"]
EngineName = Literal["spark", "sail"]


def count(number: int, what: str) -> str:
    """1 table, 2 tables"""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def open(
    path: str | os.PathLike[str],
    create: bool = False,
    *,
    durability: Durability = "interval",
    engine: EngineName = "spark",
    map_size: int | None = None,
    readonly: bool = False,
) -> Database:
    """Open the database in the directory `path`; with `create`, make it if nothing is there.

    durability: a put that returned always survives a crash of the process. A crash of the machine
    it survives with "always" (synced before it returns) and, when older than a second or so, with
    "interval"; "never" leaves the time of writing to the operating system.
    engine: what evaluates SELECT and WHERE: "spark" or "sail".
    map_size: address space reserved for each region at first, in bytes; it grows when needed.
    readonly: refuse writes; such a handle never waits for a writer, not even to open the files.
    """
    check_engine(engine)
    store = EmbeddedStore(
        os.fspath(path),
        create=create,
        durability=durability,
        map_size=map_size,
        readonly=readonly,
    )
    return Database(store, engine)


@dataclass(frozen=True)
class TableStatus:
    name: str
    rows: int
    bytes: int
    changes: int
    append_only: bool
    regions: list[RegionStatus]


class Names(list[str]):
    """Names of tables or views. They were had by a call once, so they can still be called."""

    def __call__(self) -> list[str]:
        return self


class Database(Closing):
    """Tables and SQL over one store."""

    def __init__(self, store: EmbeddedStore, engine: str = "spark") -> None:
        self.store = store
        self.path = store.path
        self.engine_name = engine
        self._engine: Engine | None = None
        self._others: dict[str, Engine] = {}

    def __repr__(self) -> str:
        try:
            found = f"{count(len(self.tables), 'table')}, {count(len(self.views), 'view')}"
            epoch = (self.store.document("epoch") or {"number": 0})["number"]
            return f"<everview database {self.path}: {found}, epoch {epoch}>"
        except EverviewError as error:
            return f"<everview database {self.path}: {reason_of(error)}>"

    def create_table(
        self,
        name: str,
        columns: pa.Schema | dict[str, str] | Iterable[Column],
        key: str | Sequence[str],
        regions: int = DEFAULT_REGIONS,
        observers: Sequence[str] = (),
        append_only: bool = False,
    ) -> Table:
        """Create a table from an Arrow schema or {column: SQL type}.

        Of one that is `append_only`, rows are neither changed nor deleted: such writes raise
        `AppendOnly`, and views over it keep less.
        """
        options = {"regions": regions, "observers": tuple(observers), "append_only": append_only}
        self.store.create_table(TableSchema.of(name, columns, key, **options))
        return self.table(name)

    def drop_table(self, name: str) -> None:
        """Remove a table with its rows and its log, unless a view reads it."""
        check_name(name)
        self.store.drop_table(name)

    def table(self, name: str) -> Table:
        """A handle of an existing table."""
        return Table(self.store, name)

    @property
    def tables(self) -> Names:
        """Names of all tables, sorted."""
        return Names(self.store.tables())

    def sql(self, statement: str) -> Result:
        """Run one SQL statement: CREATE, ALTER, DROP, DESCRIBE, SHOW, INSERT, UPDATE, DELETE,
        SELECT, EXPLAIN, VERIFY."""
        from everview.sql import run

        return run(self, statement)

    @property
    def engine(self) -> Engine:
        """The engine that evaluates queries, started at first use."""
        if self._engine is None:
            from everview.engines.engine import start

            self._engine = start(self.engine_name)
        return self._engine

    def interrupt(self) -> bool:
        """End what the engine evaluates for this handle; whoever waits for that gets an error.

        False if there is nothing that can be ended, since the engine is not started, say.
        """
        return self._engine is not None and self._engine.interrupt()

    def _engine_of(self, name: EngineName | None) -> Engine:
        """The named engine, or this database's own."""
        if name is None or name == self.engine.name:
            return self.engine
        if name not in self._others:
            from everview.engines.engine import start

            self._others[name] = start(name)
        return self._others[name]

    def view(self, name: str) -> View:
        """A handle of an existing view."""
        return View(self.store, name)

    @property
    def views(self) -> Names:
        """Names of all views, sorted."""
        return Names(sorted(view["name"] for view in self.store.documents("view/").values()))

    def pin(self, *names: str, max_age: float | None = None) -> Pin:
        """One committed epoch over the named views and tables, by default all of them.

        `with db.pin("orders", "revenue") as at: at.table("orders").get(1), at.view("revenue")...`
        Reads through it never mix epochs, however long they take, and never hold up maintenance.

        While it is open, the space of what is replaced is not used again, and the database grows.
        After `max_age` seconds it ends, and reads through it raise `PinExpired`; so it does after
        the limit of the database (`limit_pins`), if that is less.
        """
        if max_age is not None and not 0 < max_age <= MAX_AGE:
            raise DatabaseError(f"max_age is a number of seconds up to {MAX_AGE:,}, not {max_age}")
        limits = [limit for limit in (max_age, self.pin_limit) if limit is not None]
        limit = min(limits, default=None)
        if not names:
            return Pin(PinnedStore(self.store, max_age=limit), limit)
        for name in names:
            check_name(name)
        known = set(map(str.lower, self.views))
        tables = [name for name in names if name.lower() not in known]
        views = [name for name in names if name.lower() in known]
        return Pin(PinnedStore(self.store, views, tables, limit), limit)

    def pins(self) -> list[PinNote]:
        """The pins that processes hold now, the oldest first."""
        return pins.notes(self.path)

    @property
    def pin_limit(self) -> float | None:
        """How many seconds old a pin of this database may become; None for no limit."""
        found: float | None = (self.store.document(pins.DOCUMENT) or {}).get("max_age")
        return found

    def limit_pins(self, seconds: float | None) -> None:
        """Let no pin that any process opens from now on become older; None for no limit."""
        if seconds is not None and not 0 < seconds <= MAX_AGE:
            raise DatabaseError(f"a limit is a number of seconds up to {MAX_AGE:,}, not {seconds}")
        document = None if seconds is None else {"max_age": float(seconds)}
        self.store.store_documents({pins.DOCUMENT: document})

    def maintain(
        self,
        engine: EngineName | None = None,
        watch: Watcher | None = None,
        lease: float = LEASE_SECONDS,
    ) -> Report:
        """Load new views and run epochs until nothing is pending.

        A view that fails is stopped, and the report's `failed` says why; the others go on.
        `watch` is told of each step. While another process maintains, it waits; one that gives no
        sign of life for `lease` seconds is superseded and can write nothing more.
        """
        from everview.maintain.maintainer import maintain

        return maintain(self.store, self._engine_of(engine), watch, lease)

    @contextmanager
    def running(
        self, watch: Watcher | None = None, lease: float = LEASE_SECONDS
    ) -> Iterator[Callable[[], bool]]:
        """Be the one process that maintains all the time; stands by while another is.

        Inside the block, what it gives says whether that is still so, or another process took
        over because this one gave no sign of life for `lease` seconds.
        """
        waiting = watch.waiting if watch else lambda holder: None
        with self.store.leases.held(RUN, lease, waiting) as token:
            yield lambda: self.store.leases.token == token

    def maintainer(self, every: float = 0.2, engine: EngineName | None = None) -> Maintainer:
        """Maintains in the background of a block: `with db.maintainer(every=0.2): ...`

        All changes made in the block are in the views when it ends.
        """
        from everview.maintain.background import Maintainer

        return Maintainer(self.store, self._engine_of(engine), every)

    @overload
    def explain(self, view: str, json: Literal[False] = False, analyze: bool = False) -> str: ...

    @overload
    def explain(self, view: str, json: Literal[True], analyze: bool = False) -> dict[str, Any]: ...

    def explain(self, view: str, json: bool = False, analyze: bool = False) -> str | dict[str, Any]:
        """How a view is maintained: its plan as a tree, or with `json` as a document.

        `view` is the name of a view, or a CREATE MATERIALIZED VIEW, which is then only explained.
        With `analyze` each operator of a view has what its last epochs took: rows, state and time.
        """
        from everview.explain.plan import as_text

        check_name(view)
        words = view.split(maxsplit=1)
        if len(words) == 2 and words[0].upper() in ("SELECT", "WITH", "FROM", "VALUES"):
            raise UnsupportedSql(
                "a query is explained as the view it would be: write CREATE MATERIALIZED VIEW name "
                "AS, and then the query"
            )
        if len(words) < 2 or words[0].upper() != "CREATE":
            document = self.view(view).explain(analyze)
        elif analyze:
            raise UnsupportedSql(
                "ANALYZE shows what epochs of a view took, and one that is not created has none; "
                "explain it without ANALYZE"
            )
        else:
            from everview.sql.creating import define
            from everview.sql.creation import Creation
            from everview.sql.statements import only

            document = self._expected(define(self, Creation.of(only(view))))
        return document if json else as_text(document)

    def _expected(self, view: dict[str, Any]) -> dict[str, Any]:
        """How a view would be maintained that isn't created, and what that is expected to cost."""
        from everview.estimate.costs import constants_of, cost_of_view, rates_of
        from everview.explain.expected import with_estimates
        from everview.view import explain_view

        engine = self.engine_name
        return with_estimates(
            explain_view(self.store, view),
            cost_of_view(self.store, view),
            constants_of(self.store, engine),
            engine,
            rates_of(self.store, view["tables"]),
        )

    def verify(self, view: str) -> Verdict:
        """Recompute a view at its epoch and compare."""
        from everview.check.verify import verify

        return verify(self, view)

    def rebuild(self, view: str) -> Report:
        """Make a view anew from its tables, and the views that share state with it.

        For a view that was stopped, or whose state is damaged. Until it is loaded, reads of it
        raise `NotLoaded`.
        """
        from everview.maintain.maintainer import rebuild_view

        rebuild_view(self.store, self.view(view).name)
        return self.maintain()

    def status(self) -> list[TableStatus]:
        """Rows, bytes on disk and changes kept, for each table and region."""
        found = []
        for name in self.tables:
            regions = self.store.status(name)
            found.append(
                TableStatus(
                    name=name,
                    rows=sum(r.rows for r in regions),
                    bytes=sum(r.bytes for r in regions),
                    changes=sum(r.log.last - r.log.first + 1 for r in regions),
                    append_only=self.store.describe(name).append_only,
                    regions=regions,
                )
            )
        return found

    def space(self) -> Space:
        """Bytes on disk; how many of them are free; and how many would be, but for readers such as
        pins, by process."""
        return compaction.space(self.store)

    def compact(self, watch: Callable[[str, int, int], None] | None = None) -> Compaction:
        """Give the space back that is free in the files, beside all who read and write.

        Writes wait for moments only. What readers keep from being free stays; `after.held` of the
        report says which processes do.
        """
        return compaction.compact(self.store, watch)

    def failed_syncs(self) -> dict[str, str]:
        """What was written but can't be handed to the device: the error, by directory.

        It is tried again every second. Until it succeeds, a crash of the machine may cost more
        than the last second.
        """
        return self.store.failed_syncs()

    def close(self) -> None:
        """Sync and let go of the files. The engine's session is left to the process."""
        self.store.close()
