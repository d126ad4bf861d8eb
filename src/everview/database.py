"""The handle of a database: tables, views, SQL, maintenance and status.

`open` returns a handle. Threads may share it, and any number of processes may have one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

import pyarrow as pa

from everview.batch import Batch, Limit
from everview.catalog import NUMBER_OF_SLOTS, PIN_LIMIT, VIEWS, PinLimit, Slots
from everview.catalog.views import MOST_SLOTS
from everview.closing import Closing
from everview.engines.owner import Engines
from everview.errors import DatabaseError, EverviewError, reason_of
from everview.named import open_view
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


def count(number: int, noun: str) -> str:
    """1 table, 2 tables"""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def open(
    path: str | os.PathLike[str],
    create: bool = False,
    *,
    durability: Durability = "interval",
    engine: EngineName = "spark",
    map_size: int | None = None,
    readonly: bool = False,
    spark: SparkSession | None = None,
    slots: int | None = None,
) -> Database:
    """Open the database in the directory `path`; with `create`, make it if it doesn't exist.

    durability: A write that has returned survives a crash of the process. It survives a crash of
    the machine with "always", and with "interval" if it is older than about a second. With "never"
    the operating system decides when data goes to disk.
    engine: "spark" or "sail" runs queries and maintains views.
    map_size: The address space, in bytes, that each region reserves at first. It grows when needed.
    readonly: Refuse writes. Such a handle never waits for a writer, not even to open the files.
    spark: A session that you have. The engine works in the same Spark, in a session of its own.
    slots: In how many slots the state of views lies, 64 by default; fixed with the first view. Work
    is divided between tasks by slots, so more of them divide it more evenly.
    """
    if slots is not None and slots not in range(4, MOST_SLOTS + 1, 4):
        raise DatabaseError(f"slots must be a multiple of 4 from 4 to {MOST_SLOTS:,}, not {slots}")
    engines = Engines(engine, spark)
    options = {"durability": durability, "map_size": map_size}
    store = open_store(os.fspath(path), create=create, readonly=readonly, **options)
    try:
        if slots is not None and slots != store.catalog.slots:
            _fix_slots(store, slots)
    except EverviewError:
        store.close()
        raise
    return Database(store, engines)


def _fix_slots(store: Store, slots: int) -> None:
    catalog, name = store.catalog, path_of(store.address)
    if catalog.all(VIEWS):
        raise DatabaseError(
            f"{name} has {catalog.slots} slots, and their number is fixed since its first view was "
            f"created; leave slots out, or create a database with slots={slots}"
        )
    catalog.write({NUMBER_OF_SLOTS: Slots(slots)})


@dataclass(frozen=True)
class TableStatus:
    name: str
    rows: int
    bytes: int
    changes: int
    append_only: bool
    regions: list[RegionStatus]


class Names(list[str]):
    """Names of tables or views. Earlier versions had methods here, so a call still works."""

    def __call__(self) -> list[str]:
        return self


class Database(Closing):
    """A database: its tables, its views, and SQL over them."""

    def __init__(self, store: Store, engines: Engines | None = None) -> None:
        self.store = store
        self.engines = engines or Engines()
        self.path = path_of(store.address)

    def __repr__(self) -> str:
        try:
            counts = f"{count(len(self.tables), 'table')}, {count(len(self.views), 'view')}"
            epoch = self.store.catalog.epoch.number
            return f"<everview database {self.path}: {counts}, epoch {epoch}>"
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

        An `append_only` table takes new rows only: a write that would change or delete a row raises
        `AppendOnly`. Views over such a table need less state.
        """
        options = {"regions": regions, "observers": tuple(observers), "append_only": append_only}
        self.store.create_table(TableSchema.of(name, columns, key, **options))
        return self.table(name)

    def drop_table(self, name: str) -> None:
        """Delete a table with its rows and its log. Raises `InUse` if a view reads it."""
        check_name(name)
        self.store.drop_table(name)

    def table(self, name: str) -> Table:
        """The handle of a table. Raises `TableNotFound`."""
        return Table(self.store, name)

    @property
    def tables(self) -> Names:
        """Names of all tables, sorted."""
        hidden = self.store.catalog.hidden_tables()
        return Names(name for name in self.store.tables() if name not in hidden)

    def sql(self, statement: str) -> Result:
        """Run one SQL statement: CREATE, ALTER, DROP, DESCRIBE, SHOW, INSERT, UPDATE, DELETE,
        SELECT, EXPLAIN, VERIFY."""
        from everview.sql import run

        return run(self._context, statement)

    def run_script(self, script: str | Sequence[str]) -> Iterator[Result]:
        """Run SQL statements one after the other, and give their results: a list, or a text in
        which semicolons separate them.

        The first error ends the run, and the statements before it keep their effect. Statements in
        a row that create views which are alike, that is differ in constants only, are one write.
        """
        from everview.sql import run_script

        return run_script(self._context, script)

    @property
    def _context(self) -> Context:
        from everview.sql.context import Context

        return Context(self.store, self.engines)

    @property
    def engine(self) -> Engine:
        """The engine of this handle; the first use starts it."""
        return self.engines.own

    @property
    def engine_name(self) -> str:
        return self.engines.name

    def interrupt(self) -> bool:
        """Cancel the query that the engine runs for this handle; its caller gets an error.

        Returns False if there is nothing to cancel, for example because no engine was started.
        """
        return self.engines.interrupt()

    def view(self, name: str) -> View:
        """The handle of a view. Raises `ViewNotFound`."""
        return open_view(self.store, name)

    @property
    def views(self) -> Names:
        """Names of all views, sorted."""
        return Names(self.store.catalog.view_names())

    def pin(self, *names: str, max_age: float | None = None) -> Pin:
        """Pin the named views and tables, by default all, as of one moment.

        `with db.pin("orders", "revenue") as at: at.table("orders").get(1), at.view("revenue")...`
        All reads through the pin see the same moment, however long they take: each view as of the
        epoch that its group had committed. They never delay maintenance.

        While a pin is open, the database can't use the space of replaced rows again, so it grows.
        The pin ends after `max_age` seconds, or after the limit of the database (`limit_pins`) if
        that is shorter. From then on reads through it raise `PinExpired`.
        """
        if max_age is not None and not 0 < max_age <= MAX_AGE:
            raise DatabaseError(
                f"max_age must be a number of seconds up to {MAX_AGE:,}, not {max_age}"
            )
        limits = [limit for limit in (max_age, self.pin_limit) if limit is not None]
        limit = min(limits, default=None)
        if not names:
            return Pin(self.store.pins.pin(max_age=limit), self.store.pins, limit)
        for name in names:
            check_name(name)
        view_names = set(map(str.lower, self.views))
        tables = [name for name in names if name.lower() not in view_names]
        views = [name for name in names if name.lower() in view_names]
        return Pin(self.store.pins.pin(views, tables, limit), self.store.pins, limit)

    def pins(self) -> list[PinNote]:
        """The open pins of all processes, the oldest first."""
        return self.store.pins.notes()

    @property
    def pin_limit(self) -> float | None:
        """After how many seconds a pin of this database ends; None for no limit."""
        limit = self.store.catalog.get(PIN_LIMIT)
        return None if limit is None else limit.max_age

    def limit_pins(self, seconds: float | None) -> None:
        """Let every pin that is opened from now on end after so many seconds; None for no limit."""
        if seconds is not None and not 0 < seconds <= MAX_AGE:
            raise DatabaseError(
                f"the limit must be a number of seconds up to {MAX_AGE:,}, not {seconds}"
            )
        limit = None if seconds is None else PinLimit(float(seconds))
        self.store.catalog.write({PIN_LIMIT: limit})

    def maintain(
        self,
        engine: EngineName | None = None,
        watch: Watcher | None = None,
        lease: float = LEASE_SECONDS,
        batch: Batch | Limit | Iterable[Limit] | None = None,
    ) -> Report:
        """Load new views, and bring all views up to date with their tables.

        A view that fails stops, and `failed` in the report says why. The others go on. If another
        process maintains the views now, this call waits. If that process gives no sign of life for
        `lease` seconds, this one takes over, and the store refuses further writes of the other.
        `watch` is called at each step.

        `batch` limits an epoch: 50_000 changes, '64MB', or '1s' for the changes of one second; a
        list has several limits. Small batches show changes sooner, large ones take less work.
        """
        from everview.maintain.run import maintain

        return maintain(self.store, self.engines.named(engine), watch, lease, Batch.of(batch))

    @contextmanager
    def running(
        self, watch: Watcher | None = None, lease: float = LEASE_SECONDS
    ) -> Iterator[Callable[[], bool]]:
        """Be the process that maintains the views all the time; wait while another process is.

        The block gets a function. It returns False after another process took over, because this
        one gave no sign of life for `lease` seconds.
        """
        waiting = watch.waiting if watch else lambda holder: None
        with self.store.leases.hold(RUN, lease, waiting) as token:
            yield lambda: self.store.leases.token == token

    def maintainer(
        self,
        every: float = 0.2,
        engine: EngineName | None = None,
        batch: Batch | Limit | Iterable[Limit] | None = None,
    ) -> BackgroundMaintainer:
        """Maintain the views in a background thread: `with db.maintainer(every=0.2): ...`

        When the block ends, the views show all changes that were made in it. `batch` limits an
        epoch, as in `maintain`.
        """
        from everview.maintain.background import BackgroundMaintainer

        return BackgroundMaintainer(self.store, self.engines.named(engine), every, Batch.of(batch))

    @overload
    def explain(self, view: str, json: Literal[False] = False, analyze: bool = False) -> str: ...

    @overload
    def explain(self, view: str, json: Literal[True], analyze: bool = False) -> dict[str, Any]: ...

    def explain(self, view: str, json: bool = False, analyze: bool = False) -> str | dict[str, Any]:
        """How a view is maintained: its plan as a text, or with `json` as a document.

        `view` is the name of a view, or a CREATE MATERIALIZED VIEW statement, which is explained
        and not run. With `analyze` each operator also shows the work of its last epochs: rows,
        reads and writes of state, and time.
        """
        from everview.explain.plan import as_text
        from everview.sql.explaining import explain

        check_name(view)
        document = explain(self._context, view, analyze)
        return document if json else as_text(document)

    def verify(self, view: str) -> Verdict:
        """Recompute a view at its epoch with Spark, and compare the rows."""
        from everview.check.verify import verify

        return verify(self.store, self.engines.planner, view)

    def rebuild(self, view: str) -> Report:
        """Load a view again from its tables, and with it the views that share state with it.

        Use it for a view that stopped, or whose state is damaged. Until the load has ended, reads
        of the view raise `NotLoaded`.
        """
        from everview.maintain.views import rebuild_view

        rebuild_view(self.store, self.view(view).name)
        return self.maintain()

    def status(self) -> list[TableStatus]:
        """Number of rows, bytes on disk and changes in the log, for each table and region."""
        statuses = []
        for name in self.tables:
            regions = self.store.status(name)
            statuses.append(
                TableStatus(
                    name=name,
                    rows=sum(r.rows for r in regions),
                    bytes=sum(r.bytes for r in regions),
                    changes=sum(r.log.last - r.log.first + 1 for r in regions),
                    append_only=self.store.describe(name).append_only,
                    regions=regions,
                )
            )
        return statuses

    def space(self) -> Space:
        """Bytes on disk, bytes that are free, and bytes that pins and other reads still need.

        The last are listed by process.
        """
        return self.store.space()

    def compact(self, watch: Callable[[str, int, int], None] | None = None) -> Compaction:
        """Give free space in the files back to the file system.

        Other processes may read and write meanwhile; a write may wait for a moment. Space that
        readers still need stays; `after.held` in the report says which processes these are.
        """
        return self.store.compact(watch)

    def failed_syncs(self) -> dict[str, str]:
        """The directories whose data can't be synced to disk, each with the error.

        Everview tries again every second. Until it succeeds, a crash of the machine may lose more
        than the last second of writes.
        """
        return self.store.failed_syncs()

    def close(self) -> None:
        """Sync and close the files. The engine keeps running; other handles may use it."""
        self.store.close()
