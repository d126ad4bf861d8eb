"""A region's change log: chunks of changes, each a before- and an after-image.

One write makes one or more chunks, stored under the big-endian sequence of their first change:

    0  u8  log format (1)    1  u8 zero      2  u16 schema version    4  u32 changes in the chunk
    8  u64 first sequence    16 i64 time in microseconds since 1970   24 u32 checksum   28 u32 zero
    32 u32 lengths of the before-images, u32 lengths of the after-images, then the images

Images are rows (codec/rows.py); length 0 means none. A change without after-image is a delete.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import lmdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from everview.codec import TableCodec
from everview.codec.buffers import Ints, fold, fold_one, gather, word_sum, word_sums
from everview.codec.rows import EncodedRows
from everview.errors import Damaged

LOG_FORMAT = 1
CHUNK_ROWS = 2048
CHUNK_BYTES = 32 << 20  # of the images in a chunk of more than one change
READ_BYTES = 16 << 20
_SAMPLES = 16
_HEADER = struct.Struct("<BBHIQqII")
_SEQUENCE = struct.Struct(">Q")
_HEADER_TYPE = np.dtype(
    [
        ("format", "u1"),
        ("zero", "u1"),
        ("schema", "<u2"),
        ("count", "<u4"),
        ("first", "<u8"),
        ("time", "<i8"),
        ("checksum", "<u8"),
    ]
)
_U4 = np.dtype("<u4")


def append(
    txn: lmdb.Transaction,
    db: lmdb._Database,
    schema_version: int,
    first: int,
    before: Sequence[bytes],
    after: EncodedRows | None,
) -> None:
    """Append changes with sequences first, first + 1, ...

    b"" stands for no before-image; without `after`, all are deletes.
    """
    now = time.time_ns() // 1000
    new_lengths = old_lengths = np.zeros(len(before), np.uint32)
    if any(before):
        old_lengths = np.fromiter(map(len, before), np.uint32, len(before))
    if after is not None:
        new_lengths = after.lengths
    for start, stop in _chunks(old_lengths, new_lengths):
        parts = [
            np.concatenate([old_lengths[start:stop], new_lengths[start:stop]]).tobytes(),
            b"".join(before[start:stop]),
            b"" if after is None else after.bytes(start, stop),
        ]
        fields = LOG_FORMAT, 0, schema_version, stop - start, first + start, now
        total = sum(word_sum(part) for part in [_HEADER.pack(*fields, 0, 0), *parts])
        checksum = fold_one(total)
        chunk = b"".join([_HEADER.pack(*fields, checksum, 0), *parts])
        txn.put(_SEQUENCE.pack(first + start), chunk, db=db, append=True)


def _chunks(
    old_lengths: npt.NDArray[np.uint32], new_lengths: npt.NDArray[np.uint32]
) -> Iterator[tuple[int, int]]:
    """Where chunks of changes begin and end."""
    ends = np.cumsum(old_lengths, dtype=np.int64) + np.cumsum(new_lengths, dtype=np.int64)
    start = end_before = 0
    while start < len(ends):
        byte_stop = int(np.searchsorted(ends, end_before + CHUNK_BYTES, side="right"))
        stop = min(start + CHUNK_ROWS, max(start + 1, byte_stop))
        yield start, stop
        start, end_before = stop, int(ends[stop - 1])


@dataclass(frozen=True)
class Images:
    """Changes as read: where each change's images lie in `data`."""

    data: bytes
    sequences: Ints
    times: Ints
    before_starts: Ints
    before_lengths: npt.NDArray[np.uint32]
    after_starts: Ints
    after_lengths: npt.NDArray[np.uint32]

    def slice(self, start: int, stop: int) -> Images:
        return Images(
            self.data,
            self.sequences[start:stop],
            self.times[start:stop],
            self.before_starts[start:stop],
            self.before_lengths[start:stop],
            self.after_starts[start:stop],
            self.after_lengths[start:stop],
        )

    def __len__(self) -> int:
        return len(self.sequences)

    def before(self, codec: TableCodec, columns: Sequence[int]) -> pa.StructArray:
        return image(codec, columns, self.data, self.before_starts, self.before_lengths)

    def after(self, codec: TableCodec, columns: Sequence[int]) -> pa.StructArray:
        return image(codec, columns, self.data, self.after_starts, self.after_lengths)


def image(
    codec: TableCodec, columns: Sequence[int], data: Any, starts: Ints, lengths: npt.NDArray[Any]
) -> pa.StructArray:
    """Rows as a struct array, NULL where the length is 0; the caller has checked the rows."""
    is_row = lengths > 0
    has_all = bool(is_row.all())
    arrays = codec.decode(data, starts if has_all else starts[is_row], columns, checked=True)
    fields = [pa.field(codec.columns[i].name, codec.columns[i].type) for i in columns]
    if has_all:
        return pa.StructArray.from_arrays(arrays, fields=fields)
    places = pa.array(np.cumsum(is_row) - 1, mask=~is_row)
    spread = [array.take(places) for array in arrays]
    return pa.StructArray.from_arrays(spread, fields=fields, mask=pa.array(~is_row))


