"""A message while Spark's JVM starts, which takes a while, once for each process.

On a terminal it is a line on standard error, in a notebook a line of the cell's output. Other
programs print nothing. The commands show it in their own line about waiting.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

TEXT = "starting Spark, once for this process; this takes 7 to 35 seconds"

tells_itself = False  # whether the program shows by itself what it waits for
is_starting = False
_was_announced = False


@contextmanager
def announcing() -> Iterator[None]:
    """Say, the first time, that Spark starts inside the block."""
    global is_starting, _was_announced
    if not (tells_itself or _was_announced):
        _announce()
    is_starting = _was_announced = True
    try:
        yield
    finally:
        is_starting = False


def _announce() -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"{TEXT} ...", file=sys.stderr, flush=True)
    elif _is_notebook():
        print(f"{TEXT} ...", flush=True)


def _is_notebook() -> bool:
    """Whether this is the process of a notebook; IPython is not imported to find out."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None
