"""Several rows in one value of a state, for keys whose rows are always read and written together.

A value is the number of rows and the length of each, as u32, and then the rows as `BagRows` has
them, in the order in which they were written.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from everview.codec.buffers import Ints, data_of, offsets_of
from everview.codec.rows import BareCodec
from everview.operators.bags import BagRows
from everview.schema import Column
from everview.state import State

_WORD = np.dtype("<u4")
_AT_ONCE = 1 << 16  # keys whose values are made together


class PackedRows:
    """Rows of some columns by key."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._rows = BagRows(columns)
        self._codec = BareCodec(columns)
        self.schema = self._rows.schema

    def read(self, keys: list[bytes], state: State) -> tuple[Ints, pa.Table]:
        """The rows under ascending keys, and for each row the place of its key."""
        values = state.get_many(keys)
        counts = np.array([_count(value) for value in values], np.int64)
        heads = 4 + 4 * counts
        lengths = [
            np.frombuffer(value, _WORD, count, 4)
            for value, count in zip(values, counts.tolist(), strict=True)
            if value
        ]
        joined = b"".join(values)
        which = np.repeat(np.arange(len(keys)), counts)
        if not len(which):
            return which, self.schema.empty_table()
        sizes = np.concatenate(lengths).astype(np.int64)
        ends = np.cumsum(np.where(counts > 0, heads, 0))  # of heads up to each value's own
        starts = np.cumsum(sizes) - sizes + ends[which]
        rows_bytes = np.frombuffer(joined, np.uint8)
        arrays = self._codec.read(rows_bytes, starts, range(len(self.schema)))
        return which, pa.Table.from_arrays(arrays, schema=self.schema)

    def write(self, keys: list[bytes], which: Ints, rows: pa.Table, state: State) -> None:
        """Set the rows under ascending keys. `which` has for each row the place of its key, and
        ascends; a key without rows goes."""
        ends = np.searchsorted(which, np.arange(len(keys) + 1))
        for start in range(0, len(keys), _AT_ONCE):
            some = ends[start : start + _AT_ONCE + 1]
            part = rows.slice(int(some[0]), int(some[-1] - some[0]))
            values = self._values(part, some - some[0])
            state.put_many(keys[start : start + _AT_ONCE], values)

    def _values(self, rows: pa.Table, ends: Ints) -> list[bytes]:
        """The values with the rows between each end and the next."""
        encoded = self._rows.encode(rows)
        offsets = offsets_of(encoded).astype(np.int64)
        data = bytes(data_of(encoded)[: offsets[-1]]) if len(encoded) else b""
        lengths = np.diff(offsets).astype(_WORD).tobytes()
        counts = np.diff(ends).astype(_WORD).tobytes()
        row, byte = (4 * ends).tolist(), offsets[ends].tolist()
        return [
            counts[4 * i : 4 * i + 4] + lengths[row[i] : row[i + 1]] + data[byte[i] : byte[i + 1]]
            if row[i] < row[i + 1]
            else b""
            for i in range(len(ends) - 1)
        ]


def _count(value: bytes) -> int:
    return int.from_bytes(value[:4], "little")
