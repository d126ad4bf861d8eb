"""Rows of many members of a family at once, and aggregates of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.plan.nodes.aggregates import Call
from everview.plan.nodes.base import Key, KeyOfTable, Node, part, renamed
from everview.plan.nodes.orders import Order
from everview.plan.placing import Distribution, as_it_lies, keyed
from everview.plan.sizes import GUESS, Flow, Rows, RowsOf, StateItems
from everview.plan.statistics import touched
from everview.schema import Column

ROWS = "rows"  # the sum that counts rows
_COMPARE = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


@part
@dataclass(frozen=True)
class Bound:
    """In a box of a member are the cells whose column compares with the member's own column so."""

    box: int
    column: str
    comparison: str
    member: str

    def __str__(self) -> str:
        return f"{self.column} {self.comparison} {self.member}"

    def holds(self, rows: pa.Table, member: Mapping[str, object]) -> np.ndarray:
        """Whether it holds, for each of some rows, as Arrow compares."""
        column = rows[self.column]
        value = pa.scalar(member[self.member], column.type)
        true: np.ndarray = _COMPARE[self.comparison](column, value).fill_null(False).to_numpy()
        return true


@part
@dataclass(frozen=True)
class CellSum:
    """The column of the cells with a sum: of all `ROWS`, or of the state that functions of an
    argument have by this name."""

    argument: str | None
    state: str
    column: str


class _InBoxes:
    """What nodes have in common whose members have the rows in boxes, counted with their signs."""

    signs: tuple[int, ...]
    bounds: tuple[Bound, ...]

    def bounds_of(self, box: int) -> list[Bound]:
        """The bounds of a box."""
        return [bound for bound in self.bounds if bound.box == box]

    def boxes_text(self) -> str:
        """All boxes, for people."""
        boxes = (" AND ".join(map(str, self.bounds_of(box))) for box in range(len(self.signs)))
        pairs = zip(self.signs, boxes, strict=True)
        return ", ".join(f"{'less ' * (sign < 0)}{box}" for sign, box in pairs)


@dataclass(frozen=True, eq=False, repr=False)
class ByMember(_InBoxes, Node):
    """Groups of rows for each member: those in its boxes, counted with the boxes' signs.

    The rows are added up already by their groups and by the columns that members compare: these
    sums are the cells. In a box are the cells that satisfy all its bounds. `by` are columns of the
    members; the output has them, then the groups, then a column for each call. With `each`, a
    member has its one row also if it has no cells.
    """

    kind = "by_member"
    is_operator = True
    cells: Node
    members: Node
    by: tuple[str, ...]
    groups: tuple[str, ...]
    signs: tuple[int, ...]
    bounds: tuple[Bound, ...]
    calls: tuple[Call, ...]
    arguments: tuple[Column, ...]
    sums: tuple[CellSum, ...]
    each: bool

    def label(self) -> str:
        groups = f", by ({', '.join(self.groups)})" if self.groups else ""
        calls = ", ".join(map(str, self.calls))
        return f"cells for each member where {self.boxes_text()}{groups}{': ' * bool(calls)}{calls}"

    def required_columns(self, needed: set[str]) -> set[str]:
        return set(self.cells.names())

    def unique_key(self, keys: Sequence[Key], key_of_table: KeyOfTable) -> Key:
        return (*self.by, *self.groups)

    def shards_by(self, distributions: Sequence[Distribution]) -> tuple[Distribution, ...]:
        by = keyed(self.cells.columns, distributions[0], self.groups)
        return by, (None if by else ())

    def expected_rows(self, below: Sequence[Rows]) -> float:
        cells, members = below
        return members.rows * (cells.distinct(self.groups) if self.groups else 1.0)

    def state_items(self) -> Iterator[StateItems]:
        copied = bool(self.groups)
        yield StateItems(self.cells, (), tuple(self.cells.names()))
        yield StateItems(self.members, (), tuple(self.members.names()), copied=copied)
        yield StateItems(self, (*self.by, *self.groups), value=8 + 16 * len(self.calls))

    def flow(self, below: Sequence[Flow], rows_of: RowsOf, shards: int) -> Flow:
        """Each change of a cell may concern every member, but a row of the output is changed once
        for all changes of its member and group."""
        cells, members = below
        rows = rows_of(self).rows
        hit = touched(cells.changes * max(rows_of(self.members).rows, 1.0), rows)
        hit += touched(members.changes, rows)
        rows_in = cells.rows + members.rows
        return Flow(2 * hit, hit, rows_in, hit + cells.changes, hit + rows_in)


