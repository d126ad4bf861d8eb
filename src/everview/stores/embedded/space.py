"""The space of an environment: what is free, which readers keep more, and giving it back.

LMDB never makes its file smaller. It uses a replaced page again as soon as no reader may look at
it. A reader that stays, such as a pin, keeps all pages that are replaced meanwhile, so the file
grows. Afterwards they are free, but on disk.

Free pages are given back by punching holes into the file. The file keeps its length and every page
its place, so readers and writers notice nothing. Only pages go that LMDB would use again now, and
nobody reads these: a process that is killed meanwhile has done a part, and no harm.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import lmdb
import numpy as np

from everview.codec.buffers import Ints
from everview.errors import DatabaseError
from everview.stores.base import Space
from everview.stores.embedded.environment import Environment
from everview.stores.embedded.pages import Pages, pages_of
from everview.stores.embedded.syncing import sync_file

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_TURN_SECONDS = 0.05  # for which writers wait
Lock = Callable[[], AbstractContextManager[None]]
_NONE = np.zeros(0, np.int64)
_NO_KEY = b"\xff"  # of no item


def space_of(environment: Environment) -> Space:
    readers = _readers(environment)
    with pages_of(environment.file.path) as pages:
        meta, lists = pages.steady(lambda meta: (meta, list(pages.free(meta))))
    size = environment.file.size_on_disk
    used = (meta.last_page + 1 - sum(len(numbers) for _, numbers in lists)) * meta.page_size
    held_bytes: dict[int, int] = {}
    for process, commit in readers:
        kept_pages = sum(
            len(numbers) for freed_at, numbers in lists if commit <= freed_at < meta.commit
        )
        if kept_pages:
            held_bytes[process] = max(held_bytes.get(process, 0), kept_pages * meta.page_size)
    free = max(0, size - used - max(held_bytes.values(), default=0))
    return Space(size, free, held_bytes)


def _readers(environment: Environment) -> list[tuple[int, int]]:
    """The readers: the process of each, and the commit that it reads."""
    with environment.awake():
        environment.lmdb.reader_check()
        lines = environment.lmdb.readers().splitlines()[1:]
    rows = [line.split() for line in lines]
    return [(int(words[0]), int(words[2])) for words in rows if words[2:] and words[2] != "-"]


def give_back(environment: Environment, lock: Lock) -> Iterator[int]:
    """Give the free pages of an environment back to the file system, turn by turn; yields the
    number of pages of each. It holds `lock` while writers wait.

    Between turns, writers go on. A page that goes was free in a commit that is on the device: a
    crash of the machine may go back to that commit, but not further.
    """
    with lock():
        environment.update(lambda txn: _touch(environment, txn))
    next_page: int | None = 0
    while next_page is not None:
        with pages_of(environment.file.path) as pages:
            synced_commit = pages.steady(lambda meta: meta.commit)
        sync_file(environment.file.path)
        with lock(), environment.writing():
            oldest = min([synced_commit, *(commit for _, commit in _readers(environment))])
            with pages_of(environment.file.path, os.O_RDWR) as pages:
                page_count, next_page = _punch(pages, oldest, next_page, environment.file.path)
        yield page_count


def _touch(environment: Environment, txn: lmdb.Transaction) -> None:
    """Make a commit that changes nothing: only then may pages that the last one freed be used."""
    txn.put(_NO_KEY, b"", db=environment.dbs[-1])
    txn.delete(_NO_KEY, db=environment.dbs[-1])


def _punch(pages: Pages, oldest: int, start: int, path: str) -> tuple[int, int | None]:
    """Punch holes from a page on, for one turn; returns the number of pages and where to go on."""
    meta = pages.meta()
    lists = [numbers for freed_at, numbers in pages.free(meta) if freed_at < oldest]
    free = np.sort(np.concatenate([_NONE, *lists]))
    free = free[free >= start]
    until, page_count = time.monotonic() + _TURN_SECONDS, 0
    for first, count in _runs(free):
        if page_count and time.monotonic() > until:
            return page_count, first
        _punch_hole(pages.file, first * meta.page_size, count * meta.page_size, path)
        page_count += count
    return page_count, None


def _runs(numbers: Ints) -> Iterator[tuple[int, int]]:
    """The runs in sorted numbers: the first number of each, and its length."""
    if len(numbers):
        starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 2) != 1)
        lengths = np.diff(starts, append=len(numbers))
        yield from zip(numbers[starts].tolist(), lengths.tolist(), strict=True)


def _punch_hole(file: int, start: int, length: int, path: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    offsets = ctypes.c_int64(start), ctypes.c_int64(length)
    if libc.fallocate(file, _KEEP_SIZE | _PUNCH_HOLE, *offsets) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise DatabaseError(
            f"the file system can't take space back from {path}: {reason}. A copy made with "
            "`cp --sparse=always -r`, while nobody uses the database, takes only what it needs"
        )
