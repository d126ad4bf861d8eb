"""Rows of a table to which columns were added: each row is read as the version that it is of.

Columns are only added at the end, so all that is to be known of a version is how many columns it
had. A row has NULL in the columns that came after its version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import Ints, Words, data_of, offsets_of
from everview.codec.point import PointDecoder, check_row
from everview.codec.rows import (
    ROW_FORMAT,
    EncodedRows,
    RowCodec,
    body,
    check_sums,
    heads_of,
    kinds_of,
    versions_in,
    without_stamps,
)
from everview.errors import Damaged
from everview.schema import Column

_FEW = 4
_ROOM_FOR_NULLS = 4096  # bytes of a row, which is more than the NULLs of added columns take


class TableCodec:
    """Encodes rows of a table's newest version, and decodes rows of any.

    `widths` has the number of columns of each version. `newer` gives the table's codec as of now,
    for rows of a version that came after this codec was made. It may raise `Outdated`.
    """

    def __init__(
        self, columns: Sequence[Column], widths: Sequence[int], newer: Callable[[], TableCodec]
    ) -> None:
        self.columns = tuple(columns)
        self.version = len(widths)
        self._widths = tuple(widths)
        self._newer = newer
        self._newest = RowCodec(self.columns, self.version)
        self._kind = _kind(self.version).to_bytes(4, "little")
        self._point = PointDecoder(self.columns, self.version)
        self._codecs = {_kind(self.version): self._newest}
        self._points: dict[int, PointDecoder] = {}

    def encode(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        """As `RowCodec.encode`."""
        return self._newest.encode(batch)

    def decode(
        self, row_bytes: Any, starts: Ints, columns: Sequence[int], checked: bool = False
    ) -> list[pa.Array]:
        """As `RowCodec.decode`."""
        if len(starts) == 0:
            return self._newest.read(row_bytes, starts, columns)
        heads = heads_of(row_bytes, starts)
        if not checked:
            check_sums(row_bytes, starts, heads)
        kinds = kinds_of(heads)
        if (kinds == kinds[0]).all():
            return self._read(int(kinds[0]), row_bytes, starts, columns)
        return self._read_each(kinds, row_bytes, starts, columns)

    def _read_each(
        self, kinds: Words, row_bytes: Any, starts: Ints, columns: Sequence[int]
    ) -> list[pa.Array]:
        """Rows of several versions, read one version after the other and put in order again."""
        places, parts = [], []
        for kind in np.unique(kinds):
            places.append(np.flatnonzero(kinds == kind))
            parts.append(self._read(int(kind), row_bytes, starts[places[-1]], columns))
        inverse = pa.array(np.argsort(np.concatenate(places)))
        return [pa.concat_arrays(arrays).take(inverse) for arrays in zip(*parts, strict=True)]

    def _read(
        self, kind: int, row_bytes: Any, starts: Ints, columns: Sequence[int]
    ) -> list[pa.Array]:
        codec = self._codec(kind)
        stored_columns = [i for i in columns if i < len(codec.columns)]
        stored_arrays = codec.read(row_bytes, starts, stored_columns)
        arrays = dict(zip(stored_columns, stored_arrays, strict=True))
        return [
            arrays[i] if i in arrays else pa.nulls(len(starts), self.columns[i].type)
            for i in columns
        ]

    def _codec(self, kind: int) -> RowCodec:
        """The codec of a version, also of one that came after this codec was made."""
        if kind not in self._codecs:
            version = _version(kind)
            newest = self._codec_for(version)
            columns = newest.columns[: newest._widths[version - 1]]
            self._codecs[kind] = RowCodec(columns, version)
        return self._codecs[kind]

    def decode_row(self, row: bytes, columns: Sequence[int]) -> dict[str, Any]:
        """As `PointDecoder.decode`."""
        if row[:4] == self._kind:
            return self._point.decode(row, columns)
        kind = int.from_bytes(row[:4], "little")
        if kind not in self._points:
            check_row(row)
            self._points[kind] = PointDecoder(self._codec(kind).columns, _version(kind))
        width = len(self._codec(kind).columns)
        values = self._points[kind].decode(row, [i for i in columns if i < width])
        return {name: values.get(name) for name in (self.columns[i].name for i in columns)}

    def check(self, row_bytes: Any, starts: Ints) -> None:
        """Compare rows that lie side by side with their checksums; raises `Damaged`."""
        check_sums(row_bytes, starts, heads_of(row_bytes, starts))

    def are_equal(self, a: bytes, b: bytes) -> bool:
        """Whether two rows have equal values, of whatever versions they are."""
        if a[:4] == b[:4]:
            return body(a) == body(b)
        newest = max(_version(int.from_bytes(row[:4], "little")) for row in (a, b))
        arrays = pa.array([a], pa.binary()), pa.array([b], pa.binary())
        return bool(self._equal_values(*arrays, newest)[0])

    def equal_rows(self, stored_rows: list[bytes], rows: EncodedRows) -> npt.NDArray[np.bool_]:
        """Where `rows`, of this version, have the values of the stored rows, of any version.

        b"" stands for no row, which equals none. A stored row that equals has the right checksum.
        Most rows that differ have other checksums, so little else is compared if none is equal.
        Raises `Damaged`.
        """
        if len(stored_rows) <= _FEW:
            pairs = zip(stored_rows, rows.rows.to_pylist(), strict=True)
            return np.array([self._is_intact_and_equal(*pair) for pair in pairs], np.bool_)
        lengths = np.fromiter(map(len, stored_rows), np.int64, len(stored_rows))
        most = 2 * rows.lengths.astype(np.int64) + _ROOM_FOR_NULLS
        if (lengths > most).any():
            lengths[lengths > most] = 0
            stored_rows = [
                row if length else b"" for row, length in zip(stored_rows, lengths, strict=True)
            ]
        stored_array = pa.array(stored_rows, pa.binary())
        row_bytes, starts = data_of(stored_array), offsets_of(stored_array)[:-1].astype(np.int64)
        places = np.flatnonzero(lengths)
        starts = starts[places]
        heads = heads_of(row_bytes, starts)
        kinds = kinds_of(heads)
        is_own_version = kinds == _kind(self.version)
        checksums = rows.checksums(places, versions_in(row_bytes, starts))
        equal = np.zeros(len(stored_rows), np.bool_)
        for is_candidate in (
            is_own_version & (heads >> np.uint64(32) == checksums),
            ~is_own_version,
        ):
            if is_candidate.any():
                candidates = places[is_candidate]
                stored_candidates = _take(stored_array, candidates)
                if not is_own_version[is_candidate].all():
                    self.check(
                        data_of(stored_candidates),
                        offsets_of(stored_candidates)[:-1].astype(np.int64),
                    )
                newest = max(map(_version, np.unique(kinds[is_candidate]).tolist()))
                equal[candidates] = self._equal_values(
                    stored_candidates, _take(rows.rows, candidates), newest
                )
        return equal

    def _is_intact_and_equal(self, stored_row: bytes, row: bytes) -> bool:
        if not stored_row:
            return False
        check_row(stored_row)
        return self.are_equal(stored_row, row)

    def _equal_values(
        self, a: pa.BinaryArray, b: pa.BinaryArray, newest: int
    ) -> npt.NDArray[np.bool_]:
        """Where rows have equal values, of versions up to the newest."""
        codec = self._codec_for(newest)
        equal = pc.equal(codec._as_newest(a), codec._as_newest(b))
        return equal.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

    def _as_newest(self, rows: pa.BinaryArray) -> pa.BinaryArray:
        """The rows as rows of this schema version, without versions and checksums."""
        row_bytes, starts = data_of(rows), offsets_of(rows)[:-1].astype(np.int64)
        if (kinds_of(heads_of(row_bytes, starts)) == _kind(self.version)).all():
            return without_stamps(rows)
        arrays = self.decode(row_bytes, starts, range(len(self.columns)), checked=True)
        names = [column.name for column in self.columns]
        return self.encode(pa.RecordBatch.from_arrays(arrays, names))

    def _codec_for(self, version: int) -> TableCodec:
        """This codec, or the table's current codec for a version that is newer than this one."""
        if version <= self.version:
            return self
        now = self._newer()
        if version > now.version:
            raise Damaged(f"a row has schema version {version}; the newest is {now.version}")
        return now


def _take(rows: pa.BinaryArray, places: Ints) -> pa.BinaryArray:
    return rows if len(places) == len(rows) else rows.take(pa.array(places))


def _kind(version: int) -> int:
    return ROW_FORMAT | version << 16


def _version(kind: int) -> int:
    """The schema version of a kind of rows; raises `Damaged` if there is no such kind."""
    if kind & 0xFFFF != ROW_FORMAT or kind >> 16 == 0:
        raise Damaged(f"a row has format {kind & 0xFFFF} and schema version {kind >> 16}")
    return kind >> 16
