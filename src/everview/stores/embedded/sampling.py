"""Some rows of a table: short ranges of keys, spread evenly over the keys of each region.

The number of rows is limited, however large the table is, and the same rows are read as long as the
table does not change. A small table is read whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import lmdb
import numpy as np
import pyarrow as pa

from everview.codec.rows import join
from everview.stores.embedded.region import Region, locating

RANGE = "_range"
RANGES, RANGE_ROWS = 64, 96
_BYTES = 8  # of a key, after the bytes that all keys have in common


def sample(regions: Sequence[Region], columns: Sequence[str]) -> pa.Table:
    """The columns of some rows, and in RANGE the number of each row's range of keys; ranges of
    several regions that begin at about the same key have the same number."""
    layout = regions[0].layout
    positions = layout.schema.positions(columns)
    ranges_per_region = max(2, RANGES // len(regions))
    tables = [pa.Table.from_batches([], layout.arrow(positions))]
    numbers = [np.zeros(0, np.int32)]
    for region in regions:
        with region.environment.reading() as txn, locating(region):
            ranges = _ranges(txn.cursor(region.rows), region.count(txn), ranges_per_region)
            for number, values in enumerate(ranges):
                batch = layout.batch(layout.rows.decode(*join(values), positions), positions)
                tables.append(pa.Table.from_batches([batch]))
                numbers.append(np.full(len(values), number, np.int32))
    return pa.concat_tables(tables).append_column(RANGE, pa.array(np.concatenate(numbers)))


def _ranges(cursor: lmdb.Cursor, count: int, ranges: int) -> Iterator[list[bytes]]:
    """Encoded rows of so many ranges, of which none is empty."""
    if count <= ranges * RANGE_ROWS:
        stream = iter(cursor.iternext(keys=False)) if cursor.first() else iter(())
        while values := list(islice(stream, max(1, count // ranges))):
            yield values
        return
    cursor.first()
    first = cursor.key()
    cursor.last()
    starts = list(_starts(cursor, first, cursor.key(), ranges))
    for start, stop in zip(starts, [*starts[1:], None], strict=True):
        items = islice(cursor.iternext(), RANGE_ROWS) if cursor.set_range(start) else ()
        if values := [value for key, value in items if stop is None or key < stop]:
            yield values


def _starts(cursor: lmdb.Cursor, low: bytes, high: bytes, ranges: int) -> Iterator[bytes]:
    """At most so many keys from low on, before high.

    They halve the range again and again by stored keys, since keys may crowd in one part of it.
    """
    middle = _between(low, high)
    if ranges == 1 or not cursor.set_range(middle):
        yield low
    elif (key := cursor.key()) < high:
        yield from _starts(cursor, low, key, ranges // 2)
        yield from _starts(cursor, key, high, ranges - ranges // 2)
    elif cursor.prev() and (key := cursor.key()) > low:
        yield from _starts(cursor, low, key, ranges)
    else:
        yield low


def _between(low: bytes, high: bytes) -> bytes:
    """The middle of two keys, the first of which is less."""
    pairs = enumerate(zip(low, high, strict=False))
    same = next((place for place, (a, b) in pairs if a != b), len(low))
    low_number, high_number = (
        int.from_bytes(key[same : same + _BYTES].ljust(_BYTES, b"\0")) for key in (low, high)
    )
    return low[:same] + ((low_number + high_number + 1) // 2).to_bytes(_BYTES)
