"""ORDER BY with LIMIT: the first rows in an order."""

from __future__ import annotations

from collections.abc import Iterator
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
        self._keys = [_SortKey(node.column(order.column), order) for order in node.order]
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
        return pa.concat_tables([_negative(went), came])

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
        return pc.binary_join_element_wise(*(key.encode(rows) for key in self._keys), _EMPTY)

    def _first(self, state: State) -> tuple[pa.Table, np.ndarray]:
        """The first rows after the offset, and how often each occurs among them."""
        rows: list[bytes] = []
        counts: list[int] = []
        skip, room = self._offset, self._limit
        for row, count in self._ordered(state):
            if room <= 0:
                break
            skipped = min(count, skip)
            skip -= skipped
            if count > skipped:
                rows.append(row)
                counts.append(min(count - skipped, room))
                room -= count - skipped
        return self._rows.decode(rows), np.array(counts, np.int64)

    def _ordered(self, state: State) -> Iterator[tuple[bytes, int]]:
        """The stored rows in order, and how often each occurs."""
        for key, tied in groupby(state.scan_bags(), lambda entry: entry[0][:ORDERED_BYTES]):
            entries = ((row, count) for _, row, count in tied)
            is_long = len(key) == ORDERED_BYTES
            yield from self._sorted(list(entries)) if is_long else entries

    def _sorted(self, entries: list[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
        """Rows whose stored keys are cut, in the order of their whole keys."""
        keys = self._key(self._rows.decode([row for row, _ in entries])).to_pylist()
        return [entry for _, entry in sorted(zip(keys, entries, strict=True))]


class _SortKey:
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


def _negative(delta: pa.Table) -> pa.Table:
    return weighted(delta.select(delta.column_names[:-1]), -delta.columns[-1].to_numpy())
