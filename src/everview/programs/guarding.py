"""Errors that don't keep the engine's iterators alive.

An exception keeps the stack frames it passed through, and they keep the engine's iterator of
batches. When Sail frees that iterator, it waits for the thread that fills it. Python may free it in
that very thread, which then waits for itself and panics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def guarded(work: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same generator function; its errors keep neither its arguments nor its frames."""

    @wraps(work)
    def generate(*arguments: Any, **keywords: Any) -> Iterator[T]:
        failed: BaseException | None = None
        try:
            yield from work(*arguments, **keywords)
        except Exception as error:
            failed = error.with_traceback(None)
            failed.__cause__ = failed.__context__ = None
        del arguments, keywords
        try:
            if failed is not None:
                raise failed
        finally:
            del failed

    return generate
