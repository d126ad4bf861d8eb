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

from everview.closing import Closing
from everview.errors import DatabaseError, EverviewError, UnsupportedSql, reason_of
from everview.pin import Pin
from everview.run import check_engine
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
    from everview.result import Result
    from everview.run.background import Maintainer
    from everview.run.engine import Engine
    from everview.run.maintainer import Report
    from everview.run.watching import Watcher

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
    """Open the database in the directory `path`; with `create`, make it if it doesn't exist.

    durability: A write that has returned survives a crash of the process. It survives a crash of
    the machine with "always", and with "interval" if it is older than about a second. With "never"
    the operating system decides when data goes to disk.
    engine: "spark" or "sail" runs queries and maintains views.
    map_size: The address space, in bytes, that each region reserves at first. It grows when needed.
    readonly: Refuse writes. Such a handle never waits for a writer, not even to open the files.
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
    """Names of tables or views. Earlier versions had methods here, so a call still works."""

    def __call__(self) -> list[str]:
        return self


class Database(Closing):
    """A database: its tables, its views, and SQL over them."""

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
        return Names(self.store.tables())

    def sql(self, statement: str) -> Result:
        """Run one SQL statement: CREATE, ALTER, DROP, DESCRIBE, SHOW, INSERT, UPDATE, DELETE,
        SELECT, EXPLAIN, VERIFY."""
        from everview.sql import run

        return run(self, statement)

    @property
    def engine(self) -> Engine:
        """The engine of this handle; the first use starts it."""
        if self._engine is None:
            from everview.run.engine import start

            self._engine = start(self.engine_name)
        return self._engine

    def interrupt(self) -> bool:
        """Cancel the query that the engine runs for this handle; its caller gets an error.

        Returns False if there is nothing to cancel, for example because no engine was started.
        """
        return self._engine is not None and self._engine.interrupt()

    def _engine_of(self, name: EngineName | None) -> Engine:
        """The named engine, or this database's own."""
        if name is None or name == self.engine.name:
            return self.engine
        if name not in self._others:
            from everview.run.engine import start

            self._others[name] = start(name)
        return self._others[name]

    def view(self, name: str) -> View:
        """The handle of a view. Raises `ViewNotFound`."""
        return View(self.store, name)

    @property
    def views(self) -> Names:
        """Names of all views, sorted."""
        return Names(sorted(view["name"] for view in self.store.documents("view/").values()))

    def pin(self, *names: str, max_age: float | None = None) -> Pin:
        """Pin one committed epoch of the named views and tables, by default of all.

        `with db.pin("orders", "revenue") as at: at.table("orders").get(1), at.view("revenue")...`
        All reads through the pin see the same epoch, however long they take. They never delay
        maintenance.

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
            return Pin(PinnedStore(self.store, max_age=limit), limit)
        for name in names:
            check_name(name)
        known = set(map(str.lower, self.views))
        tables = [name for name in names if name.lower() not in known]
        views = [name for name in names if name.lower() in known]
        return Pin(PinnedStore(self.store, views, tables, limit), limit)

    def pins(self) -> list[PinNote]:
        """The open pins of all processes, the oldest first."""
        return pins.notes(self.path)

    @property
    def pin_limit(self) -> float | None:
        """After how many seconds a pin of this database ends; None for no limit."""
        found: float | None = (self.store.document(pins.DOCUMENT) or {}).get("max_age")
        return found

    def limit_pins(self, seconds: float | None) -> None:
        """Let every pin that is opened from now on end after so many seconds; None for no limit."""
        if seconds is not None and not 0 < seconds <= MAX_AGE:
            raise DatabaseError(
                f"the limit must be a number of seconds up to {MAX_AGE:,}, not {seconds}"
            )
        document = None if seconds is None else {"max_age": float(seconds)}
        self.store.store_documents({pins.DOCUMENT: document})

    def maintain(
        self,
        engine: EngineName | None = None,
        watch: Watcher | None = None,
        lease: float = LEASE_SECONDS,
    ) -> Report:
        """Load new views, and bring all views up to date with their tables.

        A view that fails stops, and `failed` in the report says why. The others go on. If another
        process maintains the views now, this call waits. If that process gives no sign of life for
        `lease` seconds, this one takes over, and the store refuses further writes of the other.
        `watch` is called at each step.
        """
        from everview.run.maintainer import maintain

        return maintain(self.store, self._engine_of(engine), watch, lease)

    @contextmanager
    def running(
        self, watch: Watcher | None = None, lease: float = LEASE_SECONDS
    ) -> Iterator[Callable[[], bool]]:
        """Be the process that maintains the views all the time; wait while another process is.

        The block gets a function. It returns False after another process took over, because this
        one gave no sign of life for `lease` seconds.
        """
        waiting = watch.waiting if watch else lambda holder: None
        with self.store.leases.held(RUN, lease, waiting) as token:
            yield lambda: self.store.leases.token == token

    def maintainer(self, every: float = 0.2, engine: EngineName | None = None) -> Maintainer:
        """Maintain the views in a background thread: `with db.maintainer(every=0.2): ...`

        When the block ends, the views show all changes that were made in it.
        """
        from everview.run.background import Maintainer

        return Maintainer(self.store, self._engine_of(engine), every)

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
        from everview.plan.explain import as_text

        check_name(view)
        words = view.split(maxsplit=1)
        if len(words) == 2 and words[0].upper() in ("SELECT", "WITH", "FROM", "VALUES"):
            raise UnsupportedSql(
                "EXPLAIN works for views; write CREATE MATERIALIZED VIEW name AS before the query "
                "to see how it would be maintained"
            )
        if len(words) < 2 or words[0].upper() != "CREATE":
            document = self.view(view).explain(analyze)
        elif analyze:
            raise UnsupportedSql(
                "ANALYZE shows the work of a view's last epochs, and a view that is not created "
                "has none; explain it without ANALYZE"
            )
        else:
            from everview.sql.creating import define
            from everview.sql.creation import Creation
            from everview.sql.statements import only

            document = self._expected(define(self, Creation.of(only(view))))
        return document if json else as_text(document)

    def _expected(self, view: dict[str, Any]) -> dict[str, Any]:
        """How a view that isn't created would be maintained, with the estimated cost."""
        from everview.plan.expected import with_estimates
        from everview.run.estimating import constants_of, cost_of_view, rates_of
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
        """Recompute a view at its epoch with Spark, and compare the rows."""
        from everview.check.verify import verify

        return verify(self, view)

    def rebuild(self, view: str) -> Report:
        """Load a view again from its tables, and with it the views that share state with it.

        Use it for a view that stopped, or whose state is damaged. Until the load has ended, reads
        of the view raise `NotLoaded`.
        """
        from everview.run.maintainer import rebuild_view

        rebuild_view(self.store, self.view(view).name)
        return self.maintain()

    def status(self) -> list[TableStatus]:
        """Number of rows, bytes on disk and changes in the log, for each table and region."""
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
        """Bytes on disk, bytes that are free, and bytes that pins and other reads still need.

        The last are listed by process.
        """
        return compaction.space(self.store)

    def compact(self, watch: Callable[[str, int, int], None] | None = None) -> Compaction:
        """Give free space in the files back to the file system.

        Other processes may read and write meanwhile; a write may wait for a moment. Space that
        readers still need stays; `after.held` in the report says which processes these are.
        """
        return compaction.compact(self.store, watch)

    def failed_syncs(self) -> dict[str, str]:
        """The directories whose data can't be synced to disk, each with the error.

        Everview tries again every second. Until it succeeds, a crash of the machine may lose more
        than the last second of writes.
        """
        return self.store.failed_syncs()

    def close(self) -> None:
        """Sync and close the files. The engine keeps running; other handles may use it."""
        self.store.close()
