"""Rows with the members of a family that have them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from everview.codec.buffers import Ints
from everview.delta import WEIGHT, weighted
from everview.operators.bags import BagRows
from everview.operators.base import Operator
from everview.operators.cells import Cells
from everview.operators.members import StoredMembers, intervals, may_have
from everview.plan.nodes import Matches
from everview.schema import Column
from everview.state import State

MOST_PAIRS = 1 << 22  # that are looked at together


class MatchesOperator(Operator):
    """Join rows with members by comparisons.

    The values of a column and what members compare with it are sorted once, so the place of a row
    among them says which members it may have; the other comparisons are asked for those only.

    Law:   sum of outputs == rows times members for which all bounds hold.
    State: the rows, in blocks as cells are; the members, in one value.
    Cost:  a few writes for each changed row, and one look at each pair for which the comparisons
           of the most selective column hold. Members that come or go read the chunks of rows that
           they may have.
    """

    kind = Matches.kind

    def __init__(self, node: Matches) -> None:
        self._node = node
        columns = node.rows.columns
        ordered = list(dict.fromkeys(bound.column for bound in node.bounds))
        count = Column(WEIGHT, pa.int64(), False)
        self._rows = Cells(columns, [count], WEIGHT, ordered, BagRows(columns).encode)
        self._members = StoredMembers(node.members.columns)
        self._output = pa.schema([pa.field(c.name, c.type) for c in node.columns])

    def apply(self, inputs: list[pa.Table], state: State) -> pa.Table:
        rows = self._rows.counts_of(inputs[0])
        moved = self._members.move(inputs[1], state)
        parts = list(self._pairs(rows, moved.before, np.ones(moved.before.num_rows, np.int64)))
        self._rows.add(rows, state)
        if len(moved.weights):
            stored = self._rows.read(state, lambda *ends: self._may_have(moved.rows, *ends))
            parts += self._pairs(stored, moved.rows, moved.weights)
        return pa.concat_tables([weighted(self._output.empty_table(), 0), *parts])

    def _may_have(
        self, members: pa.Table, column: str, least: pa.Array, greatest: pa.Array
    ) -> np.ndarray:
        bounds = [bound for bound in self._node.bounds if bound.column == column]
        return may_have(least, greatest, members, bounds)

    def _pairs(self, rows: pa.Table, members: pa.Table, signs: np.ndarray) -> Iterator[pa.Table]:
        """The rows of each member, in parts, with the count of the row times the sign of the
        member as the weight."""
        if not len(rows) or not len(members):
            return
        coordinates, boxes = intervals(rows, members, self._node.bounds)
        orders = [np.argsort(places, kind="stable") for places in coordinates]
        ends = [
            np.searchsorted(places[order], np.stack([low, high]))
            for places, order, low, high in zip(
                coordinates, orders, boxes.lows, boxes.highs, strict=True
            )
        ]
        first = int(np.argmin([np.sum(stop - start) for start, stop in ends]))
        weights = rows[WEIGHT].to_numpy()
        start, stop = ends[first]
        for some in _in_parts(stop - start):
            row, member = _ranges(start[some], stop[some])
            row, member = orders[first][row], some[member]
            inside = np.ones(len(row), np.bool_)
            for places, low, high in zip(coordinates, boxes.lows, boxes.highs, strict=True):
                inside &= (places[row] >= low[member]) & (places[row] < high[member])
            row, member = row[inside], member[inside]
            columns = rows.drop_columns(WEIGHT).take(pa.array(row)).columns
            columns = [*columns, *members.take(pa.array(member)).columns]
            pairs = pa.Table.from_arrays(columns, schema=self._output)
            yield weighted(pairs, weights[row] * signs[member])


def _in_parts(sizes: Ints) -> Iterator[Ints]:
    """The places of sizes that are not 0, in parts that have not too much together."""
    places = np.flatnonzero(sizes)
    if len(places):
        parts = np.cumsum(sizes[places]) // MOST_PAIRS
        yield from np.split(places, np.flatnonzero(np.diff(parts)) + 1)


def _ranges(start: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """All numbers from each start to before its stop, and the place of that start."""
    sizes = stop - start
    which = np.repeat(np.arange(len(sizes)), sizes)
    before = np.cumsum(sizes) - sizes
    return np.arange(int(sizes.sum())) - before[which] + start[which], which
