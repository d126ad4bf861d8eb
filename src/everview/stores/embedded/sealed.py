"""Items with a checksum of key and value behind the value.

A checksum over bytes and their own checksum is always the same number: that is how many are
checked at once. Items of bags are rows; behind one that is there more than once is a count, and
its checksum has a mark: then that number is another one, which tells them apart.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from operator import add
from zlib import crc32

from everview.errors import Damaged

SEAL = 4  # bytes
COUNT = 4
_NUMBER = struct.Struct("<I")
_PACK = _NUMBER.pack
_MARK = 0x5BAD_0C75
_WHOLE = crc32(_PACK(crc32(b"")))
_COUNTED = crc32(_PACK(crc32(b"") ^ _MARK))


def sealed(keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
    sums = map(crc32, values, map(crc32, keys))
    return list(map(add, values, map(_PACK, sums)))


def opened(keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
    """The values without their checksums; raises `Damaged` if one is not as it was sealed."""
    check(keys, values)
    return [value[:-SEAL] for value in values]


def check(keys: Sequence[bytes], values: Sequence[bytes]) -> None:
    _checked(keys, values)


def sealed_rows(keys: Sequence[bytes], rows: Sequence[bytes], counts: Iterable[int]) -> list[bytes]:
    """Rows as they lie in bags under keys, each so many times."""
    items, counts = sealed(keys, rows), list(counts)
    if counts.count(1) == len(counts):
        return items
    for i, count in enumerate(counts):
        if count != 1:
            counted = rows[i] + _PACK(count)
            items[i] = counted + _PACK(crc32(counted, crc32(keys[i])) ^ _MARK)
    return items


def opened_rows(keys: Sequence[bytes], items: Sequence[bytes]) -> tuple[list[bytes], list[int]]:
    """Rows as they lie in bags, and how often each is there; raises `Damaged` as `opened` does."""
    sums = _checked(keys, items)
    rows, counts = [item[:-SEAL] for item in items], [1] * len(items)
    if sums.count(_WHOLE) < len(sums):
        for i, found in enumerate(sums):
            if found == _COUNTED:
                counts[i] = _NUMBER.unpack_from(rows[i], len(rows[i]) - COUNT)[0]
                rows[i] = rows[i][:-COUNT]
    return rows, counts


def _checked(keys: Sequence[bytes], values: Sequence[bytes]) -> list[int]:
    sums = list(map(crc32, values, map(crc32, keys)))
    if wrong := len(sums) - sums.count(_WHOLE) - sums.count(_COUNTED):
        raise Damaged(f"{wrong} of {len(sums)} items of state fail their checksum")
    return sums
