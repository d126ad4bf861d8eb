"""Writing a batch: encoded, split by region, each region's part in a transaction of its own.

Most parts are committed one by one, so that writers of other regions go on. But an observer may
still refuse the last part, and so may an append-only table: there all transactions are open until
every one has agreed; regions are taken in ascending order, which keeps writers from waiting in a
ring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType

import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import Ints, one_batch
from everview.codec.keys import regions_of
from everview.codec.rows import EncodedRows
from everview.errors import PartialWrite
from everview.finishing import finishing
from everview.stores.base import DELETE, PUT, Observer, Write, WriteReport
from everview.stores.embedded.layout import Layout
from everview.stores.embedded.observers import ask, tell
from everview.stores.embedded.region import Part, Region

CHUNK_ROWS = 16_384
CHUNK_BYTES = 32 << 20
Test = Callable[[lmdb.Transaction, Region], bool]


def split_rows(layout: Layout, rows: pa.Table) -> list[Part]:
    """Rows to put, encoded, by region; of several rows with one key the last."""
    keys, places = _sorted_distinct(layout.encode_keys(rows))
    if places is not None:
        rows = rows.take(pa.array(places))
    parts: dict[int, Part] = {}
    size = _chunk_rows(layout, rows)
    for start in range(0, len(keys), size):
        chunk = keys.slice(start, size)
        encoded = layout.rows.encode(one_batch(rows.slice(start, size)))
        for number, members in _by_region(layout, chunk):
            stored_keys, order = layout.stored_keys(chunk.take(pa.array(members)))
            part = parts.setdefault(number, Part(PUT, number, []))
            part.pieces.append((stored_keys, EncodedRows(encoded.take(pa.array(members[order])))))
    return [parts[number] for number in sorted(parts)]


def split_keys(layout: Layout, keys: pa.BinaryArray) -> list[Part]:
    """Keys to delete, by region."""
    keys, _ = _sorted_distinct(keys)
    return [
        Part(DELETE, number, [(layout.stored_keys(keys.take(pa.array(members)))[0], None)])
        for number, members in _by_region(layout, keys)
    ]


def split_lookup(layout: Layout, keys: pa.BinaryArray) -> Iterator[tuple[int, list[bytes], Ints]]:
    """Keys to look up: region, stored keys in order, and where each stands in the request."""
    order = pc.array_sort_indices(keys)
    keys, places = keys.take(order), order.to_numpy().astype(np.int64)
    for number, members in _by_region(layout, keys):
        stored_keys, stored_order = layout.stored_keys(keys.take(pa.array(members)))
        yield number, stored_keys, places[members[stored_order]]


def _sorted_distinct(keys: pa.BinaryArray) -> tuple[pa.BinaryArray, Ints | None]:
    """The keys in order, each once, and where its last came from; None if nothing moved."""
    if len(keys) < 2 or pc.all(pc.less(keys[:-1], keys[1:])).as_py():
        return keys, None
    order = pc.array_sort_indices(keys)
    keys, places = keys.take(order), order.to_numpy().astype(np.int64)
    last = np.append(pc.not_equal(keys[:-1], keys[1:]).to_numpy(zero_copy_only=False), True)
    return keys.filter(pa.array(last)), places[last]


def _by_region(layout: Layout, keys: pa.BinaryArray) -> Iterator[tuple[int, Ints]]:
    regions = regions_of(keys, layout.schema.regions)
    for number in np.unique(regions).tolist():
        yield number, np.flatnonzero(regions == number)


def _chunk_rows(layout: Layout, rows: pa.Table) -> int:
    """Few enough to stay in the cache, enough for each region, bounded in bytes."""
    most_rows = CHUNK_ROWS * max(1, layout.schema.regions // 4)
    row_bytes: int = rows.nbytes // max(1, rows.num_rows) + 1
    return max(1, min(most_rows, CHUNK_BYTES // row_bytes))


class Writer:
    """One write: applies parts, asks and tells observers, reports."""

    def __init__(
        self,
        layout: Layout,
        open_region: Callable[[Layout, int], Region],
        observers: Sequence[Observer],
        test: Test | None = None,
    ) -> None:
        self._layout = layout
        self._open_region = open_region
        self._observers = observers
        self._test = test
        self._committed: dict[int, list[Write]] = {}

    def write(self, parts: list[Part]) -> WriteReport:
        is_atomic = self._observers or self._layout.schema.append_only
        try:
            with finishing():
                for group in [parts] if is_atomic else [[part] for part in parts]:
                    self._commit_together(group)
        except Exception as error:
            applied = _last_sequences(write for part in self._committed.values() for write in part)
            if applied:
                raise self._partial(error, applied) from error
            raise
        writes = [write for region_writes in self._committed.values() for write in region_writes]
        for region in {write.region for write in writes}.difference(_last_sequences(writes)):
            self._open_region(self._layout, region).environment.confirm()
        tell(self._observers, writes)
        return WriteReport(
            rows=sum(len(write.sequences) for write in writes),
            sequences=_last_sequences(writes),
            unchanged=sum(write.unchanged_rows for write in writes),
        )

    def _commit_together(self, parts: list[Part]) -> None:
        """Commit parts together, making room in a map that is full."""
        remaining = parts
        while remaining:
            opened_regions: list[Region] = []
            try:
                self._try(remaining, opened_regions)
            except lmdb.MapFullError:
                opened_regions[-1].environment.grow()
            remaining = [part for part in remaining if part.region not in self._committed]

    def _try(self, parts: list[Part], opened_regions: list[Region]) -> None:
        regions = [self._open_region(self._layout, part.region) for part in parts]
        with ExitStack() as commits:
            for region in regions:  # before the first transaction, which makes other writers wait
                commits.enter_context(region.environment.awake())
            for part, region in zip(parts, regions, strict=True):
                opened_regions.append(region)
                writes: list[Write] = []
                commits.push(partial(self._note, part.region, writes))
                txn = commits.enter_context(region.environment.writing())
                if self._test is not None and not self._test(txn, region):
                    continue
                for write in region.write(txn, part, equal_too=self._test is not None):
                    ask(self._observers, write)
                    writes.append(write)

    def _note(
        self,
        region: int,
        writes: list[Write],
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Runs when the region's transaction has ended: in a commit unless there is an error."""
        if kind is None:
            self._committed[region] = writes

    def _partial(self, error: Exception, applied: dict[int, int]) -> PartialWrite:
        regions = ", ".join(map(str, sorted(applied)))
        return PartialWrite(
            f"table {self._layout.schema.name}: the rows of region {regions} are written and stay, "
            f"the other rows of this write are not: {error}. Repeat the write to complete it.",
            applied,
        )


def _last_sequences(writes: Iterable[Write]) -> dict[int, int]:
    """The last sequence in each region that was changed."""
    return {write.region: write.sequences[-1] for write in writes if write.sequences}
