"""Tables: rows by key, and the log of their changes.

Atomic.   One `put`, `delete` or `test_and_set` is one transaction in each region it touches: its
          rows and their changes appear together or not at all, for readers and after a crash.
          Across regions a batch is atomic against refusals (bad data, observers, rows that an
          append-only table has): they change nothing. Against a failing device it is atomic per
          region, and `PartialWrite` says which regions are written.
Durable.  A write that returned survives a crash of the process; of the machine as the store's
          durability level says.
Ordered.  Changes of one region carry sequences 1, 2, 3, ... without holes, in commit order; the
          versions of one key lie in one region and so in order. Between regions there is none.
          Of several rows with one key in a batch the last counts, and one change is logged.
          A put of a row that equals the stored one is no change: it is not written, its version
          stays, and the log does not grow.
Shared.   Any number of processes and threads may read and write at once. Readers see committed
          states, are never blocked once they are open, and block no one. Writers of one region
          take turns, writers of different regions do not wait for each other.

Rows and keys travel as Arrow tables of exactly the table's types (`everview.intake` makes them).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from math import inf
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from everview.closing import Closing
from everview.errors import LogError
from everview.schema import LONGEST_NAME, Column, TableSchema

PUT, DELETE = "put", "delete"
OF_VIEWS = "everview"  # the consumer that keeps what views have not seen yet
OF_LOADS = "everview loads"  # the same of views that are loaded beside the others
_OF_GROUP = "everview group "  # the same of a group other than the main one
BATCH_ROWS = 8_192


@dataclass(frozen=True)
class WriteReport:
    """The result of a write: `rows` that changed, the last sequence in each region that changed,
    and `unchanged` rows, which had these values already."""

    rows: int
    sequences: Mapping[int, int]
    unchanged: int = field(default=0, compare=False)


@dataclass(frozen=True)
class LogRange:
    """The changes in the log of a region: sequences first..last; none if first > last."""

    first: int
    last: int


@dataclass(frozen=True)
class RegionStatus:
    region: int
    rows: int
    log: LogRange
    bytes: int
    consumers: Mapping[str, int] = field(default_factory=dict)


class Write:
    """One region's part of a write, as observers see it; a large write comes in several.

    `before` and `after` have one row for each changed key, NULL where there is none: before for
    a new row, after for a deleted one. `unchanged` has the rows that equal the stored ones;
    for these nothing is written. A part of a put that changes nothing is a write with no sequences.
    All are decoded at their first use.
    """

    def __init__(
        self,
        table: TableSchema,
        region: int,
        op: str,
        sequences: range,
        before: Callable[[], pa.StructArray],
        after: Callable[[], pa.StructArray],
        unchanged: Callable[[], pa.StructArray],
        unchanged_rows: int,
    ) -> None:
        self.table = table
        self.region = region
        self.op = op
        self.sequences = sequences
        self._before = before
        self._after = after
        self._unchanged = unchanged
        self.unchanged_rows = unchanged_rows

    @cached_property
    def before(self) -> pa.StructArray:
        return self._before()

    @cached_property
    def after(self) -> pa.StructArray:
        return self._after()

    @cached_property
    def unchanged(self) -> pa.StructArray:
        return self._unchanged()


class Observer:
    """Sees each write of a table in the process that makes it; override what you need.

    `before` runs inside the region's transaction and may raise to reject the whole write: then
    nothing is written in any region. `after` runs when the write is committed. Neither may write
    to the same table.
    """

    def before(self, write: Write) -> None:
        return None

    def after(self, write: Write) -> None:
        return None


class Snapshot(Closing):
    """A table as it was at one position of each region's log; reads repeat exactly.

    Unless columns are named, they are those that the table had then.
    Close it, or use it as a context manager: the log behind it is kept until then.
    """

    positions: Mapping[int, int]

    @abstractmethod
    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        start: tuple[Any, ...] | None = None,
        stop: tuple[Any, ...] | None = None,
        region: int | None = None,
        batch_rows: int = BATCH_ROWS,
        ordered: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """As `Store.scan`, at the snapshot."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the log; reads fail from now on. Closing twice is fine."""


