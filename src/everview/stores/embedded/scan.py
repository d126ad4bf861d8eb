"""Reading the rows of one region in key order, as they are now or at an earlier position.

An earlier position is reached by undoing: of each key changed since, the before-image of its
first change is what it was. A region is read in one read transaction; memory is one batch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import lmdb
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.rows import join
from everview.errors import LogTrimmed
from everview.stores.base import BATCH_ROWS
from everview.stores.embedded.layout import DIGEST, LONGEST, PREFIX, Layout, stored_key
from everview.stores.embedded.region import Region, locating, with_location

KEY = "\0key"  # the column of whole keys beside the rows; no table column has such a name
BATCH_BYTES = 8 << 20
_STEP = 16
Item = tuple[bytes, bytes]


@dataclass(frozen=True)
class Scan:
    """What to read of a table; `keyed` adds the column KEY."""

    layout: Layout
    columns: Sequence[str] | None
    where: pc.Expression | None
    start: bytes | None
    stop: bytes | None
    batch_rows: int
    keyed: bool

    def region(self, region: Region, at: int | None) -> Iterator[pa.RecordBatch]:
        """The region's rows in key order, in one read transaction."""
        with region.environment.reading() as txn:
            old_rows = undo(region, txn, at, self._low, self._high)
            if self._needs_keys or old_rows:
                by_key = self._is_by_key or bool(old_rows)
                for items in self._items(region, txn.cursor(region.rows), old_rows):
                    stored_keys, values = map(list, zip(*items, strict=True))
                    yield from self._decode(region, values, stored_keys, by_key)
            else:
                stream = iter(txn.cursor(region.rows).iternext(keys=False))
                while values := fill(stream, self.batch_rows, len):
                    yield from self._decode(region, values)

    @property
    def _is_by_key(self) -> bool:
        """Whether stored keys decide which rows are read, or in which order."""
        return self.start is not None or self.stop is not None or self.keyed

    @property
    def _needs_keys(self) -> bool:
        return self._is_by_key or self.layout.keys.variable

    @property
    def _low(self) -> bytes:
        return (self.start or b"")[:PREFIX]

    @property
    def _high(self) -> bytes | None:
        """A stored key that no stored key of the range exceeds."""
        return None if self.stop is None else _run_end(stored_key(self.stop))

    def _items(
        self, region: Region, cursor: lmdb.Cursor, old_rows: dict[bytes, bytes]
    ) -> Iterator[list[Item]]:
        """Stored keys and values; long keys that agree in their prefix stay in one batch.

        The rows just outside of a range are checked against their keys too.
        """
        has_item = cursor.set_range(self._low) if self._low else cursor.first()
        if self._low and (cursor.prev() if has_item else cursor.last()):
            region.check_keys([cursor.item()])
            cursor.next()
        stream: Iterator[Item] = cursor.iternext() if has_item else iter(())
        pending, high, is_last = sorted(old_rows), self._high, False
        while not is_last:
            items = fill(stream, self.batch_rows, lambda item: len(item[1]))
            is_last = not items
            if items and len(items[-1][0]) == LONGEST:
                stream = _extend(items, stream, items[-1][0][:PREFIX])
            if items and high is not None and items[-1][0] > high:
                region.check_keys(items)
                del items[bisect_right(items, high, key=_key) :]
                is_last = True
            if old_rows:
                end = len(pending) if is_last else bisect_right(pending, _run_end(items[-1][0]))
                items = [item for item in items if item[0] not in old_rows]
                items += [(key, old_rows[key]) for key in pending[:end] if old_rows[key]]
                items.sort(key=_key)
                del pending[:end]
            if items:
                yield items

    def _decode(
        self,
        region: Region,
        values: list[bytes],
        stored_keys: list[bytes] | None = None,
        by_key: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in batches; `by_key` if their stored keys decide which rows these are."""
        layout = self.layout
        positions = layout.schema.positions(self.columns)
        places = None if stored_keys is None else pa.array(stored_keys, pa.binary())
        long = places is not None and layout.has_long(places)
        keys = layout.key_positions if long or by_key else ()
        read = sorted({*positions, *self._named_in_where(), *keys})
        with locating(region):
            batch = layout.batch(layout.rows.decode(*join(values), read), read)
            if places is not None and keys:
                whole_keys = layout.encode_keys(batch)
                layout.check_stored_keys(whole_keys, places)
                batch = self._cut_to_range(batch.append_column(KEY, whole_keys), long)
        if self.where is not None:
            batch = _one_batch(pa.Table.from_batches([batch]).filter(self.where))
        batch = batch.select([layout.schema.names[i] for i in positions] + [KEY] * self.keyed)
        for start in range(0, batch.num_rows, self.batch_rows):
            yield batch.slice(start, self.batch_rows)

    def _named_in_where(self) -> list[int]:
        """Columns the predicate may need: those whose names occur in its text."""
        text = "" if self.where is None else str(self.where)
        return [i for i, name in enumerate(self.layout.schema.names) if name in text]

    def _cut_to_range(self, batch: pa.RecordBatch, long: bool) -> pa.RecordBatch:
        """Cut to the exact range; with long keys, after ordering by the whole keys."""
        if long:
            batch = batch.take(pc.array_sort_indices(batch.column(KEY)))
        keys = batch.column(KEY)
        low = 0 if self.start is None else key_position(keys, self.start)
        high = len(keys) if self.stop is None else max(low, key_position(keys, self.stop))
        return batch.slice(low, high - low)


def undo(
    region: Region,
    txn: lmdb.Transaction,
    at: int | None,
    low: bytes = b"",
    high: bytes | None = None,
) -> dict[bytes, bytes]:
    """The rows of a region at `at` that changed since, by stored key, from low to high; b"" for no
    row."""
    layout, last = region.layout, region.last(txn)
    if at is None or at == last:
        return {}
    if at > last:
        raise LogTrimmed(
            f"table {layout.schema.name}, region {region.number} has no sequence {at} yet; its "
            f"newest is {last}"
        )
    old_rows: dict[bytes, bytes] = {}
    codec, places = layout.rows, layout.key_positions
    for images in with_location(region, region.changes(txn, at, None, BATCH_ROWS)):
        after, before = images.after(codec, places), images.before(codec, places)
        has_row = after.is_valid()
        columns = [
            pc.if_else(has_row, new, old)
            for new, old in zip(after.flatten(), before.flatten(), strict=True)
        ]
        keys = layout.keys.encode(columns).to_pylist()
        for key, start, length in zip(
            map(stored_key, keys),
            images.before_starts.tolist(),
            images.before_lengths.tolist(),
            strict=True,
        ):
            if key not in old_rows and key >= low and (high is None or key <= high):
                old_rows[key] = images.data[start : start + length]
    return old_rows


def merge(streams: list[Iterator[pa.RecordBatch]], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Keyed streams, each in key order, as one stream in key order, without the keys.

    Rows up to the least of the last keys at hand are complete: they are sorted and yielded.
    """
    heads = [(head, stream) for stream in streams if (head := next(stream, None))]
    while heads:
        bound = min(head.column(KEY)[-1].as_py() for head, _ in heads)
        complete, rests = [], []
        for head, stream in heads:
            cut = key_position(head.column(KEY), bound, after=True)
            complete.append(head.slice(0, cut))
            rest = head.slice(cut) if cut < head.num_rows else next(stream, None)
            if rest is not None:
                rests.append((rest, stream))
        heads = rests
        table = pa.Table.from_batches(complete).combine_chunks()
        order = pc.array_sort_indices(table.column(KEY).combine_chunks())
        yield from table.drop_columns(KEY).take(order).to_batches(max_chunksize=batch_rows)


def key_position(keys: pa.BinaryArray, key: bytes, after: bool = False) -> int:
    """Where `key` belongs in sorted keys, before or after its equals."""
    bisect: Any = bisect_right if after else bisect_left
    return int(bisect(range(len(keys)), key, key=lambda i: keys[i].as_py()))


def fill(stream: Iterator[Any], rows: int, weigh: Callable[[Any], int]) -> list[Any]:
    """The next items of a stream, until there are `rows` of them or enough bytes.

    It takes few at first, as they may be large, then ever more.
    """
    batch: list[Any] = []
    size = 0
    while len(batch) < rows and size < BATCH_BYTES:
        items = list(islice(stream, min(len(batch) + _STEP, rows - len(batch))))
        if not items:
            break
        batch += items
        size += sum(map(weigh, items))
    return batch


def _extend(items: list[Item], stream: Iterator[Item], prefix: bytes) -> Iterator[Item]:
    """Read on while keys begin with `prefix`; returns the rest of the stream."""
    for item in stream:
        if not item[0].startswith(prefix):
            return chain([item], stream)
        items.append(item)
    return iter(())


def _run_end(key: bytes) -> bytes:
    """The greatest stored key that belongs in one batch with this one."""
    return key if len(key) < LONGEST else key[:PREFIX] + b"\xff" * DIGEST


def _key(item: Item) -> bytes:
    return item[0]


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
