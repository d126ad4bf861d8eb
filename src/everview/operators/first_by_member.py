"""The first groups of each member in an order, for many members at once."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import Ints, fixed_binary
from everview.delta import weighted
from everview.operators.aggregate import AggregateOperator
from everview.operators.bags import BagRows, numbered, whole
from everview.operators.base import Operator
from everview.operators.cells import Cells
from everview.operators.grouped_cells import ID, Changed, GroupedCells, GroupRows
from everview.operators.members import FEW, had_by, may_have
from everview.operators.packed import PackedRows
from everview.operators.ranking import KEY, RankedMembers, Ranking
from everview.operators.search import Entries, Search
from everview.plan.nodes import Aggregate, Constant, FirstByMember
from everview.schema import Column
from everview.state import State

Move = tuple[Entries, Ints]  # entries that come or go, with their weights


def spare(first: int) -> int:
    """How many groups a member keeps beside the first, which take the places of those that go."""
    return first + 6


class FirstByMemberOperator(Operator):
    """Keep the cells of each group, and of each member its first groups and some that follow.

    What a member keeps ends with its *floor*: all groups that come before that are there. So a
    group that changes is looked at only for members of which it may come before the floor. A member
    that has lost so many groups that the first are not all there is filled again from the cells.

    Law:   sum of outputs == of each member the first groups of (sum of the rows in its boxes);
           groups that tie come in the order of a digest.
    State: group -> its cells, and its columns; the cells again, in blocks, for members that come;
           the members with their floors, in one value; member -> the groups that it keeps.
    Cost:  all cells of the groups touched are read; they are compared with many members at once,
           and with each member of which a group may be among the first. What a member keeps is read
           and written if it changes. Members that come, or are filled again, read the chunks of
           cells that they may have, once for all of them.
    """

    kind = FirstByMember.kind

    def __init__(self, node: FirstByMember) -> None:
        self._node = node
        in_order = [order.column for order in node.order if order.column in node.groups]
        compared = [bound.column for bound in node.bounds]
        keys = [node.rows.column(name) for name in dict.fromkeys([*compared, *in_order])]
        groups = [node.rows.column(name) for name in node.groups]
        added = _added(node, keys)
        self._boxes = list(map(node.bounds_of, range(len(node.signs))))
        in_all = set.intersection(*({bound.column for bound in box} for box in self._boxes))
        every = [Column(ID, pa.binary(), False), *keys]
        self._cells = Cells(every, added.columns, added.columns[0].name, sorted(in_all))
        self._groups = GroupedCells(groups, keys, added, node.each_row)
        self._members = RankedMembers(node.members.columns, self._boxes)
        self._search = Search(node, keys, added)
        entry = [Column(KEY, pa.binary(), False), *added.columns]
        self._kept, self._bodies = PackedRows(entry), BagRows(entry)
        self._added = added
        self._first = node.offset + node.limit
        self._most = self._first + spare(self._first)  # that a member keeps
        self._output = pa.schema([pa.field(c.name, c.type) for c in node.columns])

    def apply(self, inputs: list[pa.Table], state: State) -> pa.Table:
        ranking = self._members.read(state)
        came, gone = self._members.moved(inputs[1])
        is_new = self._cells.is_empty(state)
        changed = None
        if inputs[0].num_rows:
            numbers, groups = self._groups.numbers_of(inputs[0])
            changed = self._groups.change(numbers, groups, self._cells, state)
            # all cells, if there were none: in a load there is no room for them twice
            self._cells.add(changed.after.cells if is_new else numbers, state)
            del numbers
        goes = pc.is_in(ranking.rows[KEY], value_set=whole(gone.rows[KEY]))
        stays = ranking.take(np.flatnonzero(~goes.to_numpy()))
        members = Ranking(pa.concat_tables([stays.rows, came.rows, gone.rows]).combine_chunks())
        all_gone = np.arange(len(stays) + len(came), len(members))
        moves = [self._shown(self._read(members, all_gone, state), -1)]
        self._write(members, all_gone, None, state)
        short = np.arange(len(stays), len(stays) + len(came))
        if changed is not None and len(stays):
            moved, members, low = self._updated(changed, stays, members, state)
            moves += moved
            short = np.concatenate([low, short])
        if len(short):
            members, filled = self._filled(short, members, changed if is_new else None, state)
            moves.append(self._shown(filled, 1))
        left = members.take(np.arange(len(stays) + len(came)))
        left = self._members.in_order(left) if len(came) or len(gone) else left
        if not left.rows.equals(ranking.rows):
            self._members.write(left, state)
        return self._output_of(moves, members, changed.gone if changed else {}, state)

    def _updated(
        self, changed: Changed, stays: Ranking, members: Ranking, state: State
    ) -> tuple[list[Move], Ranking, Ints]:
        """Change what members keep of groups that changed; gives what moves among the first, and
        the members that have to be filled again."""
        was = self._search.places(changed.before, stays)
        found = self._search.entries(changed.after, stays, self._most)
        some = np.unique(np.concatenate([was, found.members]))
        before = self._read(stays, some, state)
        goes = pc.is_in(before.ids(), value_set=changed.ids).to_numpy(zero_copy_only=False)
        same = np.flatnonzero(~goes)
        all_now = Entries.all_of([before.take(same), found])
        order = all_now.order()
        after = all_now.take(order)
        is_kept, floors = after.ends(self._most)
        members = self._search.with_floors(members, after.take(floors))
        left = after.take(np.flatnonzero(is_kept))
        has = np.bincount(left.members, minlength=len(members))
        low = some[(has[some] < self._first) & members.has_floor()[some]]
        left = left.take(np.flatnonzero(~np.isin(left.members, low)))
        self._write(members, np.setdiff1d(some, low), left, state)
        shown_before, shown_after = self._copies_shown(before), self._copies_shown(after)
        shown_after[np.isin(after.members, low)] = 0
        moved = np.zeros(len(all_now), np.int64)
        moved[order] = shown_after
        moved[: len(same)] -= shown_before[same]
        shown_before[same] = 0
        return [_moves(before, -shown_before), _moves(all_now, moved)], members, low

    def _filled(
        self, some: Ints, members: Ranking, known: Changed | None, state: State
    ) -> tuple[Ranking, Entries]:
        """Some members with their first groups, from all cells."""
        empty = self._search.emptied(members, some)
        wanted = empty.take(some)
        if known is not None:
            cells = known.after
        else:
            stored = self._cells.read(state, partial(self._may_have, wanted.rows))
            if len(some) <= FEW:
                stored = had_by(stored, wanted.rows, self._boxes)
            numbers, first = numbered(whole(stored[ID]))
            order = np.argsort(numbers, kind="stable")
            cells = GroupRows(stored.take(pa.array(order)), numbers[order], len(first))
        entries = self._search.entries(cells, wanted, self._most)
        is_kept, floors = entries.ends(self._most)
        wanted = self._search.with_floors(wanted, entries.take(floors))
        entries = entries.take(np.flatnonzero(is_kept))
        self._write(wanted, np.arange(len(some)), entries, state)
        members = empty.with_floors(some, wanted.floors, wanted.scores)
        return members, entries.of(some)

    def _may_have(
        self, members: pa.Table, column: str, least: pa.Array, greatest: pa.Array
    ) -> np.ndarray:
        """Which chunks, with these ends of their values, may have cells of some members."""
        found = np.zeros(len(least), np.bool_)
        for box in self._boxes:
            bounds = [bound for bound in box if bound.column == column]
            found |= may_have(least, greatest, members, bounds)
        return found

    def _read(self, members: Ranking, some: Ints, state: State) -> Entries:
        """What some members keep."""
        keys = members.take(some).keys()
        order = sorted(range(len(keys)), key=keys.__getitem__)
        which, rows = self._kept.read([keys[place] for place in order], state)
        own = some[np.array(order, np.int64)][which]
        by_member = np.argsort(own, kind="stable")  # rows are stored in their order
        return Entries(own, rows).take(by_member)

    def _write(self, members: Ranking, some: Ints, entries: Entries | None, state: State) -> None:
        """Store what some members keep; None for nothing."""
        keys = members.take(some).keys()
        if entries is None:
            state.put_many(sorted(keys), [b""] * len(keys))
            return
        place_of = np.zeros(len(members) + 1, np.int64)
        order = sorted(range(len(keys)), key=keys.__getitem__)
        place_of[some[np.array(order, np.int64)]] = np.arange(len(keys))
        which = place_of[entries.members]
        by_key = np.argsort(which, kind="stable")
        rows = entries.rows.take(pa.array(by_key))
        self._kept.write([keys[place] for place in order], which[by_key], rows, state)

    def _output_of(
        self, moves: list[Move], members: Ranking, gone: dict[bytes, bytes], state: State
    ) -> pa.Table:
        """The delta of the first groups of members; what cancels is left out."""
        entries = Entries.all_of([entries for entries, _ in moves])
        weights = np.concatenate([weights for _, weights in moves])
        numbers = fixed_binary(entries.members.astype(">u4").view(np.uint8).reshape(-1, 4), 4)
        bodies = self._bodies.encode(entries.rows)
        ids, first = numbered(pc.binary_join_element_wise(numbers, bodies, b""))
        net = np.bincount(ids, weights, len(first)).astype(np.int64)
        entries = entries.take(first[net != 0])
        if not len(entries):
            return weighted(self._output.empty_table(), 0)
        groups = self._groups.groups_of(entries.ids(), gone, state)
        of_members = members.rows.take(pa.array(entries.members)).select(self._node.by)
        calls = self._search.results(groups, entries.rows)
        columns = [*of_members.columns, *groups.columns, *calls]
        return weighted(pa.Table.from_arrays(columns, schema=self._output), net[net != 0])

    def _shown(self, entries: Entries, sign: int) -> Move:
        """The entries that are among the first of their members, which come or go."""
        return _moves(entries, sign * self._copies_shown(entries))

    def _copies_shown(self, entries: Entries) -> Ints:
        """How often each entry is among the first of its member, after the offset."""
        copies = np.ones(len(entries), np.int64)
        if self._node.each_row:
            copies = entries.rows[self._added.columns[0].name].to_numpy()
        end = entries.added_up(copies)
        low, high = self._node.offset, self._first
        shown: Ints = np.maximum(np.minimum(end, high) - np.maximum(end - copies, low), 0)
        return shown


def _moves(entries: Entries, weights: Ints) -> Move:
    """The entries that have a weight."""
    places = np.flatnonzero(weights)
    return entries.take(places), weights[places]


def _added(node: FirstByMember, keys: list[Column]) -> AggregateOperator:
    """What adds up rows by group and key."""
    columns = [Column(ID, pa.binary(), False), *keys]
    below = Constant((*columns, *node.arguments), ())
    results = node.columns[len(node.by) + len(node.groups) :]
    names = tuple(column.name for column in columns)
    return AggregateOperator(Aggregate((*columns, *results), below, names, node.calls))