def check_consumer(name: Any) -> None:
    """Raises `LogError` for what a user can't name a consumer."""
    text = name.encode("utf-8", "replace") if isinstance(name, str) else b""
    if not 1 <= len(text) <= LONGEST_NAME or text.decode() != name:
        raise LogError(f"{name!r} can't name a consumer; use text of 1 to {LONGEST_NAME} bytes")
    if name in (OF_VIEWS, OF_LOADS) or name.startswith(_OF_GROUP):
        raise LogError(f"{name!r} is the name of the consumer of all views; choose another name")


def consumer_of(group: str) -> str:
    """The consumer that keeps what the views of a group have not seen yet."""
    return f"{_OF_GROUP}{group}" if group else OF_VIEWS


class TableReader(ABC):
    """Tables to read: as they are now, or as a pin has them. Names are taken in any case."""

    @abstractmethod
    def describe(self, table: str) -> TableSchema:
        """The table's schema as of now. Raises `TableNotFound`, naming the tables there are."""

    @abstractmethod
    def tables(self) -> list[str]:
        """Names of all tables, sorted."""

    @abstractmethod
    def status(self, table: str) -> list[RegionStatus]:
        """One entry for each region: rows, log, bytes on disk, consumers and their positions."""

    @abstractmethod
    def get(
        self, table: str, keys: pa.Table, columns: Sequence[str] | None = None
    ) -> tuple[pa.Table, pa.Array]:
        """The rows found for `keys`, in the order asked, and their positions in `keys`."""

    @abstractmethod
    def get_row(
        self, table: str, key: Any, columns: Sequence[str] | None = None
    ) -> dict[str, Any] | None:
        """One row as Python values, by its key (a tuple if composite): `get` for a single row."""

    @abstractmethod
    def version(self, table: str, key: pa.Table) -> int:
        """The row's version: the sequence of the change that wrote it; 0 if there is no row.

        It rises with every write of the row, also over deletes.
        """

    @abstractmethod
    def scan(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        start: tuple[Any, ...] | None = None,
        stop: tuple[Any, ...] | None = None,
        region: int | None = None,
        batch_rows: int = BATCH_ROWS,
        ordered: bool = True,
        at: Mapping[int, int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows with start <= key < stop, in key order, in batches of at most `batch_rows`.

        `start` and `stop` are keys or their leading columns. `where` may use any column.
        `region` reads one region; `ordered=False` reads region by region, in key order only
        within each. Each region is read at one committed state; with `at` (region -> sequence),
        at that position of its log, if the log still has what came after (else `LogTrimmed`).
        Memory is bounded by the batch, whatever the table's size.
        """

    @abstractmethod
    def log(self, table: str) -> dict[int, LogRange]:
        """The changes that the log of each region has now."""

    @abstractmethod
    def positions_at(self, table: str, time: int) -> dict[int, int]:
        """For each region the newest change made at or before a time in µs, as far as the logs
        tell. The time must not be in the future.

        The positions of several tables for the same time are one moment: if they include a change,
        they include every change that was acknowledged before it began.
        """

    @abstractmethod
    def times_after(self, table: str, after: Mapping[int, int]) -> dict[int, datetime]:
        """When the first change after the positions was made, for each region whose log still has
        one. A region without a position counts from its first change."""

    @abstractmethod
    def changes(
        self,
        table: str,
        region: int,
        after: int = 0,
        upto: int | None = None,
        columns: Sequence[str] | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """Changes with after < sequence <= upto, in order, as `change_schema` says.

        Raises `LogTrimmed` when some of them are gone.
        """

    @abstractmethod
    def sample(self, table: str, columns: Sequence[str]) -> pa.Table:
        """Some rows, spread over the table, for statistics: enough to tell common values from rare
        ones, and few enough to be read in moments."""

    @abstractmethod
    def bytes_of_changes(self, table: str, region: int, after: int, upto: int) -> float:
        """About how many bytes each of the changes with after < sequence <= upto has."""


class Tables(TableReader):
    """Keyed tables with change logs."""

    @abstractmethod
    def create_table(self, schema: TableSchema) -> None:
        """Create an empty table, durably. Raises `TableExists`."""

    @abstractmethod
    def drop_table(self, table: str) -> None:
        """Remove a table, its rows and its log, from every process's view at once. Raises
        `TableNotFound`, and `InUse` if a view reads it."""

    @abstractmethod
    def add_columns(self, table: str, columns: Sequence[Column]) -> None:
        """Add columns at the end, durably. Raises `TableNotFound`, and `InvalidSchema` if a name is
        taken or a column NOT NULL.

        No row and no change is written again: every read of an older row has NULL in the columns.
        Writes and reads that have begun go on. A write may still have rows without the columns;
        they become NULL.
        """

    @abstractmethod
    def put(self, table: str, rows: pa.Table) -> WriteReport:
        """Insert or replace whole rows. Every row is one change with its before-image, except rows
        that equal the stored ones: these are not written.

        Values are compared, so a row from before columns were added equals one with NULL there.
        """

    @abstractmethod
    def delete(self, table: str, keys: pa.Table) -> WriteReport:
        """Delete rows by key. Absent keys are no error and no change."""

    @abstractmethod
    def test_and_set(
        self,
        table: str,
        key: pa.Table,
        row: pa.Table | None,
        *,
        expected: pa.Table | None = None,
        version: int | None = None,
    ) -> int | None:
        """Write one row (None deletes it) if it still is as expected, in one transaction.

        With `version`, the stored row's version must equal it; 0 means no row is stored. Without,
        the stored row must equal `expected` value by value; None means no row is stored. Returns
        the new version (for a delete: the sequence of the change), or None and no change if the
        test failed. A row that passes is written even if it equals the stored one: of several who
        test for one version, one alone succeeds.
        """

    @abstractmethod
    def snapshot(self, table: str, seconds: float = 3600) -> Snapshot:
        """The table as of now, each region at one committed state with its log position.

        The log behind it is kept for `seconds`, or until it is closed.
        """

    @abstractmethod
    def register(self, table: str, consumer: str, after: Mapping[int, int] | None = None) -> None:
        """Keep all changes after the given positions (default: all the log has) for `consumer`.

        A consumer already registered keeps its positions.
        """

    @abstractmethod
    def acknowledge(self, table: str, consumer: str, upto: Mapping[int, int]) -> None:
        """The consumer needs nothing up to these positions any more; never moves backwards."""

    @abstractmethod
    def unregister(self, table: str, consumer: str) -> None:
        """The consumer needs nothing any more."""

    @abstractmethod
    def trim(self, table: str, upto: Mapping[int, int] | None = None, older: float = -inf) -> int:
        """Remove changes up to the positions given (default: all) that are at least so many
        seconds old (default: whatever their age), return how many went.

        Never removes what a registered consumer or an open snapshot still needs.
        """

    @abstractmethod
    def attach(self, table: str, observer: Observer | str) -> None:
        """Attach an observer: an object, for this process; or 'module:Class', which is written
        into the table's definition and loaded by every process from its next write on."""

    @abstractmethod
    def detach(self, table: str, observer: Observer | str) -> None:
        """Undo `attach`."""


def change_schema(schema: TableSchema, columns: Sequence[str] | None = None) -> pa.Schema:
    """The Arrow schema of a batch of changes.

    `before` and `after` are structs of the columns, NULL where there is no row.
    """
    positions = schema.positions(columns)
    image = pa.struct([schema.arrow.field(i).with_nullable(True) for i in positions])
    return pa.schema(
        [
            pa.field("region", pa.int32(), False),
            pa.field("sequence", pa.int64(), False),
            pa.field("time", pa.timestamp("us", tz="UTC"), False),
            pa.field("op", pa.string(), False),
            pa.field("before", image, True),
            pa.field("after", image, True),
        ]
    )
