"""ORDER BY with LIMIT: the first rows in an order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec import KeyCodec
from everview.codec.buffers import binary_array, data_of, offsets_of
from everview.delta import weighted
from everview.errors import Damaged
from everview.operators.bags import Bagged, BagRows, bagged
from everview.operators.base import Operator
from everview.plan.nodes import Order, TopK
from everview.schema import Column, is_variable
from everview.state import ORDERED_BYTES, State

_EMPTY = pa.scalar(b"", pa.binary())
Entry = tuple[bytes, int]  # a row, and how often it is there


class TopKOperator(Operator):
    """Keep all rows in order and give the first k; rows that tie come in the order of their bytes.

    Law:   sum of outputs == the first k of (sum of inputs).
    State: sort key -> rows; if no row ever goes, only the first k.
    Cost:  one write for each changed row, and k rows read twice.
    """

    kind = TopK.kind

    def __init__(self, node: TopK) -> None:
        self._limit = node.limit
        self._offset = node.offset
        self._growing = node.growing
        self._names = node.names()
        self._keys = [SortKey(node.column(order.column), order) for order in node.order]
        self._rows = BagRows(node.columns)

    def apply(self, inputs: list[pa.Table], state: State) -> pa.Table:
        (delta,) = inputs
        before = self._first(state)
        if self._growing:
            self._keep_first(delta, state)
        else:
            self._bagged(delta).change(state)
        after = self._first(state)
        went = weighted(*before)
        came = weighted(*after)
        return pa.concat_tables([negative(went), came])

    def _bagged(self, delta: pa.Table) -> Bagged:
        return bagged(delta, self._key(delta), self._rows.encode(delta))

    def _keep_first(self, delta: pa.Table, state: State) -> None:
        """Add rows to the stored ones, and delete those that are no longer among the first."""
        room = self._offset + self._limit
        added = self._bagged(delta)
        if np.any(added.weights < 0):
            raise Damaged("a row has gone of tables of which none ever goes")
        last = int(np.searchsorted(np.cumsum(added.weights), room))
        if last < len(added.keys):  # rows after the key of the last can't be among the first
            first = np.zeros(len(added.unique), np.bool_)
            first[: added.which[last] + 1] = True
            added = added.under(first)
        added.change(state)
        rows, surplus = [], []
        for row, count in list(self._ordered(state)):
            within = min(count, room)
            room -= within
            if count > within:
                rows.append(row)
                surplus.append(within - count)
        if rows:
            self._bagged(weighted(self._rows.decode(rows), np.array(surplus))).change(state)

    def _key(self, rows: pa.Table) -> pa.BinaryArray:
        if not self._keys:
            return pa.array([b"\0"] * rows.num_rows, pa.binary())
        return sort_keys(rows, self._keys)

    def _first(self, state: State) -> tuple[pa.Table, np.ndarray]:
        """The first rows after the offset, and how often each occurs among them."""
        first = list(first_of(self._ordered(state), self._offset, self._limit))
        rows, counts = zip(*first, strict=True) if first else ((), ())
        return self._rows.decode(list(rows)), np.array(counts, np.int64)

    def _ordered(self, state: State) -> Iterator[Entry]:
        """The stored rows in order, and how often each occurs."""
        return in_order(state.scan_bags(), lambda rows: self._key(self._rows.decode(rows)))


def first_of(entries: Iterable[Entry], offset: int, limit: int) -> Iterator[Entry]:
    """The first rows after an offset, and how often each occurs among them."""
    skip, room = offset, limit
    for row, count in entries:
        if room <= 0:
            break
        skipped = min(count, skip)
        skip -= skipped
        if count > skipped:
            yield row, min(count - skipped, room)
            room -= count - skipped


def in_order(
    entries: Iterable[tuple[bytes, bytes, int]], keys_of: Callable[[list[bytes]], pa.BinaryArray]
) -> Iterator[Entry]:
    """Stored rows under sort keys, in the order of their whole keys: `keys_of` has these, where
    stored ones are cut."""
    for key, tied in groupby(entries, lambda entry: entry[0][:ORDERED_BYTES]):
        same = ((row, count) for _, row, count in tied)
        if len(key) < ORDERED_BYTES:
            yield from same
            continue
        cut = list(same)
        keys = keys_of([row for row, _ in cut]).to_pylist()
        yield from (entry for _, entry in sorted(zip(keys, cut, strict=True)))


def sort_keys(rows: pa.Table, keys: Sequence[SortKey]) -> pa.BinaryArray:
    """The places of rows in an order, as bytes."""
    if not keys:
        return pa.repeat(pa.scalar(b"", pa.binary()), len(rows))
    return pc.binary_join_element_wise(*(key.encode(rows) for key in keys), _EMPTY)


class SortKey:
    """One column as bytes that sort in its order."""

    def __init__(self, column: Column, order: Order) -> None:
        self._name = order.column
        self._descending = order.descending
        self._null, self._not_null = (b"\0", b"\1") if order.nulls_first else (b"\1", b"\0")
        self._codec = KeyCodec([column])

    def encode(self, rows: pa.Table) -> pa.BinaryArray:
        array = rows[self._name].combine_chunks()
        marks = pc.if_else(
            array.is_valid(),
            pa.scalar(self._not_null, pa.binary()),
            pa.scalar(self._null, pa.binary()),
        )
        if array.null_count and is_variable(array.type):
            array = array.fill_null("" if array.type == pa.string() else b"")
        encoded = self._codec.encode([array])
        if self._descending and len(encoded):
            offsets = offsets_of(encoded)
            encoded = binary_array(~data_of(encoded)[: offsets[-1]], offsets)
        return pc.binary_join_element_wise(marks, encoded, _EMPTY)


def negative(delta: pa.Table) -> pa.Table:
    return weighted(delta.select(delta.column_names[:-1]), -delta.columns[-1].to_numpy())
