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

from everview.catalog import EPOCH, NO_EPOCH, PIN_LIMIT, VIEWS, PinLimit
from everview.closing import Closing
from everview.engines.owner import Engines
from everview.errors import DatabaseError, EverviewError, reason_of
from everview.pin import Pin
from everview.schema import DEFAULT_REGIONS, Column, TableSchema
from everview.stores import open_store, path_of
from everview.stores.base import (
    LEASE_SECONDS,
    MAX_AGE,
    RUN,
    Compaction,
    PinNote,
    RegionStatus,
    Space,
    Store,
)
from everview.table import Table, check_name
from everview.view import View

if TYPE_CHECKING:
    from everview.check.verify import Verdict
    from everview.engines.engine import Engine
    from everview.engines.owner import SparkSession
    from everview.maintain.background import BackgroundMaintainer
    from everview.maintain.report import Report
    from everview.maintain.watching import Watcher
    from everview.results.result import Result
    from everview.sql.context import Context

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
    spark: SparkSession | None = None,
) -> Database:
    """Open the database in the directory `path`; with `create`, make it if nothing is there.

    durability: a put that returned always survives a crash of the process. A crash of the machine
    it survives with "always" (synced before it returns) and, when older than a second or so, with
    "interval"; "never" leaves the time of writing to the operating system.
    engine: what evaluates SELECT and WHERE: "spark" or "sail".
    map_size: address space reserved for each region at first, in bytes; it grows when needed.
    readonly: refuse writes; such a handle never waits for a writer, not even to open the files.
    spark: a session that you have. The engine works in the same Spark, in a session of its own.
    """
    engines = Engines(engine, spark)
    options = {"durability": durability, "map_size": map_size}
    store = open_store(os.fspath(path), create=create, readonly=readonly, **options)
    return Database(store, engines)


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

    def __init__(self, store: Store, engines: Engines) -> None:
        self.store = store
        self.engines = engines
        self.path = path_of(store.address)

    def __repr__(self) -> str:
        try:
            found = f"{count(len(self.tables), 'table')}, {count(len(self.views), 'view')}"
            epoch = (self.store.catalog.get(EPOCH) or NO_EPOCH).number
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

        return run(self._context, statement)

    @property
    def _context(self) -> Context:
        from everview.sql.context import Context

        return Context(self.store, self.engines)

    @property
    def engine(self) -> Engine:
        """The engine that evaluates queries, started at first use."""
        return self.engines.own

    @property
    def engine_name(self) -> str:
        return self.engines.name

    def interrupt(self) -> bool:
        """End what the engine evaluates for this handle; whoever waits for that gets an error.

        False if there is nothing that can be ended, since the engine is not started, say.
        """
        return self.engines.interrupt()

    def view(self, name: str) -> View:
        """A handle of an existing view."""
        return View(self.store, name)

    @property
    def views(self) -> Names:
        """Names of all views, sorted."""
        return Names(sorted(view.name for view in self.store.catalog.all(VIEWS).values()))

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
            return Pin(self.store.pins.pin(max_age=limit), self.store.pins, limit)
        for name in names:
            check_name(name)
        known = set(map(str.lower, self.views))
        tables = [name for name in names if name.lower() not in known]
        views = [name for name in names if name.lower() in known]
        return Pin(self.store.pins.pin(views, tables, limit), self.store.pins, limit)

    def pins(self) -> list[PinNote]:
        """The pins that processes hold now, the oldest first."""
        return self.store.pins.notes()

    @property
    def pin_limit(self) -> float | None:
        """How many seconds old a pin of this database may become; None for no limit."""
        limit = self.store.catalog.get(PIN_LIMIT)
        return None if limit is None else limit.max_age

    def limit_pins(self, seconds: float | None) -> None:
        """Let no pin that any process opens from now on become older; None for no limit."""
        if seconds is not None and not 0 < seconds <= MAX_AGE:
            raise DatabaseError(f"a limit is a number of seconds up to {MAX_AGE:,}, not {seconds}")
        limit = None if seconds is None else PinLimit(float(seconds))
        self.store.catalog.write({PIN_LIMIT: limit})

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
        from everview.maintain.run import maintain

        return maintain(self.store, self.engines.named(engine), watch, lease)

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

    def maintainer(
        self, every: float = 0.2, engine: EngineName | None = None
    ) -> BackgroundMaintainer:
        """Maintains in the background of a block: `with db.maintainer(every=0.2): ...`

        All changes made in the block are in the views when it ends.
        """
        from everview.maintain.background import BackgroundMaintainer

        return BackgroundMaintainer(self.store, self.engines.named(engine), every)

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
        from everview.sql.explaining import explain

        check_name(view)
        document = explain(self._context, view, analyze)
        return document if json else as_text(document)

    def verify(self, view: str) -> Verdict:
        """Recompute a view at its epoch and compare."""
        from everview.check.verify import verify

        return verify(self.store, self.engines.planner, view)

    def rebuild(self, view: str) -> Report:
        """Make a view anew from its tables, and the views that share state with it.

        For a view that was stopped, or whose state is damaged. Until it is loaded, reads of it
        raise `NotLoaded`.
        """
        from everview.maintain.views import rebuild_view

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
        return self.store.space()

    def compact(self, watch: Callable[[str, int, int], None] | None = None) -> Compaction:
        """Give the space back that is free in the files, beside all who read and write.

        Writes wait for moments only. What readers keep from being free stays; `after.held` of the
        report says which processes do.
        """
        return self.store.compact(watch)

    def failed_syncs(self) -> dict[str, str]:
        """What was written but can't be handed to the device: the error, by directory.

        It is tried again every second. Until it succeeds, a crash of the machine may cost more
        than the last second.
        """
        return self.store.failed_syncs()

    def close(self) -> None:
        """Sync and let go of the files. The engine's session is left to the process."""
        self.store.close()
