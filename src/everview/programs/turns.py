"""Workers of one process take turns.

Sail runs every operator of every view in a thread of our own process. Hundreds of threads at once
pass Python's lock around for longer than they work, so only one works at a time. A thread that
waits for input, for a transaction or for the disk holds no turn.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")
turn = threading.Lock()


def in_turn(work: Iterator[T]) -> Iterator[T]:
    """The items of a generator, each computed in a turn."""
    while True:
        with turn:
            try:
                item = next(work)
            except StopIteration:
                return
        yield item
