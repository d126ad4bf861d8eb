"""Memory that large shards took goes back to the system.

Allocators keep what is freed, and Spark keeps its Python workers: after loads of some gigabytes
each of them held more than one, which the system then lacked to keep files in.
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
_held = 0


def tidied(work: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The generator function, after which memory that was freed goes back, if it is much."""

    @wraps(work)
    def generate(*given: P.args, **named: P.kwargs) -> Iterator[T]:
        yield from work(*given, **named)
        tidy()

    return generate


def tidy() -> None:
    global _held
    if sys.platform == "linux" and private_bytes() > _held + SPARE:
        pa.default_memory_pool().release_unused()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
        if trim is not None:
            trim(0)
        _held = private_bytes()


def private_bytes() -> int:
    """Memory of this process alone, without the files that it has mapped."""
    _, resident, shared, *_ = map(int, _STATM.read_text().split())
    return (resident - shared) * mmap.PAGESIZE
