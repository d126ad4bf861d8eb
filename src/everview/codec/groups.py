"""Keys of groups: as bytes, NULLs included; equal exactly when the values are.

    0  u8 tag   then a null bitmap, then the columns as in codec/keys.py, NULL as zero or empty;
                arrays, structs and maps are the BINARY that codec/nested.py makes of them

They are for look-ups: their order means nothing. The tag keeps apart what an operator keeps for
different purposes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import fixed_binary, valid_of
from everview.codec.keys import KeyCodec
from everview.codec.nested import normal
from everview.codec.point import encode_key
from everview.codec.rows import codec_of
from everview.schema import Column, is_nested, is_variable


class GroupCodec:
    """Encodes rows of some columns as keys."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._nested = {c.name: codec_of(c.type) for c in columns if is_nested(c.type)}
        self._keys = KeyCodec(
            [Column(c.name, pa.binary()) if c.name in self._nested else c for c in columns]
        )

    def encode(self, rows: pa.Table, tag: int = 0) -> pa.BinaryArray:
        arrays = [rows[column.name].combine_chunks() for column in self._columns]
        bitmap = np.zeros((rows.num_rows, 1 + (len(arrays) + 7) // 8), np.uint8)
        bitmap[:, 0] = tag
        for i, array in enumerate(arrays):
            if array.null_count:
                bitmap[:, 1 + (i >> 3)] |= (~valid_of(array)).view(np.uint8) << np.uint8(i & 7)
        head = fixed_binary(bitmap, bitmap.shape[1])
        if not arrays:
            return head
        arrays_without_nulls = [
            self._without_nulls(c.name, a) for c, a in zip(self._columns, arrays, strict=True)
        ]
        return pc.binary_join_element_wise(
            head, self._keys.encode(arrays_without_nulls), pa.scalar(b"", pa.binary())
        )

    def encode_plain(self, values: Sequence[Any]) -> bytes | None:
        """One key; None where its values aren't plainly of the columns' types."""
        key = encode_key(self._columns, values)
        return None if key is None else bytes(1 + (len(self._columns) + 7) // 8) + key

    def _without_nulls(self, name: str, array: pa.Array) -> pa.Array:
        if name in self._nested:
            return self._nested[name].encode(normal(array))
        if array.null_count and is_variable(array.type):
            return array.fill_null("" if array.type == pa.string() else b"")
        return array