def read(
    txn: lmdb.Transaction, db: lmdb._Database, after: int, upto: int, rows: int
) -> Iterator[Images]:
    """Changes with after < sequence <= upto, in pieces of at most `rows`."""
    cursor = txn.cursor(db)
    if after >= upto or not _seek(cursor, after + 1):
        return
    chunks: list[bytes] = []
    count = size = 0
    for key, chunk in cursor:
        if _SEQUENCE.unpack(key)[0] > upto:
            break
        chunks.append(chunk)
        count += int.from_bytes(chunk[4:8], "little")
        size += len(chunk)
        if count >= rows or size >= READ_BYTES:
            yield from _between(_parse(chunks), after, upto, rows)
            chunks, count, size = [], 0, 0
    if chunks:
        yield from _between(_parse(chunks), after, upto, rows)


def bounds(txn: lmdb.Transaction, db: lmdb._Database, last: int) -> tuple[int, int]:
    """First and last sequence in the log; (last + 1, last) when it is empty."""
    cursor = txn.cursor(db)
    return (_SEQUENCE.unpack(cursor.key())[0] if cursor.first() else last + 1), last


def time_of(txn: lmdb.Transaction, db: lmdb._Database, sequence: int) -> int | None:
    """When the change was made, in microseconds since 1970; None if the log has none."""
    cursor = txn.cursor(db)
    return int(_HEADER.unpack_from(cursor.value())[5]) if _seek(cursor, sequence) else None


def last_at(txn: lmdb.Transaction, db: lmdb._Database, first: int, last: int, at: int) -> int:
    """The last of the changes first to last that was made at or before a time in µs; first - 1 if
    none was. A change from the future was made before the clock was set back."""
    cursor, now = txn.cursor(db), time.time_ns() // 1000
    low, high, middle = first - 1, last, last
    while low < high:
        _seek(cursor, middle)
        _, _, _, count, chunk_first, chunk_time, _, _ = _HEADER.unpack_from(cursor.value())
        if chunk_time <= at or chunk_time > now:
            low = chunk_first + count - 1
        else:
            high = chunk_first - 1
        middle = (low + high + 1) // 2
    return int(low)


def mean_bytes(txn: lmdb.Transaction, db: lmdb._Database, after: int, upto: int) -> float:
    """About how many bytes a change with after < sequence <= upto has: the mean of a few of them,
    of which there is at least one."""
    cursor = txn.cursor(db)
    sizes = []
    for sequence in np.linspace(after + 1, upto, min(_SAMPLES, upto - after)).astype(int).tolist():
        if _seek(cursor, sequence):
            chunk = cursor.value()
            sizes.append(len(chunk) / int.from_bytes(chunk[4:8], "little"))
    return sum(sizes) / max(1, len(sizes))


def trim(txn: lmdb.Transaction, db: lmdb._Database, upto: int, before: float) -> int:
    """Remove whole chunks that end at or before `upto` and were made before a time in µs; returns
    the changes removed."""
    removed = 0
    cursor = txn.cursor(db)
    cursor.first()
    while key := cursor.key():
        _, _, _, count, _, chunk_time, _, _ = _HEADER.unpack_from(cursor.value())
        if _SEQUENCE.unpack(key)[0] + count - 1 > upto or chunk_time >= before:
            break
        removed += count
        cursor.delete()
    return removed


def _seek(cursor: lmdb.Cursor, sequence: int) -> bool:
    """Place the cursor on the chunk that holds `sequence`."""
    key = _SEQUENCE.pack(sequence)
    has_later = cursor.set_range(key)
    if has_later and cursor.key() == key:
        return True
    return bool(cursor.prev() if has_later else cursor.last())


def _between(images: Images, after: int, upto: int, rows: int) -> Iterator[Images]:
    start = int(np.searchsorted(images.sequences, after, side="right"))
    stop = int(np.searchsorted(images.sequences, upto, side="right"))
    for at in range(start, stop, rows):
        yield images.slice(at, min(at + rows, stop))


def _parse(chunks: list[bytes]) -> Images:
    data = b"".join(chunks)
    sizes = np.fromiter(map(len, chunks), np.int64, len(chunks))
    starts = np.cumsum(sizes) - sizes
    headers = gather(data, starts, _HEADER_TYPE)
    sums = word_sums(data, starts) - headers["checksum"]
    if np.any(headers["format"] != LOG_FORMAT) or np.any(fold(sums) != headers["checksum"]):
        raise Damaged(f"the change log is damaged at or after sequence {headers['first'][0]}")
    counts = headers["count"].astype(np.int64)
    ordinal = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    table = np.repeat(starts + _HEADER.size, counts) + 4 * ordinal
    before = gather(data, table, _U4)
    after = gather(data, table + np.repeat(4 * counts, counts), _U4)
    images = np.repeat(starts + _HEADER.size + 8 * counts, counts)
    before_ends = _running(before, counts)
    before_totals = np.repeat(_totals(before, counts), counts)
    return Images(
        data=data,
        sequences=np.repeat(headers["first"].astype(np.int64), counts) + ordinal,
        times=np.repeat(headers["time"], counts),
        before_starts=images + before_ends - before,
        before_lengths=before,
        after_starts=images + before_totals + _running(after, counts) - after,
        after_lengths=after,
    )


def _totals(lengths: npt.NDArray[Any], counts: Ints) -> Ints:
    totals: Ints = np.add.reduceat(lengths.astype(np.int64), np.cumsum(counts) - counts)
    return totals


def _running(lengths: npt.NDArray[Any], counts: Ints) -> Ints:
    """Cumulative lengths that start anew in each chunk."""
    total = np.cumsum(lengths, dtype=np.int64)
    firsts = np.cumsum(counts) - counts
    running: Ints = total - np.repeat(total[firsts] - lengths[firsts], counts)
    return running
