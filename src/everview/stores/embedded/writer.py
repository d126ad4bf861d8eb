"""Writing a batch: each region's part in a transaction of its own.

Without observers the parts are committed one by one, so that writers of other regions go on. An
observer may still refuse the last part, so with observers all transactions are open until every
one has agreed; regions are taken in ascending order, which keeps writers from waiting in a ring.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType

import lmdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.keys import regions_of
from everview.errors import PartialWrite
from everview.stores.base import Observer, Write, WriteReport
from everview.stores.embedded.layout import Layout
from everview.stores.embedded.observers import ask, tell
from everview.stores.embedded.region import Part, Region

CHUNK_ROWS = 16_384
CHUNK_BYTES = 32 << 20
GET = "get"
Test = Callable[[lmdb.Transaction, Region], bool]


def split(
    layout: Layout, op: str, keys: pa.BinaryArray, rows: pa.Table | None = None
) -> list[Part]:
    """A batch by region, each part in key order; for a write, only the last row of each key."""
    places = np.arange(len(keys), dtype=np.int64)
    if not _ascending(keys):
        order = pc.array_sort_indices(keys)
        keys, places = keys.take(order), order.to_numpy().astype(np.int64)
        if op != GET:
            last = np.append(_differs(keys), True)
            keys, places = keys.filter(pa.array(last)), places[last]
    regions = regions_of(keys.to_pylist(), layout.schema.regions)
    parts = []
    for number in np.unique(regions).tolist():
        mine = np.flatnonzero(regions == number)
        stored, order = layout.stored_keys(keys.take(pa.array(mine)))
        parts.append(Part(op, number, stored, places[mine[order]], rows))
    return parts


def _ascending(keys: pa.BinaryArray) -> bool:
    return len(keys) < 2 or bool(pc.all(pc.less(keys[:-1], keys[1:])).as_py())


def _differs(keys: pa.BinaryArray) -> npt.NDArray[np.bool_]:
    """Which keys differ from the next one."""
    found: npt.NDArray[np.bool_] = pc.not_equal(keys[:-1], keys[1:]).to_numpy(zero_copy_only=False)
    return found


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
        try:
            for group in [parts] if self._observers else [[part] for part in parts]:
                self._together(group)
        except Exception as error:
            if self._committed:
                raise self._partial(error) from error
            raise
        writes = [write for written in self._committed.values() for write in written]
        tell(self._observers, writes)
        return WriteReport(
            rows=sum(len(write.sequences) for write in writes),
            sequences={write.region: write.sequences[-1] for write in writes},
        )

    def _together(self, parts: list[Part]) -> None:
        """Commit parts together, making room in a map that is full."""
        waiting = parts
        while waiting:
            writing: list[Region] = []
            try:
                self._try(waiting, writing)
            except lmdb.MapFullError:
                writing[-1].environment.grow()
            waiting = [part for part in waiting if part.region not in self._committed]

    def _try(self, parts: list[Part], writing: list[Region]) -> None:
        with ExitStack() as commits:
            for part in parts:
                region = self._open_region(self._layout, part.region)
                writing.append(region)
                writes: list[Write] = []
                commits.push(partial(self._note, part.region, writes))
                txn = commits.enter_context(region.environment.writing())
                if self._test is not None and not self._test(txn, region):
                    continue
                for write in region.write(txn, part, _chunk_rows(part)):
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

    def _partial(self, error: Exception) -> PartialWrite:
        applied = {
            region: writes[-1].sequences[-1] for region, writes in self._committed.items() if writes
        }
        return PartialWrite(
            f"table {self._layout.schema.name}: regions {sorted(applied)} were written, then: "
            f"{error} No other region was changed; the same write again completes it.",
            applied,
        )


def _chunk_rows(part: Part) -> int:
    if part.rows is None or part.rows.num_rows == 0:
        return CHUNK_ROWS
    row_bytes: int = part.rows.nbytes // part.rows.num_rows + 1
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // row_bytes))
