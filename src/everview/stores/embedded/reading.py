"""Reading tables: what the store and its pins have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import Ints
from everview.codec.keys import region_of
from everview.codec.point import encode_key
from everview.codec.rows import join, version_of
from everview.intake import keys_to_arrow
from everview.schema import TableSchema
from everview.stores.base import (
    BATCH_ROWS,
    DELETE,
    PUT,
    LogRange,
    Reader,
    RegionStatus,
    change_schema,
)
from everview.stores.embedded import sampling
from everview.stores.embedded.layout import Layout, stored_key
from everview.stores.embedded.region import Region, in_pieces, locating, with_location
from everview.stores.embedded.scan import Scan, merge
from everview.stores.embedded.writer import split_lookup

_OPS = pa.array([DELETE, PUT])
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class EmbeddedReader(Reader):
    """Reads of tables; subclasses open the regions."""

    @abstractmethod
    def _layout(self, table: str, to_write: bool = False) -> Layout:
        """The table as it is defined. Raises `TableNotFound`."""

    @abstractmethod
    def _region(self, layout: Layout, number: int) -> Region:
        """A region of a table, open."""

    def _all_regions(self, layout: Layout) -> list[Region]:
        return [self._region(layout, number) for number in range(layout.schema.regions)]

    def describe(self, table: str) -> TableSchema:
        return self._layout(table).schema

    def status(self, table: str) -> list[RegionStatus]:
        return [_status(region) for region in self._all_regions(self._layout(table))]

    def get(
        self, table: str, keys: pa.Table, columns: Sequence[str] | None = None
    ) -> tuple[pa.Table, pa.Array]:
        layout = self._layout(table)
        positions = layout.schema.positions(columns)
        batches, places = [], [np.zeros(0, np.int64)]
        for number, stored_keys, request_places in split_lookup(layout, layout.encode_keys(keys)):
            region = self._region(layout, number)
            with region.environment.reading() as txn:
                items = region.get_many(txn, stored_keys)
            if items:
                for piece in in_pieces(items):
                    with locating(region):
                        arrays = layout.rows.decode(*join([row for _, row in piece]), positions)
                    batches.append(layout.batch(arrays, positions))
                places.append(_places_of_items(stored_keys, request_places, items))
        rows = pa.Table.from_batches(batches, layout.arrow(positions))
        order = np.concatenate(places)
        inverse = np.argsort(order, kind="stable")
        return rows.take(pa.array(inverse)), pa.array(order[inverse])

    def get_row(
        self, table: str, key: Any, columns: Sequence[str] | None = None
    ) -> dict[str, Any] | None:
        layout = self._layout(table)
        positions = layout.schema.positions(columns)
        whole_key = encode_key(layout.schema.key_columns, key if isinstance(key, tuple) else (key,))
        if whole_key is None:
            whole_key = layout.encode_keys(keys_to_arrow(layout.schema, [key]))[0].as_py()
        region = self._region(layout, region_of(whole_key, layout.schema.regions))
        with region.environment.reading() as txn:
            row = region.get(txn, stored_key(whole_key))
        if row is None:
            return None
        with locating(region):
            values = layout.rows.decode_row(row, sorted({*positions, *layout.key_positions}))
        row_key = [values[name] for name in layout.schema.key]
        if encode_key(layout.schema.key_columns, row_key) != whole_key:
            region.check_keys([(stored_key(whole_key), row)])
        names = layout.schema.names
        return {names[position]: values[names[position]] for position in positions}

    def version(self, table: str, key: pa.Table) -> int:
        layout = self._layout(table)
        whole_key = layout.encode_keys(key)[0].as_py()
        region = self._region(layout, region_of(whole_key, layout.schema.regions))
        with region.environment.reading() as txn:
            return version_of(region.get_checked(txn, stored_key(whole_key)))

    def scan(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        start: tuple[Any, ...] | None = None,
        stop: tuple[Any, ...] | None = None,
        region: int | None = None,
        batch_rows: int = BATCH_ROWS,
        ordered: bool = True,
        at: Mapping[int, int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        layout = self._layout(table)
        regions = self._all_regions(layout) if region is None else [self._region(layout, region)]
        ordered = ordered and len(regions) > 1
        bounds = layout.bound(start), layout.bound(stop)
        scan = Scan(layout, columns, where, *bounds, batch_rows, keyed=ordered)
        layout.schema.positions(columns)
        streams = [
            scan.region(open_region, None if at is None else at[open_region.number])
            for open_region in regions
        ]
        return merge(streams, batch_rows) if ordered else chain.from_iterable(streams)

    def sample(self, table: str, columns: Sequence[str]) -> pa.Table:
        """Some rows of a table, as `sampling.sample` has them."""
        return sampling.sample(self._all_regions(self._layout(table)), columns)

    def log(self, table: str) -> dict[int, LogRange]:
        ranges = {}
        for region in self._all_regions(self._layout(table)):
            with region.environment.reading() as txn:
                ranges[region.number] = region.log_range(txn)
        return ranges

    def positions_at(self, table: str, time: int) -> dict[int, int]:
        positions = {}
        for region in self._all_regions(self._layout(table)):
            with region.environment.reading() as txn:
                positions[region.number] = region.last_at(txn, time)
        return positions

    def bytes_of_changes(self, table: str, region: int, after: int, upto: int) -> float:
        """About how many bytes each of these changes has."""
        open_region = self._region(self._layout(table), region)
        with open_region.environment.reading() as txn:
            return open_region.mean_bytes(txn, after, upto)

    def times_after(self, table: str, after: Mapping[int, int]) -> dict[int, datetime]:
        times = {}
        for region in self._all_regions(self._layout(table)):
            with region.environment.reading() as txn:
                time = region.time_after(txn, after.get(region.number, 0))
            if time is not None:
                times[region.number] = _EPOCH + timedelta(microseconds=time)
        return times

    def changes(
        self,
        table: str,
        region: int,
        after: int = 0,
        upto: int | None = None,
        columns: Sequence[str] | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        layout = self._layout(table)
        open_region, positions = self._region(layout, region), layout.schema.positions(columns)
        schema = change_schema(layout.schema, columns)
        with open_region.environment.reading() as txn:
            for images in with_location(
                open_region, open_region.changes(txn, after, upto, batch_rows)
            ):
                arrays = [
                    pa.array(np.full(len(images), region, np.int32)),
                    pa.array(images.sequences),
                    pa.array(images.times).cast(schema.field("time").type),
                    _OPS.take(pa.array((images.after_lengths > 0).astype(np.int8))),
                    images.before(layout.rows, positions),
                    images.after(layout.rows, positions),
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _status(region: Region) -> RegionStatus:
    with region.environment.reading() as txn:
        return RegionStatus(
            region=region.number,
            rows=region.count(txn),
            log=region.log_range(txn),
            bytes=region.environment.file.size_on_disk,
            consumers=region.consumers(txn),
        )


def _places_of_items(keys: list[bytes], places: Ints, items: list[tuple[bytes, bytes]]) -> Ints:
    """The places of the keys that have an item."""
    if len(items) == len(keys):
        return places
    stored_keys = {key for key, _ in items}
    return places[np.fromiter((key in stored_keys for key in keys), np.bool_, len(keys))]
