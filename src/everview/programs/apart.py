"""Large shards are worked on in processes of their own.

Spark's Python is a process for each core. Sail's is ours, and Python runs one thread at a time: so
the operators of a load, or of a large epoch, would keep only one core busy. A process gets a task
and the rows of a shard over a pipe, and answers with the output. It ends after it was idle for a
while, and when the pipe closes, as when the maintainer was killed. A process that dies is replaced,
and its task is done again: a shard does an epoch once, whoever asks.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

import pyarrow as pa

from everview import errors
from everview.errors import EngineFailed, EverviewError

MANY_ROWS = 100_000  # of a shard; with fewer, to move them costs more than it saves
IDLE_SECONDS = 10.0
BACKGROUND = 5  # by how much large work is nicer than the maintainer, whose epochs come first
_REAP_SECONDS = 1.0
_TRIES = 3
Document = dict[str, Any]
Work = Callable[[Document, pa.Table], pa.Table]


class Processes:
    """At most one process for each core. Work waits while all of them are busy."""

    def __init__(self) -> None:
        self._free = threading.Semaphore(os.cpu_count() or 1)
        self._idle: list[subprocess.Popen[bytes]] = []
        self._reaping: threading.Timer | None = None

    def work(self, task: Document, rows: pa.Table) -> pa.Table:
        """The output of a task, done in a process. Raises the error that the process reports."""
        with self._free:
            failed = 0
            while failed < _TRIES:
                process, is_new = self._process()
                try:
                    answer, output = _ask(process, task, rows)
                except (OSError, EOFError):
                    process.kill()
                    _end(process)
                    failed += is_new  # others may have ended since they were idle
                    continue
                self._idle.append(process)
                self._reap_later()
                if "error" in answer:
                    kind = getattr(errors, answer["error"], RuntimeError)
                    raise kind(answer["message"])
                return output
        raise EngineFailed(f"{_TRIES} processes for a shard ended before their work was done")

    def _process(self) -> tuple[subprocess.Popen[bytes], bool]:
        """A process, and whether it is new."""
        try:
            return self._idle.pop(), False
        except IndexError:
            return _start(), True

    def _reap_later(self) -> None:
        """Later, wait for idle processes that have ended, so that none stays a zombie."""
        if self._reaping is None:
            self._reaping = threading.Timer(IDLE_SECONDS + _REAP_SECONDS, self._reap)
            self._reaping.daemon = True
            self._reaping.start()

    def _reap(self) -> None:
        self._reaping = None
        for process in list(self._idle):
            if process.poll() is not None:
                with suppress(ValueError):  # it was taken to work meanwhile, in vain
                    self._idle.remove(process)
                    _end(process)
        if self._idle:
            self._reap_later()

    def close(self) -> None:
        """End the idle processes."""
        while self._idle:
            _end(self._idle.pop())


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "from everview.programs.workers import serve; serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        process_group=0,  # Ctrl-C on a terminal is for the process that asks
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        process.communicate()  # closes its pipes, and waits


def _ask(
    process: subprocess.Popen[bytes], task: Document, rows: pa.Table
) -> tuple[Document, pa.Table]:
    assert process.stdin is not None
    assert process.stdout is not None
    _send(process.stdin, task, rows)
    return _receive(process.stdout)


def serve(work: Work) -> None:
    """Inside such a process: answer requests until there are no more."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.nice(BACKGROUND)
    os.dup2(2, 1)  # what is printed is no answer
    while select.select([requests], [], [], IDLE_SECONDS)[0]:
        try:
            task, rows = _receive(requests)
        except EOFError:
            return
        answer, output = Document(), pa.table({})
        try:
            output = work(task, rows)
        except EverviewError as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        except Exception as error:
            answer = {"error": "RuntimeError", "message": f"{type(error).__name__}: {error}"}
        _send(answers, answer, output)


def _send(pipe: IO[bytes], document: Document, rows: pa.Table) -> None:
    """Send a document, and after it rows as an Arrow stream, which says itself where it ends."""
    text = json.dumps(document).encode()
    pipe.write(len(text).to_bytes(8, "little") + text)
    with pa.ipc.new_stream(pipe, rows.schema) as stream:
        stream.write_table(rows)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> tuple[Document, pa.Table]:
    document = json.loads(_read(pipe, int.from_bytes(_read(pipe, 8), "little")))
    try:
        return document, pa.ipc.open_stream(pipe).read_all()
    except pa.ArrowInvalid as error:  # the stream broke off
        raise EOFError from error


def _read(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data
