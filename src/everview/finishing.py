"""Work that Ctrl-C on the command line does not cut in two.

A write of several regions is one transaction for each. The command line asks here before it raises
KeyboardInterrupt, and waits until the write is done.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_depth = 0  # of the main thread, the only one in which Ctrl-C raises


@contextmanager
def finishing() -> Iterator[None]:
    """Inside the block, Ctrl-C waits."""
    global _depth
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1


def is_finishing() -> bool:
    """Whether the main thread is inside such a block."""
    return _depth > 0
