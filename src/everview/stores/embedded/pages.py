"""LMDB's data file, read without LMDB: whether it is whole, and which of its pages are free.

LMDB maps its file, and a process that touches a page behind the file's end is killed. So the file
is checked before it is mapped. It may be shorter than its meta pages say: a page that a transaction
took and gave back is free, and never written. Every other page must lie before the end.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

import numpy as np

from everview.codec.buffers import Ints
from everview.errors import Damaged

# a page: its number, 2 bytes, flags, then where free space begins and ends, or how many pages
# a long value takes; a meta page then: magic, version, 16 bytes, the two trees, last page, commit
_HEADER = struct.Struct("<QHHHH")
_META = struct.Struct("<IIQQ48s48sQQ")
_META_BYTES, _PAGE_SIZE_AT = _HEADER.size + _META.size, _HEADER.size + 24
_TREE = struct.Struct("<IHHQQQQQ")
_NODE = struct.Struct("<HHHH")
_BRANCH, _LEAF, _META_FLAG, _LONG = 0x01, 0x02, 0x08, 0x01
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_NO_PAGE = (1 << 64) - 1
_PAGE_SIZES = tuple(1 << bits for bits in range(9, 17))
_DEEPEST = 32
_MOST_READS = 100
T = TypeVar("T")


@dataclass(frozen=True)
class Meta:
    """The newest meta page: the last page that may be in use, the commit, and the trees."""

    page_size: int
    last_page: int
    commit: int
    free_root: int
    main_root: int


class Pages:
    """The pages of an open file."""

    def __init__(self, file: int) -> None:
        self.file = file

    def meta(self) -> Meta:
        """The newest meta page; raises `Damaged` if one of the two is invalid."""
        return self._newest(self._metas())

    def _metas(self) -> tuple[bytes, bytes]:
        """The two meta pages as they are; the second lies where the first says, or nowhere."""
        first = os.pread(self.file, _META_BYTES, 0)
        place = int.from_bytes(first[_PAGE_SIZE_AT : _PAGE_SIZE_AT + 4], "little")
        return first, os.pread(self.file, _META_BYTES, place)

    def _newest(self, metas: tuple[bytes, bytes]) -> Meta:
        return max(map(self._read_meta, metas), key=lambda meta: meta.commit)

    def _read_meta(self, page: bytes) -> Meta:
        if len(page) < _META_BYTES:
            raise Damaged("it ends before its meta pages do")
        flags = _HEADER.unpack_from(page)[2]
        magic, version, _, _, free, main, last, commit = _META.unpack_from(page, _HEADER.size)
        page_size, *_, free_root = _TREE.unpack(free)
        main_root = _TREE.unpack(main)[-1]
        roots = [root for root in (free_root, main_root) if root != _NO_PAGE]
        if (
            (magic, version) != (_MAGIC, _VERSION)
            or not flags & _META_FLAG
            or page_size not in _PAGE_SIZES
            or max(roots, default=last) > last
        ):
            raise Damaged("its meta pages are not what was written")
        return Meta(page_size, last, commit, free_root, main_root)

    def steady(self, read: Callable[[Meta], T]) -> T:
        """The result of `read`, which is repeated if another process commits meanwhile: then pages
        may have been used again."""
        for attempt in count(1):
            metas = self._metas()
            try:
                result = read(self._newest(metas))
            except Damaged:
                if attempt == _MOST_READS or self._metas() == metas:
                    raise
            else:
                if attempt == _MOST_READS or self._metas() == metas:
                    break
        return result

    def check(self) -> None:
        """Raises `Damaged` if a page in use lies behind the end of the file, or can't be read."""
        self.steady(self._check)

    def _check(self, meta: Meta) -> None:
        for root in (meta.free_root, meta.main_root):
            if root != _NO_PAGE:
                self._page(meta, root)
        whole_pages = os.fstat(self.file).st_size // meta.page_size
        missing = meta.last_page + 1 - whole_pages
        if missing > 0:
            free = np.concatenate([np.zeros(0, np.int64), *(p for _, p in self.free(meta))])
            if len(np.unique(free[(free >= whole_pages) & (free <= meta.last_page)])) < missing:
                raise Damaged(
                    f"it was cut: it has {whole_pages:,} whole pages, and there are up to "
                    f"{meta.last_page + 1:,}"
                )

    def free(self, meta: Meta) -> Iterator[tuple[int, Ints]]:
        """The pages that are free, by the commit that freed them."""
        if meta.free_root != _NO_PAGE:
            yield from self._free_below(meta, meta.free_root, _DEEPEST)

    def _free_below(self, meta: Meta, number: int, depth: int) -> Iterator[tuple[int, Ints]]:
        page = self._page(meta, number)
        _, _, flags, lower, _ = _HEADER.unpack_from(page)
        places = np.frombuffer(page[_HEADER.size : lower], "<u2")
        for place in places.tolist():
            if not depth or place + _NODE.size > meta.page_size:
                raise Damaged(f"page {number:,} of its list of free pages is not what was written")
            low, high, node_flags, key_size = _NODE.unpack_from(page, place)
            if flags & _BRANCH:
                child = low | high << 16 | node_flags << 32
                yield from self._free_below(meta, child, depth - 1)
            else:
                key = place + _NODE.size
                size, start = low | high << 16, key + key_size
                commit = int.from_bytes(page[key:start], "little")
                if node_flags & _LONG:
                    place_of_value = int.from_bytes(page[start : start + 8], "little")
                    yield commit, _numbers(self._long(meta, place_of_value, size))
                else:
                    yield commit, _numbers(page[start : start + size])

    def _page(self, meta: Meta, number: int) -> bytes:
        """A page of a tree; raises `Damaged` if it is not there, or another."""
        page = os.pread(self.file, meta.page_size, number * meta.page_size)
        if len(page) < meta.page_size:
            raise Damaged(f"it was cut: page {number:,} is in use and not there")
        stored_number, _, flags, lower, _ = _HEADER.unpack_from(page)
        is_tree = flags & (_BRANCH | _LEAF) and _HEADER.size <= lower <= meta.page_size
        if stored_number != number or not is_tree:
            raise Damaged(f"page {number:,} is not what was written")
        return page

    def _long(self, meta: Meta, number: int, size: int) -> bytes:
        value = os.pread(self.file, size, number * meta.page_size + _HEADER.size)
        if len(value) < size:
            raise Damaged(f"it was cut: page {number:,} is in use and not there")
        return value


def _numbers(value: bytes) -> Ints:
    """A list of pages, which begins with its length."""
    count = int.from_bytes(value[:8], "little")
    return np.frombuffer(value[8 : 8 + 8 * count], "<i8")


@contextmanager
def pages_of(path: str, mode: int = os.O_RDONLY) -> Iterator[Pages]:
    """The pages of a file, which is open inside the block."""
    file = os.open(path, mode | os.O_CLOEXEC)
    try:
        yield Pages(file)
    finally:
        os.close(file)
