"""Aggregates of many members at once: from cells, each of which serves all members that have it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from everview.codec.groups import GroupCodec
from everview.delta import weighted
from everview.functions.arithmetic import sums
from everview.operators.aggregate import AggregateOperator
from everview.operators.bags import numbered, whole
from everview.operators.base import Operator
from everview.operators.boxes import Boxes, Points, sums_in_boxes
from everview.operators.cells import Cells
from everview.operators.members import FEW, StoredMembers, had_by, intervals, may_have
from everview.plan.nodes import Aggregate, ByMember, Constant
from everview.plan.nodes.members import ROWS
from everview.state import State


class ByMemberOperator(Operator):
    """Keep the cells, the members, and for each member and group what an aggregate keeps.

    A member has the cells in a box: an interval of each column that it compares. So a delta of
    cells is added up for all members together.

    Law:   sum of outputs == for each member the aggregate of the cells that satisfy its bounds.
    State: the cells, in blocks; the members, in one value; (member, group) -> counts and sums.
    Cost:  a few writes for each changed cell; one read and one write for each member and group
           that a changed cell concerns. Members that come or go read the chunks of cells that
           they may have, once for all of them, and write all members.
    """

    kind = ByMember.kind

    def __init__(self, node: ByMember) -> None:
        self._node = node
        values = {one.column: node.cells.column(one.column) for one in node.sums}
        own_keys = [column for column in node.cells.columns if column.name not in values]
        (rows,) = (one.column for one in node.sums if one.state == ROWS)
        self._cells = Cells(own_keys, list(values.values()), rows, _compared_in_all(node))
        self._members = StoredMembers(node.members.columns)
        self._groups = GroupCodec([node.cells.column(name) for name in node.groups])
        keys = node.columns[: len(node.by) + len(node.groups)]
        below = Constant((*keys, *node.arguments), ())
        names = tuple(column.name for column in keys)
        self._totals = AggregateOperator(Aggregate(node.columns, below, names, node.calls))
        self._columns = {(one.argument, one.state): one.column for one in node.sums}
        self._output = pa.schema([pa.field(c.name, c.type) for c in node.columns])

    def apply(self, inputs: list[pa.Table], state: State) -> pa.Table:
        numbers = self._cells.numbers_of(inputs[0])
        self._cells.add(numbers, state)
        moved = self._members.move(inputs[1], state)
        parts, exists = [], []
        if len(numbers) and moved.before.num_rows:
            part, places = self._added_up(numbers, moved.before)
            parts.append(part)
            exists.append(moved.stays[places])
        if len(moved.weights):
            cells = self._cells.read(state, partial(self._may_have, moved.rows))
            if len(moved.rows) <= FEW:
                boxes = list(map(self._node.bounds_of, range(len(self._node.signs))))
                cells = had_by(cells, moved.rows, boxes)
            part, places = self._added_up(cells, moved.rows, moved.weights)
            parts.append(part)
            exists.append((moved.weights > 0)[places])
        if not sum(map(len, exists)):
            return weighted(self._output.empty_table(), 0)
        has_row = np.concatenate(exists) if self._node.each else None
        return self._totals.add(pa.concat_tables(parts), state, has_row)

    def _added_up(
        self,
        cells: pa.Table,
        members: pa.Table,
        signs: np.ndarray | None = None,
    ) -> tuple[pa.Table, np.ndarray]:
        """The sums of cells for each member and group, as the aggregate takes them, and the place
        of each sum's member. With `signs`, those of a member are multiplied by its sign, and each
        member has a sum even over nothing if it has a row for that."""
        numbers, first = self._numbered(cells)
        of_cells = [
            sums.whole_numbers(whole(cells[self._column_of(source)]))
            for source in self._totals.sources.values()
        ]
        chosen, groups, values = [], [], [list[np.ndarray]() for _ in of_cells]
        for box, sign in enumerate(self._node.signs):
            points, boxes = self._placed(cells, numbers, of_cells, members, box)
            for part in sums_in_boxes(points, boxes):
                chosen.append(part.boxes)
                groups.append(part.groups)
                for column, some in zip(values, part.values, strict=True):
                    column.append(some * sign)
        if signs is not None and self._node.each:
            chosen.append(np.arange(members.num_rows))
            groups.append(np.zeros(members.num_rows, np.int64))
            for column in values:
                column.append(np.zeros(members.num_rows, np.int64))
        which = np.concatenate([*chosen, np.zeros(0, np.int64)])
        of_members = members.take(pa.array(which)).select(self._node.by)
        of_groups = first.take(pa.array(np.concatenate([*groups, np.zeros(0, np.int64)])))
        arrays = [*of_members.columns, *of_groups.columns]
        for column, source in zip(values, self._totals.sources.values(), strict=True):
            totals = np.concatenate([*column, np.zeros(0, np.int64)])
            totals = totals if signs is None else totals * signs[which]
            arrays.append(sums.from_whole_numbers(totals, self._type_of(source)))
        names = [*self._node.by, *self._node.groups, *self._totals.sources]
        return pa.table(arrays, names), which

    def _may_have(
        self, members: pa.Table, column: str, least: pa.Array, greatest: pa.Array
    ) -> np.ndarray:
        """Which chunks, with these ends of their values, may have cells of some members."""
        of_each = [
            [bound for bound in self._node.bounds_of(box) if bound.column == column]
            for box in range(len(self._node.signs))
        ]
        found = np.zeros(len(least), np.bool_)
        for bounds in of_each:
            found |= may_have(least, greatest, members, bounds)
        return found

    def _type_of(self, source: tuple[str | None, str]) -> pa.DataType:
        return self._node.cells.column(self._column_of(source)).type

    def _column_of(self, source: tuple[str | None, str]) -> str:
        argument, state = source
        return self._columns[argument, ROWS if argument is None else state]

    def _numbered(self, cells: pa.Table) -> tuple[np.ndarray, pa.Table]:
        """The number of each cell's group, and a row for each number."""
        numbers, first = numbered(self._groups.encode(cells))
        return numbers, cells.select(list(self._node.groups)).take(pa.array(first))

    def _placed(
        self,
        cells: pa.Table,
        numbers: np.ndarray,
        values: Sequence[np.ndarray],
        members: pa.Table,
        box: int,
    ) -> tuple[Points, Boxes]:
        """Cells as points, and the boxes of members. A cell with a NULL that is compared is in
        none."""
        coordinates, boxes = intervals(cells, members, self._node.bounds_of(box))
        points = Points(coordinates, numbers, values)
        known = np.all([places >= 0 for places in coordinates], axis=0)
        return (points if known.all() else points.take(known)), boxes


def _compared_in_all(node: ByMember) -> list[str]:
    """The columns of cells that every box compares."""
    of_each = [{bound.column for bound in node.bounds_of(box)} for box in range(len(node.signs))]
    return sorted(set.intersection(*of_each))
