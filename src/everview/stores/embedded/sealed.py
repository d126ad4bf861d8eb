"""Items with a checksum of key and value behind the value.

A checksum over bytes and their own checksum is always the same number: that is how many are
checked at once.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import add
from zlib import crc32

from everview.errors import Damaged

SEAL = 4  # bytes
_PACK = struct.Struct("<I").pack
_WHOLE = 0x2144DF1C


def sealed(keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
    sums = map(crc32, values, map(crc32, keys))
    return list(map(add, values, map(_PACK, sums)))


def opened(keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
    """The values without their checksums; raises `Damaged` if one is not as it was sealed."""
    check(keys, values)
    return [value[:-SEAL] for value in values]


def check(keys: Sequence[bytes], values: Sequence[bytes]) -> None:
    sums = list(map(crc32, values, map(crc32, keys)))
    if wrong := len(sums) - sums.count(_WHOLE):
        raise Damaged(f"{wrong} of {len(sums)} items of state fail their checksum")
