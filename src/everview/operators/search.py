"""The search for groups that are among the first of members: their scores, their order, what they
add up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import Ints
from everview.functions.arithmetic import sums
from everview.functions.count import COUNT
from everview.functions.sum import SUM
from everview.operators.aggregate import AggregateOperator
from everview.operators.bags import whole
from everview.operators.boxes import Boxes, ranked
from everview.operators.contenders import LEAST, Pairs, Scored, contenders, in_boxes
from everview.operators.grouped_cells import DIGEST, ID, GroupRows
from everview.operators.members import intervals
from everview.operators.ranking import KEY, Ranking
from everview.operators.topk import SortKey
from everview.plan.nodes import FirstByMember
from everview.schema import Column

_MOST = 1 << 62  # that sums of 64 bits may add up to


@dataclass(frozen=True)
class Entries:
    """Groups that members keep: the number of each one's member, and rows of `KEY`, which ends with
    the digest of the group, and of sums."""

    members: Ints
    rows: pa.Table

    def __len__(self) -> int:
        return len(self.members)

    @classmethod
    def all_of(cls, parts: Sequence[Entries]) -> Entries:
        rows = pa.concat_tables([part.rows for part in parts]).combine_chunks()
        return cls(np.concatenate([part.members for part in parts]), rows)

    def ids(self) -> pa.BinaryArray:
        """The digests of the groups."""
        return pc.binary_slice(whole(self.rows[KEY]), -DIGEST)

    def take(self, places: Ints) -> Entries:
        return Entries(self.members[places], self.rows.take(pa.array(places)))

    def order(self) -> Ints:
        """The places by member, those of a member in their order."""
        order = pc.array_sort_indices(whole(self.rows[KEY])).to_numpy().astype(np.int64)
        result: Ints = order[np.argsort(self.members[order], kind="stable")]
        return result

    def sorted(self) -> Entries:
        return self.take(self.order())

    def of(self, members: Ints) -> Entries:
        """Those of other members, by place."""
        return Entries(members[self.members], self.rows)

    def added_up(self, numbers: Ints) -> Ints:
        """The sum of numbers up to each entry, of those of its member; entries are sorted."""
        total = np.cumsum(numbers)
        begins = np.searchsorted(self.members, self.members)
        result: Ints = total - total[begins] + numbers[begins] if len(total) else total
        return result

    def ends(self, most: int) -> tuple[np.ndarray, Ints]:
        """Which entries are among so many of their members; and the places of the last of these, of
        full members. Entries are sorted."""
        place = self.added_up(np.ones(len(self), np.int64))
        return place <= most, np.flatnonzero(place == most)


class Search:
    """Looks for the first groups of members."""

    def __init__(
        self, node: FirstByMember, keys: Sequence[Column], added: AggregateOperator
    ) -> None:
        self._node = node
        self._keys = [column.name for column in keys]
        self._added = added
        self._sums = [column.name for column in added.columns]
        self._entry = pa.schema(
            [pa.field(KEY, pa.binary()), *(pa.field(c.name, c.type) for c in added.columns)]
        )
        outputs = node.columns[len(node.by) + len(node.groups) :]
        self._calls = dict(zip((column.name for column in outputs), node.calls, strict=True))
        self._orders = [SortKey(node.column(order.column), order) for order in node.order]
        self._is_fixed = not any(order.column in self._calls for order in node.order)
        self._lead = self._lead_of(node)

    def _lead_of(self, node: FirstByMember) -> tuple[int, str, str | None] | None:
        """The sum that decides first: a sign, its column, and that of a count without which it is
        NULL. None if there is no such sum, or NULL comes before all values."""
        first = node.order[0] if node.order else None
        call = self._calls.get(first.column) if first else None
        if first is None or call is None or call.function not in ("sum", "count"):
            return None
        sign = 1 if first.descending else -1
        columns = {source: name for name, source in self._added.sources.items()}
        if call.argument is None:
            return sign, self._sums[0], None
        count = columns.get((call.argument, COUNT.name))
        if call.function == "count":
            return None if count is None else (sign, count, None)
        total = columns.get((call.argument, SUM.name))
        return None if first.nulls_first or total is None else (sign, total, count)

    def places(self, groups: GroupRows, members: Ranking) -> Ints:
        """The members that may keep some of the groups."""
        *_, pairs = self._pairs(groups, members, None)
        return np.unique(pairs.members)

    def entries(self, groups: GroupRows, members: Ranking, most: int) -> Entries:
        """The groups that members have to keep, sorted; of those of a member that come after so
        many others of them, some may be left out."""
        cells, boxes, pairs = self._pairs(groups, members, most)
        arrays = []
        for name in self._sums:
            column = whole(groups.cells[name])
            values = _summable(sums.whole_numbers(column))
            totals = in_boxes(cells, boxes, pairs, values)
            arrays.append(sums.from_whole_numbers(totals, column.type))
        added = pa.Table.from_arrays(arrays, names=self._sums)
        firsts = cells.begins[:-1][pairs.groups]
        rows = groups.cells.select([ID, *self._keys]).take(pa.array(firsts))
        keys = self._sort_keys(rows, added)
        table = pa.Table.from_arrays([keys, *added.columns], schema=self._entry)
        floors = members.floors.take(pa.array(pairs.members))
        stays = pc.less_equal(keys, floors).fill_null(True)
        chosen = np.flatnonzero(stays.to_numpy(zero_copy_only=False))
        return Entries(pairs.members, table).take(chosen).sorted()

    def results(self, groups: pa.Table, added: pa.Table) -> list[pa.Array]:
        """The results of calls for groups, from sums."""
        return self._added.calls_of(groups, added)

    def emptied(self, members: Ranking, some: Ints) -> Ranking:
        """Members of which some keep nothing, and so have no floor."""
        none = pa.nulls(len(some), pa.binary())
        return members.with_floors(some, none, np.full(len(some), LEAST))

    def with_floors(self, members: Ranking, last: Entries) -> Ranking:
        """Members with new floors: the last groups that they keep."""
        return members.with_floors(last.members, whole(last.rows[KEY]), self._scores(last.rows))

    def _scores(self, added: pa.Table) -> Ints:
        if self._lead is None:
            return np.full(len(added), LEAST)
        sign, total, count = self._lead
        values = sign * sums.whole_numbers(whole(added[total]))
        if values.dtype == object:
            values = np.clip(values, -_MOST, _MOST).astype(np.int64)
        if count is not None:
            values = np.where(added[count].to_numpy() > 0, values, LEAST)
        return values

    def _pairs(
        self, groups: GroupRows, members: Ranking, most: int | None
    ) -> tuple[Scored, list[tuple[int, Boxes]], Pairs]:
        places, boxes = [], []
        for number, sign in enumerate(self._node.signs):
            bounds = self._node.bounds_of(number)
            coordinates, box = intervals(groups.cells, members.rows, bounds)
            places.append(coordinates)
            boxes.append((sign, box))
        begins = np.searchsorted(groups.which, np.arange(groups.groups + 1))
        fixed, parts, counts, floors = None, None, None, members.scores
        if self._lead is not None:
            sign, total, count = self._lead
            values = sign * sums.whole_numbers(whole(groups.cells[total]))
            if values.dtype != object and _summable(values).dtype != object:
                parts = values
                counts = None if count is None else groups.cells[count].to_numpy()
        if parts is None:
            fixed, floors = self._fixed(groups, begins, members)
        rows = groups.cells[self._sums[0]].to_numpy()
        has = np.diff(begins) > 0
        firsts = np.append(begins[:-1][has], begins[-1:])
        cells = Scored(firsts, places, rows, fixed, parts, counts)
        if not len(members) or not len(cells):
            none = np.zeros(0, np.int64)
            return cells, boxes, Pairs(none, none, none)
        return cells, boxes, contenders(cells, boxes, floors, most)

    def _fixed(self, groups: GroupRows, begins: Ints, members: Ranking) -> tuple[Ints, Ints]:
        """Scores of groups that are the same for all members, and of floors: by their order, if
        that says it, else none is higher."""
        firsts = begins[:-1][np.diff(begins) > 0]
        if not self._is_fixed:
            return np.full(len(firsts), LEAST), np.full(len(members), LEAST)
        rows = groups.cells.select([ID, *self._keys]).take(pa.array(firsts))
        keys = self._sort_keys(rows, None)
        own, floors = ranked([keys, members.floors])
        return -own, np.where(floors >= 0, -floors, LEAST)

    def _sort_keys(self, rows: pa.Table, added: pa.Table | None) -> pa.BinaryArray:
        """The places of groups in the order, as bytes."""
        columns = {name: rows[name] for name in self._keys}
        if added is not None and self._calls:
            results = self.results(rows.select(self._keys), added)
            columns |= dict(zip(self._calls, results, strict=True))
        table = pa.table(columns)
        parts = [key.encode(table) for key in self._orders]
        return pc.binary_join_element_wise(*parts, whole(rows[ID]), b"")


def _summable(values: np.ndarray) -> np.ndarray:
    """Whole numbers whose sums fit: of 64 bits, or Python's."""
    if values.dtype != object and float(np.abs(values.astype(np.float64)).sum()) >= _MOST:
        return values.astype(object)
    return values
