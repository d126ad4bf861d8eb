"""Cells by group: of each group all its cells, under a digest of the group, and its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import Ints
from everview.codec.groups import GroupCodec
from everview.errors import Damaged
from everview.operators.aggregate import AggregateOperator, normal_groups
from everview.operators.bags import BagRows, whole
from everview.operators.cells import Cells
from everview.operators.packed import PackedRows
from everview.schema import Column
from everview.state import State

ID = "_id"  # the column with the digest of a group
DIGEST = 16  # bytes
_CELLS, _GROUP = b"\1", b"\2"


@dataclass(frozen=True)
class GroupRows:
    """Cells of groups, those of a group one after the other; `which` has the place of each one's
    group."""

    cells: pa.Table
    which: Ints
    groups: int


@dataclass(frozen=True)
class Changed:
    """Groups that a delta changes, before and after it. `gone` has the columns, as bytes, of those
    that have no row any more."""

    ids: pa.BinaryArray
    before: GroupRows
    after: GroupRows
    gone: dict[bytes, bytes]


class GroupedCells:
    """Cells of `groups`, told apart by `keys`, with what `added` adds up. With `each_row` a group
    is a row, and rows are one if they have the same bytes."""

    def __init__(
        self, groups: Sequence[Column], keys: Sequence[Column], added: AggregateOperator,
        each_row: bool,
    ) -> None:  # fmt: skip
        self._added = added
        self._names = [column.name for column in groups]
        self._each_row = each_row
        self._rows = BagRows(groups)
        self._encode = self._rows.encode if each_row else GroupCodec(groups).encode
        self._cells = PackedRows([*keys, *added.columns])
        self._count = added.columns[0].name

    def numbers_of(self, delta: pa.Table) -> tuple[pa.Table, pa.Table]:
        """A delta of rows as numbers to be added, each cell once; and the groups in it."""
        encoded = self._encode(delta).dictionary_encode()
        ids = pa.array(
            [blake2b(key, digest_size=DIGEST).digest() for key in encoded.dictionary.to_pylist()],
            pa.binary(),
        )
        numbers = self._added.partial(delta.append_column(ID, ids.take(encoded.indices)))
        first = np.zeros(len(ids), np.int64)
        first[encoded.indices.to_numpy()[::-1]] = np.arange(len(delta))[::-1]
        groups = delta.select(self._names).take(pa.array(first))
        groups = groups if self._each_row else normal_groups(groups)
        return numbers, groups.append_column(ID, ids)

    def change(
        self, numbers: pa.Table, groups: pa.Table, cells: Cells, state: State
    ) -> Changed:  # fmt: skip
        """Add numbers to the cells of their groups."""
        groups = groups.take(pc.array_sort_indices(whole(groups[ID])))
        ids = whole(groups[ID])
        listed = ids.to_pylist()
        keys = [_CELLS + id_ for id_ in listed]
        which, before = self._cells.read(keys, state)
        of_before = before.add_column(0, numbers.schema.field(ID), ids.take(pa.array(which)))
        after = numbers
        if len(before):
            of_before = of_before.select(numbers.column_names)
            after = cells.added_up(pa.concat_tables([of_before, numbers.cast(of_before.schema)]))
        rows = after[self._count].to_numpy()
        if np.any(rows < 0):
            raise Damaged("a cell has lost more rows than it had")
        after = after if np.all(rows) else after.filter(pa.array(rows > 0))
        now = pc.index_in(whole(after[ID]), ids).to_numpy().astype(np.int64)
        order = np.argsort(now, kind="stable")
        after, now = after.take(pa.array(order)), now[order]
        self._cells.write(keys, now, after.select(self._cells.schema.names), state)
        gone = self._change_groups(listed, groups, _has(which, ids), _has(now, ids), state)
        count = len(ids)
        return Changed(ids, GroupRows(of_before, which, count), GroupRows(after, now, count), gone)

    def _change_groups(
        self, ids: list[bytes], groups: pa.Table, was: np.ndarray, now: np.ndarray, state: State
    ) -> dict[bytes, bytes]:
        """Store the columns of groups that are new; delete and return those of groups that go."""
        new, gone = np.flatnonzero(now & ~was), np.flatnonzero(was & ~now)
        bodies = self._rows.encode(groups.take(pa.array(new))).to_pylist()
        # a value must not be empty
        keys = [_GROUP + ids[place] for place in new.tolist()]
        state.put_many(keys, [b"\0" + body for body in bodies])
        if not len(gone):
            return {}
        going = [ids[place] for place in gone.tolist()]
        keys = [_GROUP + id_ for id_ in going]
        stored = state.get_many(keys)
        state.put_many(keys, [b""] * len(keys))
        return dict(zip(going, stored, strict=True))

    def groups_of(self, ids: pa.BinaryArray, gone: dict[bytes, bytes], state: State) -> pa.Table:
        """The columns of groups by their digests."""
        encoded = ids.dictionary_encode()
        listed = encoded.dictionary.to_pylist()
        wanted = sorted(id_ for id_ in listed if id_ not in gone)
        stored = dict(zip(wanted, state.get_many([_GROUP + id_ for id_ in wanted]), strict=True))
        found = [stored.get(id_) or gone.get(id_) for id_ in listed]
        if not all(found):
            raise Damaged("a group that a member shows is missing in state")
        rows = self._rows.decode([body[1:] for body in found if body])
        return rows.take(encoded.indices)


def _has(which: Ints, ids: pa.BinaryArray) -> np.ndarray:
    has = np.zeros(len(ids), np.bool_)
    has[which] = True
    return has
