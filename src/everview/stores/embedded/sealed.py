"""Items with a checksum of key and value behind the value.

The checksum of bytes and their own checksum is always the same number, so many items are checked
at once. Items of bags are rows. A row that a bag has more than once is followed by its count, and
its checksum has a mark, which makes that number another one.
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


def seal(keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
    sums = map(crc32, values, map(crc32, keys))
    return list(map(add, values, map(_PACK, sums)))


def unseal(keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
    """The values without their checksums; raises `Damaged` if a checksum is wrong."""
    check(keys, values)
    return [value[:-SEAL] for value in values]


def check(keys: Sequence[bytes], values: Sequence[bytes]) -> None:
    _check_sums(keys, values)


def seal_rows(keys: Sequence[bytes], rows: Sequence[bytes], counts: Iterable[int]) -> list[bytes]:
    """Rows of bags, with their counts and checksums."""
    items, counts = seal(keys, rows), list(counts)
    if counts.count(1) == len(counts):
        return items
    for i, count in enumerate(counts):
        if count != 1:
            row_and_count = rows[i] + _PACK(count)
            items[i] = row_and_count + _PACK(crc32(row_and_count, crc32(keys[i])) ^ _MARK)
    return items


def unseal_rows(keys: Sequence[bytes], items: Sequence[bytes]) -> tuple[list[bytes], list[int]]:
    """Rows of bags and their counts; raises `Damaged` as `unseal` does."""
    sums = _check_sums(keys, items)
    rows, counts = [item[:-SEAL] for item in items], [1] * len(items)
    if sums.count(_WHOLE) < len(sums):
        for i, checksum in enumerate(sums):
            if checksum == _COUNTED:
                counts[i] = _NUMBER.unpack_from(rows[i], len(rows[i]) - COUNT)[0]
                rows[i] = rows[i][:-COUNT]
    return rows, counts


def _check_sums(keys: Sequence[bytes], values: Sequence[bytes]) -> list[int]:
    sums = list(map(crc32, values, map(crc32, keys)))
    if failed := len(sums) - sums.count(_WHOLE) - sums.count(_COUNTED):
        raise Damaged(f"{failed} of {len(sums)} items of state fail their checksum")
    return sums
