"""The engines that evaluate SQL: Apache Spark, the default and the reference, and Sail.

An engine keeps a session of its own, with its own views and settings; where the process already
has a Spark session, that one's Spark is used and not a second one started. All is on loopback.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    PySparkException,
    PySparkRuntimeError,
)
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession

from everview import errors
from everview.errors import EngineFailed, EngineUnavailable, EverviewError, InvalidSql, SqlError
from everview.run import check_engine, starting, workers
from everview.run.apart import Processes
from everview.run.asking import ask
from everview.run.dialect import is_of_sail
from everview.run.failures import cause, engine_failed, is_of_the_engine
from everview.run.programs import Programs
from everview.run.rounds import spellings
from everview.run.source import SailDataSource
from everview.run.types import struct
from everview.schema import Column

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # an epoch is one small job whose partitions are known; replanning it stage by stage costs more
    "spark.sql.adaptive.enabled": "false",
    # operators take a partition whole; small batches only cost time
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
}
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

_LAUNCHES = 3
_OF_READING = (
    errors.DatabaseError,
    errors.CatalogError,
    errors.DataError,
    errors.LogError,
    errors.WriteError,
    SqlError,
)
_NAMED = re.compile(r"\b([A-Z]\w+): (.+)$", re.MULTILINE)
_WITHIN = re.compile(r"\b([A-Z]\w+): (?=(.+)$)", re.MULTILINE)  # also those inside another
_TRACE = re.compile(r";\n'?[A-Z]|\n\s*(?:JVM stacktrace|at |Traceback)")
_NOT_FOUND = re.compile(r"\[TABLE_OR_VIEW_NOT_FOUND\].*?(`.+?`) cannot .*?SQLSTATE: \w+", re.DOTALL)
_MISSING = re.compile(
    r"ModuleNotFoundError: No module named '([\w.]+)'|find the data source: (everview)\b"
)
_EXTERNAL = "External error: "
_ENDED = re.compile(r"session \S+ is not running|INVALID_HANDLE\.SESSION")
_IDLE_SECONDS = 365 * 24 * 3600  # that nobody uses a session until Sail ends it
_starting = threading.RLock()


@dataclass(frozen=True)
class Query:
    """A view's query, the columns that its tables had when it was made, and the view's own names
    for what it gives."""

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
        with self._turn, ExitStack() as shown, self._readably():
            found = {name: self.read(db, name, columns) for name, columns in tables.items()}
            found |= {name: self._frame(rows) for name, rows in (views or {}).items()}
            return self._rows(shown, sql, found, may_push=True)

    def select_at(
        self,
        db: str,
        query: Query,
        inner: Sequence[tuple[str, Query]],
        positions: Mapping[str, Mapping[str, int]],
    ) -> pa.Table:
        """The rows of a view's query, with every table as it was at the given positions of its log;
        `inner` are the views that it reads, by name, each after those that it reads itself."""
        reader = self.session.read.format("everview").option("db", db)

        def frames(query: Query) -> dict[str, DataFrame]:
            return {
                table: reader.option("snapshot", json.dumps(positions[table]))
                .option("columns", json.dumps(columns))
                .load(table)
                for table, columns in query.columns.items()
            }

        with self._turn, ExitStack() as shown, self._readably():
            known = [*(table for _, one in inner for table in one.columns), *dict(inner)]
            for at, (name, one) in enumerate(inner):
                self._show(shown, one.sql, frames(one))
                rows = ask(self.session, one.sql, known).toDF(*one.names)
                above = [query.sql, *(other.sql for _, other in inner[at + 1 :])]
                if _times_named(name, "\n".join(above)) > 1:
                    rows = self._frame(rows.toArrow())  # else all of it is run for each reader
                self._show(shown, name, {name: rows})
            return self._rows(shown, query.sql, frames(query), not inner, known)

    def _frame(self, rows: pa.Table) -> DataFrame:
        # without a schema, no rows are refused on Spark Connect, and local times taken for others
        schema = struct([Column(field.name, field.type) for field in rows.schema])
        return self.session.createDataFrame(rows, schema)

    def told(self, error: Exception) -> EverviewError:
        """The error as `readable` has it. A session that has ended is replaced by a new one."""
        text = f"{type(error).__name__}: {error}"
        if not _ENDED.search(text):
            told = readable(error)
            # what is ours, such as StoreFull, says so itself
            failed = type(told) in (SqlError, InvalidSql) and is_of_the_engine(text)
            return engine_failed(self.name, error) if failed else told
        fresh = start(self.name)
        self.session, self.programs = fresh.session, fresh.programs
        return EngineFailed(
            f"the engine {self.name} had ended its session, perhaps because it was idle for long; "
            "there is a new session now, so try again"
        )

    @contextmanager
    def _readably(self) -> Iterator[None]:
        """Errors of the engine inside the block are told as `told` has them."""
        try:
            yield
        except (PySparkException, Py4JJavaError) as error:
            raise self.told(error) from error

    def answers(self) -> bool:
        """Whether the engine and its Python workers do the least that there is to do."""
        try:
            return len(self.session.range(1).mapInArrow(_same, "id BIGINT").collect()) == 1
        except Exception:
            return False

    def interrupt(self) -> bool:
        """End the queries that run, which then fail; False if there are none that could be."""
        try:
            return bool(self.session.interruptAll())
        except PySparkException:
            return False

    def _rows(
        self,
        shown: ExitStack,
        sql: str,
        frames: Mapping[str, DataFrame],
        may_push: bool,
        others: Sequence[str] = (),
    ) -> pa.Table:
        self.session.conf.set(PUSHDOWN, str(may_push and _reads_once(sql, frames)).lower())
        self._show(shown, sql, frames)
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

    def _show(self, shown: ExitStack, sql: str, frames: Mapping[str, DataFrame]) -> None:
        """Have a query find frames by their names, until what is shown is closed."""
        for name, frame in frames.items():
            for view in spellings(self.session, name, sql):
                frame.createOrReplaceTempView(self._quoted(view))
                shown.callback(_drop, self.session, view)

    def _quoted(self, view: str) -> str:
        """The name as createOrReplaceTempView wants it: Spark parses it, Sail takes it as it is."""
        return f"`{view}`" if self.name == "spark" else view


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def start(name: str) -> Engine:
    """Start an engine, or use the one this process has. Raises `EngineUnavailable`."""
    check_engine(name)
    with _starting:
        session = _spark() if name == "spark" else _sail()
    for setting, value in SETTINGS.items():
        session.conf.set(setting, value)
    return Engine(name, session)


def _drop(session: SparkSession, view: str) -> None:
    """Let go of a view; in a session that has ended it is gone, and why is said already."""
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
    """How often a text has a name, at most."""
    return sql.lower().count(name.lower())


def readable(error: Exception) -> EverviewError:
    """The error without Spark's traces; Everview's own, where one is behind it."""
    text = str(error)
    if missing := _MISSING.search(text):
        return EngineFailed(
            f"Spark's Python workers do not find {missing[1] or missing[2]}, so they run another "
            f"Python than this process; set PYSPARK_PYTHON={sys.executable} before Spark starts"
        )
    for name, message in _WITHIN.findall(text):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, _OF_READING):
            return kind(message)
    if "Traceback" in text and (last := _NAMED.findall(text)):
        return SqlError(": ".join(last[-1]).replace("RuntimeError: ", "").replace(_EXTERNAL, ""))
    text = _NOT_FOUND.sub(
        r"there is no table or view \1; SHOW TABLES and SHOW VIEWS list them", text
    )
    wrong = isinstance(error, AnalysisException | IllegalArgumentException)
    told = cause(text) or _TRACE.split(text)[0].strip()
    return (InvalidSql if wrong else SqlError)(told or type(error).__name__)


def _spark() -> SparkSession:
    """A session of its own in the Spark this process uses; if it uses none, in a new one."""
    found: Any
    try:
        found = SparkSession.active()
    except PySparkRuntimeError:
        with starting.told():
            found = _launch()
    if isinstance(found, SparkSession):
        return found.newSession()
    return _connect(found.client._builder)


def _launch() -> SparkSession:
    """A local Spark whose JVM writes into a file of ours instead of the user's terminal."""
    if _java() is None:
        raise EngineUnavailable(
            "engine 'spark' needs Java 17, and there is none; install it, for example with "
            "apt-get install openjdk-17-jre-headless, or use engine='sail'"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    directory = _scratch()
    conf = SparkConf().setAll(list(_local_settings(directory).items()))
    context = SparkContext(conf=conf, gateway=_gateway(conf, directory / "spark.log"))
    context.setLogLevel("ERROR")
    # pyspark logs every error it raises, with the JVM's trace
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return SparkSession(context)


def _gateway(conf: SparkConf, path: Path) -> Any:
    """A JVM. The process that becomes it may die of gRPC's threads before it does, where Sail works
    in this one; so that is tried again."""
    for left in reversed(range(_LAUNCHES)):
        with open(path, "wb") as log:
            try:
                return launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
            except PySparkRuntimeError as error:
                said = path.read_text(errors="replace").strip()
                if not left:
                    raise EngineUnavailable(
                        f"engine 'spark' did not start with {_java()} (it needs Java 17 or newer): "
                        f"{said}"
                    ) from error
    raise AssertionError


def _local_settings(directory: Path) -> dict[str, str]:
    return {
        # a task whose Python worker was killed, say, is run again, as on a cluster
        "spark.master": "local[*,4]",
        "spark.app.name": "everview",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # over TCP, what a task first says to its Python worker waits 40 ms for an acknowledgement
        "spark.python.unix.domain.socket.enabled": "true",
        # each call on a DataFrame would note from where it came, with several calls of the JVM
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
    }


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin") if home else None)


def _scratch() -> Path:
    """A directory for this process, removed when it ends."""
    directory = tempfile.mkdtemp(prefix="everview-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


_sail_server: Any = None
ctypes.pythonapi.PyOS_getsig.restype = ctypes.c_void_p
ctypes.pythonapi.PyOS_setsig.argtypes = [ctypes.c_int, ctypes.c_void_p]


def _sail() -> SparkSession:
    """A session of its own in a Sail that runs inside this process."""
    global _sail_server
    os.environ.setdefault("RUST_LOG", "error")
    os.environ.setdefault("SAIL_SPARK__SESSION_TIMEOUT_SECS", str(_IDLE_SECONDS))
    try:
        from pysail.spark import SparkConnectServer
    except ImportError as error:
        raise EngineUnavailable(
            "engine 'sail' is not installed; pip install everview[sail], or use engine='spark'"
        ) from error
    interrupted = ctypes.pythonapi.PyOS_getsig(signal.SIGINT)
    if _sail_server is None:
        workers.PROCESSES = Processes()
        atexit.register(workers.PROCESSES.close)
        _sail_server = SparkConnectServer(ip="127.0.0.1", port=0)
        _sail_server.start(background=True)
        # its threads must not wait for Python when Python is gone
        atexit.register(_sail_server.stop)
    host, port = _sail_server.listening_address
    session = _connect(f"sc://{host}:{port}")
    # it is in this process: what would be fetched again over a new connection, it now and then
    # has no more
    session.client.disable_reattachable_execute()
    session.dataSource.register(SailDataSource)
    is_of_sail(session)
    # now it listens for Ctrl-C too, and would stop in the middle of what Python still wants to do;
    # unlike signal.signal, this may be called in any thread
    ctypes.pythonapi.PyOS_setsig(signal.SIGINT, interrupted)
    return session


def _connect(connection: Any) -> SparkSession:
    """A new session of Spark Connect, which has the methods of a `SparkSession` that we use."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    session: Any = RemoteSession(connection=connection)
    # a second session that is left open makes pyspark hang at exit
    atexit.register(session.client.close)
    remote: SparkSession = session
    return remote
