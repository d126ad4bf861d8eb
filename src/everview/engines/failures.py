"""Whose fault it is that a job failed: the view's or the engine's.

An error is the view's fault unless it is known to be the engine's own: the engine ran out of
memory, files or disk space, lost its workers, or can't be reached. Such a failure passes, and views
wait.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pyspark.errors import PySparkException

from everview.errors import EngineFailed, EverviewError, OutOfMemory

if TYPE_CHECKING:
    from everview.engines.engine import Engine

TRIES = 3
UNKNOWN_TRIES = 2
_OF_MEMORY = re.compile(
    r"OutOfMemoryError|MemoryError|Java heap space|GC overhead limit|Cannot allocate memory"
    r"|ResourcesExhausted|Resources exhausted|memory allocation of \d+ bytes failed"
)
_OF_THE_ENGINE = re.compile(
    rf"{_OF_MEMORY.pattern}|unable to create (new )?native thread"
    r"|No space left on device|Too many open files"
    r"|Python worker (exited unexpectedly|failed to connect back)|worker crashed"
    r"|ExecutorLostFailure|executor (lost|heartbeat timed out)|FetchFailed|Failed to connect to /"
    r"|SparkContext (was|has been) (shut down|stopped)|stopped SparkContext|Job \d+ cancelled"
    r"|StatusCode\.UNAVAILABLE|Connection refused|Connection reset|Py4JNetworkError|Broken pipe"
)
_CAUSE = re.compile(r"most recent failure: .*?\(TID \d+\) \(.*?\): (.+)")
_CALLED = re.compile(r"An error occurred while calling .*\n: (.+)")
_WAITED = "Exception thrown in awaitResult"  # around the error of another thread
_INNER = re.compile(rf"\nCaused by: ((?!.*{_WAITED}).+)")
T = TypeVar("T")


def is_of_the_engine(text: str) -> bool:
    """Whether an error says that the engine itself failed."""
    return _OF_THE_ENGINE.search(text) is not None


def cause(text: str) -> str:
    """The error of a task, without the words that Spark puts around it; '' if no task failed."""
    match = _CAUSE.search(text) or _CALLED.search(text)
    if match and _WAITED in match[1]:
        match = _INNER.search(text) or match
    return match[1] if match else ""


def why_failed(error: BaseException) -> str:
    """What an engine failed with, in one line."""
    lines = (cause(str(error)) or str(error)).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")


def engine_failed(name: str, error: Exception) -> EngineFailed:
    kind = OutOfMemory if _OF_MEMORY.search(f"{type(error).__name__}: {error}") else EngineFailed
    return kind(
        f"the engine {name} failed several times: {why_failed(error)}. Nothing is lost: views "
        "wait, and the next `everview run` or db.maintain() tries again"
    )


def run_again(engine: Engine, work: Callable[[], T], unknown_tries: int = UNKNOWN_TRIES) -> T:
    """The result of `work`, which is tried again if the engine fails or raises an unknown error.

    Raises `EngineFailed` if it is the engine's own fault: the error says so, or the engine doesn't
    answer any more. Any other error is a view's fault, and raised as `Engine.readable_error`.
    """
    for number in range(1, TRIES + 1):
        try:
            return work()
        except EverviewError:
            raise
        except Exception as error:
            readable = engine.readable_error(error)
            passes = isinstance(readable, EngineFailed)
            if isinstance(error, PySparkException) and not passes:
                raise readable from error
            if number == (TRIES if passes else unknown_tries):
                lost = not passes and not engine.answers()
                raise (engine_failed(engine.name, error) if lost else readable) from error
    raise AssertionError
