"""Errors that let go of what they were raised over.

An exception keeps the frames it passed through, and they the engine's iterator of batches. In Sail
that iterator waits, when it is freed, for the thread that fills it; Python may free it in that very
thread, which then waits for itself and panics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def guarded(work: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The generator function, whose errors keep neither its arguments nor its frames."""

    @wraps(work)
    def generate(*given: Any, **named: Any) -> Iterator[T]:
        failed: BaseException | None = None
        try:
            yield from work(*given, **named)
        except Exception as error:
            failed = error.with_traceback(None)
            failed.__cause__ = failed.__context__ = None
        del given, named
        try:
            if failed is not None:
                raise failed
        finally:
            del failed

    return generate
