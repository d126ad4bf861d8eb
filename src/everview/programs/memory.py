"""Memory that large shards took goes back to the system.

Allocators keep freed memory, and Spark keeps its Python workers: after loads of some gigabytes each
worker held more than one, and the system had that much less to cache files in.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import pyarrow as pa

P = ParamSpec("P")
T = TypeVar("T")
SPARE = 256 << 20  # bytes that a process may keep for what comes next
_STATM = Path("/proc/self/statm")
_bytes_after_tidying = 0


def tidied(work: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same generator function; at its end much freed memory goes back to the system."""

    @wraps(work)
    def generate(*arguments: P.args, **keywords: P.kwargs) -> Iterator[T]:
        yield from work(*arguments, **keywords)
        tidy()

    return generate


def tidy() -> None:
    global _bytes_after_tidying
    if sys.platform == "linux" and private_bytes() > _bytes_after_tidying + SPARE:
        pa.default_memory_pool().release_unused()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
        if trim is not None:
            trim(0)
        _bytes_after_tidying = private_bytes()


def private_bytes() -> int:
    """Memory of this process, without the files that it maps."""
    _, resident, shared, *_ = map(int, _STATM.read_text().split())
    return (resident - shared) * mmap.PAGESIZE