@dataclass(frozen=True, eq=False, repr=False)
class Matches(Node):
    """Rows with the members that have them: those for which all bounds hold. It has the columns of
    the rows, then those of the members."""

    kind = "matches"
    is_operator = True
    rows: Node
    members: Node
    bounds: tuple[Bound, ...]

    def label(self) -> str:
        return f"rows of each member where {' AND '.join(map(str, self.bounds))}"

    def unique_key(self, keys: Sequence[Key], key_of_table: KeyOfTable) -> Key:
        of_rows, of_members = keys
        names = self.names()[len(self.rows.columns) :]
        key = renamed(of_members, dict(zip(self.members.names(), names, strict=True)))
        return None if of_rows is None or key is None else (*of_rows, *key)

    def only_grows(self) -> bool:
        return True

    def shards_by(self, distributions: Sequence[Distribution]) -> tuple[Distribution, ...]:
        return as_it_lies(self.rows.columns, distributions[0]), None

    def expected_rows(self, below: Sequence[Rows]) -> float:
        rows, members = below
        share = 1.0
        for bound in self.bounds:
            share *= 1 / rows.distinct([bound.column]) if bound.comparison == "=" else GUESS
        return rows.rows * members.rows * share

    def state_items(self) -> Iterator[StateItems]:
        yield StateItems(self.rows, (), tuple(self.rows.names()))
        yield StateItems(self.members, (), tuple(self.members.names()), copied=True)

    def flow(self, below: Sequence[Flow], rows_of: RowsOf, shards: int) -> Flow:
        """A row that changes is given to its members; a member that comes looks at all rows."""
        rows, members = below
        of_rows, of_members, out = rows_of(self.rows), rows_of(self.members), rows_of(self).rows
        of_row = rows.times(out / max(of_rows.rows, 1.0))
        output = of_row.with_rows_of(members.times(out / max(of_members.rows, 1.0)))
        reads = of_rows.rows if members.rows else 0.0
        rows_in = rows.rows + shards * members.rows
        return Flow(output.rows, output.changes, rows_in, reads, rows_in)


@dataclass(frozen=True, eq=False, repr=False)
class FirstByMember(_InBoxes, Node):
    """The first groups of each member in an order, after `offset` others; a digest breaks ties.

    As in `ByMember`, a member has the rows in its boxes, counted with the boxes' signs; but the
    rows are not added up before. The output has the columns `by` of the member, then the groups,
    then one for each call. With `each_row` a group is a row, and is there as often as the row.
    """

    kind = "first_by_member"
    is_operator = True
    rows: Node
    members: Node
    by: tuple[str, ...]
    groups: tuple[str, ...]
    signs: tuple[int, ...]
    bounds: tuple[Bound, ...]
    calls: tuple[Call, ...]
    arguments: tuple[Column, ...]
    order: tuple[Order, ...]
    limit: int
    offset: int
    each_row: bool

    def label(self) -> str:
        after = f" after {self.offset}" if self.offset else ""
        order = ", ".join(map(str, self.order))
        return f"top {self.limit}{after} for each member where {self.boxes_text()}, by ({order})"

    def required_columns(self, needed: set[str]) -> set[str]:
        return set(self.rows.names())

    def ordered_columns(self) -> Iterator[tuple[str, Column]]:
        yield from (("ORDER BY", self.column(by.column)) for by in self.order)

    def unique_key(self, keys: Sequence[Key], key_of_table: KeyOfTable) -> Key:
        if not self.each_row:
            return (*self.by, *self.groups)
        key = keys[0]
        return None if key is None else (*self.by, *key)

    def expected_rows(self, below: Sequence[Rows]) -> float:
        rows, members = below
        groups = rows.distinct(self.groups)
        return members.rows * min(float(self.limit), groups)

    def state_items(self) -> Iterator[StateItems]:
        yield StateItems(self.rows, (), tuple(self.rows.names()))
        yield StateItems(self.rows, self.groups, tuple(self.rows.names()))
        yield StateItems(self.members, (), tuple(self.members.names()))
        yield StateItems(self, self.by, value=64 * (2 * (self.limit + self.offset) + 6))

    def flow(self, below: Sequence[Flow], rows_of: RowsOf, shards: int) -> Flow:
        """A changed group is among the first of a member as likely as any other."""
        rows, members = below
        groups = max(rows_of(self.rows).distinct(self.groups), 1.0)
        hit = touched(rows.changes, groups)
        shown = rows_of(self).rows
        moved = touched(members.changes, max(rows_of(self.members).rows, 1.0)) * self.limit
        out = 2 * hit * shown / groups + moved
        rows_in = rows.rows + members.rows
        return Flow(out, out / 2, rows_in, hit + out, rows_in + hit + out)
