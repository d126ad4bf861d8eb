"""The engines that evaluate SQL: Apache Spark, the default and the reference, and Sail.

An engine has a session of its own, with its own views and settings. If the process has a Spark
session already, the engine uses its Spark and starts no second one. All is on loopback.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from everview.catalog import Positions
from everview.engines import check_engine
from everview.engines.failures import engine_failed, is_of_the_engine
from everview.engines.messages import readable
from everview.engines.sessions import new_session
from everview.errors import EngineFailed, EverviewError, InvalidSql, SqlError
from everview.programs.computed import spellings
from everview.programs.programs import Programs
from everview.reach.asking import ask
from everview.schema import Column
from everview.spark.types import struct

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_ENDED = re.compile(r"session \S+ is not running|INVALID_HANDLE\.SESSION")


@dataclass(frozen=True)
class Query:
    """A view's query, the columns that its tables had when the view was created, and the names of
    the view's columns."""

    sql: str
    columns: Mapping[str, Sequence[str]]
    names: Sequence[str]


class Engine:
    """A running engine. Queries of one engine take turns, since they share its views."""

    def __init__(self, name: str, session: SparkSession) -> None:
        self.name = name
        self.session = session
        self.programs = Programs(session, here=name == "sail")
        self._turn = threading.RLock()

    def __repr__(self) -> str:
        return f"<engine {self.name}>"

    @property
    def has_optimizer(self) -> bool:
        """Whether it is Apache Spark in this process, whose optimizer we can ask."""
        return isinstance(self.session, SparkSession)

    def read(self, db: str, table: str, columns: Sequence[str] | None = None) -> DataFrame:
        """A table of the database at `db`, or some of its columns."""
        reader = self.session.read.format("everview").option("db", db)
        if columns is not None:
            reader = reader.option("columns", json.dumps(list(columns)))
        return reader.load(table)

    def select(
        self,
        db: str,
        sql: str,
        tables: Mapping[str, Sequence[str] | None],
        views: Mapping[str, pa.Table] | None = None,
    ) -> pa.Table:
        """The rows of a query over tables of the database at `db`, and over views.

        `tables` names every table the query reads, with the columns it needs or None for all;
        `views` has the rows of every view. Raises `InvalidSql` if the query doesn't parse or
        resolve, `SqlError` if it fails.
        """
        with self._turn, ExitStack() as temporary_views, self._readably():
            frames = {name: self.read(db, name, columns) for name, columns in tables.items()}
            frames |= {name: self._frame(rows) for name, rows in (views or {}).items()}
            return self._rows(temporary_views, sql, frames, may_push=True)

    def select_at(
        self,
        db: str,
        query: Query,
        inner: Sequence[tuple[str, Query]],
        positions: Positions,
    ) -> pa.Table:
        """The rows of a view's query, with every table as it was at the given positions of its log;
        `inner` are the views that it reads, by name, each after those that it reads itself."""
        reader = self.session.read.format("everview").option("db", db)

        def frames(query: Query) -> dict[str, DataFrame]:
            return {
                table: reader.option("snapshot", json.dumps(dict(positions[table])))
                .option("columns", json.dumps(columns))
                .load(table)
                for table, columns in query.columns.items()
            }

        with self._turn, ExitStack() as temporary_views, self._readably():
            tables = [table for _, view in inner for table in view.columns]
            known = [*tables, *dict(inner)]
            for place, (name, view) in enumerate(inner):
                self._show(temporary_views, view.sql, frames(view))
                rows = ask(self.session, view.sql, known).toDF(*view.names)
                above = [query.sql, *(later.sql for _, later in inner[place + 1 :])]
                if _times_named(name, "\n".join(above)) > 1:
                    rows = self._frame(rows.toArrow())  # else the engine runs it for each reader
                self._show(temporary_views, name, {name: rows})
            return self._rows(temporary_views, query.sql, frames(query), not inner, known)

    def _frame(self, rows: pa.Table) -> DataFrame:
        # without a schema, Spark Connect refuses empty tables and mistakes local times for others
        schema = struct([Column(field.name, field.type) for field in rows.schema])
        return self.session.createDataFrame(rows, schema)

    def readable_error(self, error: Exception) -> EverviewError:
        """The error in readable words. Starts a new session if the error says that the old one has
        ended."""
        text = f"{type(error).__name__}: {error}"
        if not _ENDED.search(text):
            ours = readable(error)
            # our own errors, such as StoreFull, are not the engine's failures
            failed = type(ours) in (SqlError, InvalidSql) and is_of_the_engine(text)
            return engine_failed(self.name, error) if failed else ours
        self.session = new_session(self.name)
        self.programs = Programs(self.session, here=self.name == "sail")
        return EngineFailed(
            f"the engine {self.name} had ended its session, perhaps because it was idle for long; "
            "there is a new session now, so try again"
        )

    @contextmanager
    def _readably(self) -> Iterator[None]:
        """Inside the block, raise errors of the engine in readable words."""
        try:
            yield
        except (PySparkException, Py4JJavaError) as error:
            raise self.readable_error(error) from error

    def answers(self) -> bool:
        """Whether the engine and its Python workers run a minimal job."""
        try:
            return len(self.session.range(1).mapInArrow(_same, "id BIGINT").collect()) == 1
        except Exception:
            return False

    def interrupt(self) -> bool:
        """End the running queries, which then fail; False if there are none that can be ended."""
        try:
            return bool(self.session.interruptAll())
        except PySparkException:
            return False

    def _rows(
        self,
        temporary_views: ExitStack,
        sql: str,
        frames: Mapping[str, DataFrame],
        may_push: bool,
        others: Sequence[str] = (),
    ) -> pa.Table:
        self.session.conf.set(PUSHDOWN, str(may_push and _reads_once(sql, frames)).lower())
        self._show(temporary_views, sql, frames)
        frame = ask(self.session, sql, [*frames, *others])
        try:
            return frame.toArrow()
        except (ValueError, TypeError, NotImplementedError) as error:
            if "null type field" in str(error):
                raise InvalidSql(
                    "an empty array() or map() has no type; write CAST(array() AS ARRAY<INT>), or "
                    "what its elements are"
                ) from error
            raise SqlError(
                f"the answer can't be had as Arrow: {error}; CAST its columns to other types"
            ) from error

    def _show(self, temporary_views: ExitStack, sql: str, frames: Mapping[str, DataFrame]) -> None:
        """Let a query find frames by their names, until `temporary_views` is closed."""
        for name, frame in frames.items():
            for view in spellings(self.session, name, sql):
                frame.createOrReplaceTempView(self._quoted(view))
                temporary_views.callback(_drop, self.session, view)

    def _quoted(self, view: str) -> str:
        """The name for createOrReplaceTempView: Spark parses it, Sail takes it as it is."""
        return f"`{view}`" if self.name == "spark" else view


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def start(name: str, beside: SparkSession | None = None) -> Engine:
    """An engine with a session of its own, in the same Spark or Sail as another session; by default
    in the one that this process has, or a new one. Raises `EngineUnavailable`."""
    check_engine(name)
    return Engine(name, new_session(name, beside))


def _drop(session: SparkSession, view: str) -> None:
    """Drop a temporary view; if its session has ended, it is gone already."""
    with suppress(PySparkException):
        session.catalog.dropTempView(view)


def _reads_once(sql: str, tables: Iterable[str]) -> bool:
    """Whether the query surely reads each table once: only then may filters be pushed down.

    Spark 4.2 mixes up what it pushed into two scans of one Python source, and loses a filter.
    """
    words = re.findall(r"\w+", sql.lower())
    once = all(_times_named(table, sql) <= 1 for table in tables)
    return once and "with" not in words


def _times_named(name: str, sql: str) -> int:
    """At most how often a text has a name."""
    return sql.lower().count(name.lower())
