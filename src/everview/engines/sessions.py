"""New sessions in the Spark or Sail of this process.

Servers that are started here listen on loopback only.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from everview import starting
from everview.errors import EngineUnavailable
from everview.programs import workers
from everview.programs.apart import BACKGROUND, Processes
from everview.programs.dialect import mark_as_sail
from everview.spark.source import SailDataSource

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # an epoch is one small job whose partitions are known; replanning it stage by stage costs more
    "spark.sql.adaptive.enabled": "false",
    # operators take a partition whole; small batches only cost time
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
}
_LAUNCHES = 3
_IDLE_SECONDS = 365 * 24 * 3600  # after which Sail ends a session that nobody uses
_starting = threading.RLock()


def new_session(engine: str, beside: SparkSession | None = None) -> SparkSession:
    """A session with our settings, in the same Spark or Sail as another; by default in the one that
    this process uses, and if it uses none, in a new one. Raises `EngineUnavailable`."""
    with _starting:
        if beside is not None:
            session = _beside(beside)
            if engine == "sail":
                mark_as_sail(session)
        else:
            session = _spark() if engine == "spark" else _sail()
    for setting, value in SETTINGS.items():
        session.conf.set(setting, value)
    return session


def _beside(session: Any) -> SparkSession:
    if isinstance(session, SparkSession):
        return session.newSession()
    return _connect(session.client._builder)


def _spark() -> SparkSession:
    """A new session in the Spark that this process uses; if it uses none, in a new Spark."""
    running: Any
    try:
        running = SparkSession.active()
    except PySparkRuntimeError:
        with starting.announcing():
            running = _launch()
    return _beside(running)


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
    """A JVM. Tries again, since gRPC's threads may kill the new process before it becomes the JVM,
    if Sail runs in this process."""
    for tries_left in reversed(range(_LAUNCHES)):
        with open(path, "wb") as log:
            try:
                gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
                _put_behind(gateway.proc.pid)
                return gateway
            except PySparkRuntimeError as error:
                output = path.read_text(errors="replace").strip()
                if not tries_left:
                    raise EngineUnavailable(
                        f"engine 'spark' did not start with {_java()} (it needs Java 17 or newer): "
                        f"{output}"
                    ) from error
    raise AssertionError


def _put_behind(process: int) -> None:
    """Let the maintainer's own small epochs run before what a process does, whose threads begin
    with the priority of those that are there."""
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), BACKGROUND)


def _local_settings(directory: Path) -> dict[str, str]:
    return {
        # run a task again if, say, its Python worker was killed, as on a cluster; and have room for
        # an epoch while a load takes all cores
        "spark.master": f"local[{(os.cpu_count() or 1) + 1},2]",
        "spark.scheduler.mode": "FAIR",
        # a row may take more memory than there is; its task fails, and Spark must not end with it
        "spark.executor.killOnFatalError.depth": "0",
        "spark.app.name": "everview",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # over TCP, the first message to a Python worker waits 40 ms for an acknowledgement
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.daemon.module": "everview.programs.daemon",
        # else each call on a DataFrame notes its place in the code, with several calls of the JVM
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
    """A new session in the Sail that runs inside this process."""
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
        # its threads must not wait for Python after Python has ended
        atexit.register(_sail_server.stop)
    host, port = _sail_server.listening_address
    session = _connect(f"sc://{host}:{port}")
    # Sail sometimes no longer has an answer that a client fetches again over a new connection; in
    # one process there is no need to
    session.client.disable_reattachable_execute()
    session.dataSource.register(SailDataSource)
    mark_as_sail(session)
    # Now Sail listens for Ctrl-C too, and would stop while Python still needs it: set the old
    # handler again. Unlike signal.signal, this may be called in any thread.
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
