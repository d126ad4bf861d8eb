"""Joins by equal keys: inner, left, semi, anti."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.groups import GroupCodec
from everview.delta import WEIGHT, weights_of, without_zeros
from everview.errors import Damaged
from everview.operators.bags import Bagged, BagRows, bagged, no_rows
from everview.operators.base import Operator, State
from everview.plan.nodes import Join, Node
from everview.schema import Column, has_floats

LEFT, RIGHT = 0, 1
_COUNT = struct.Struct("<q")


class JoinOperator(Operator):
    """Pair changed rows of one side with what the other side has, and keep both.

    Law:   sum of outputs == join(sum of left inputs, sum of right inputs).
    State: rows of each side by join key, without the key's columns; for left, semi and anti joins
           also how many rows of the right there are by key, and for semi and anti nothing else
           of the right.
    Cost:  one look-up for each changed key, and the rows that match.
    """

    def __init__(self, node: Join) -> None:
        self._node = node
        self._left = _Side(node, LEFT)
        self._right = _Side(node, RIGHT)
        fields = [pa.field(c.name, c.type) for c in node.columns]
        self._schema = pa.schema([*fields, pa.field(WEIGHT, pa.int64(), False)])

    def apply(self, inputs: list[pa.Table], state: State) -> pa.Table:
        left, keyless = self._left.read(inputs[LEFT])
        right, _ = self._right.read(inputs[RIGHT])
        given = [self._schema.empty_table()]
        if self._node.how in ("inner", "left"):
            given += self._pairs(left, right, state)
        if self._node.how != "inner":
            given += self._by_count(left, right, state)
        if self._node.how in ("left", "anti"):
            given.append(self._alone(keyless, weights_of(keyless)))
        self._left.keep(left, state)
        self._right.keep(right, state)
        return without_zeros(pa.concat_tables(given))

    def _pairs(self, left: Bagged, right: Bagged, state: State) -> list[pa.Table]:
        """Changed left rows with all right ones, and changed right rows with the old left ones."""
        given = []
        if len(left.unique):
            found = [self._right.kept(left, state)]
            if len(right.unique):
                found.append(self._right.changed(right, left))
            for matches in found:
                mine, theirs = matches.pairs(left)
                weights = left.weights[mine] * matches.counts[theirs]
                given.append(self._output(left.rows, mine, matches.rows, theirs, weights))
        if len(right.unique):
            matches = self._left.kept(right, state)
            mine, theirs = matches.pairs(right)
            weights = right.weights[mine] * matches.counts[theirs]
            given.append(self._output(matches.rows, theirs, right.rows, mine, weights))
        return given

    def _by_count(self, left: Bagged, right: Bagged, state: State) -> list[pa.Table]:
        """Left rows that have a match (semi) or none (left, anti): changed, or turned."""
        of_left, of_right = _untagged(left), _untagged(right)
        keys = pa.concat_arrays([of_left, of_right]).unique()
        keys = keys.take(pc.array_sort_indices(keys))
        listed = keys.to_pylist()
        before = _counts(state.get_many(listed))
        at = pc.index_in(of_right, keys).to_numpy()
        after = before.copy()
        after[at] += right.totals()
        if np.any(after < 0):
            raise Damaged("a join has lost more rows of its right side than it had")
        state.put_many(
            [listed[i] for i in at], [_COUNT.pack(n) if n else b"" for n in after[at].tolist()]
        )
        wanted = after > 0 if self._node.how == "semi" else after == 0
        shown = wanted[pc.index_in(of_left, keys).to_numpy()][left.which]
        given = [self._alone(left.rows, left.weights * shown)]
        turned = (before[at] > 0) != (after[at] > 0)
        if turned.any():
            matches = self._left.kept(right.under(turned), state)
            sign = np.where(wanted[at][turned], 1, -1)[matches.keys]
            given.append(self._alone(matches.rows, matches.counts * sign))
        return given

    def _alone(self, left: pa.Table, weights: np.ndarray) -> pa.Table:
        """Left rows by themselves, with NULLs for the right of a left join."""
        missing = self._node.columns[len(self._node.left.columns) :]
        arrays = [left[name] for name in self._node.left.names()]
        arrays += [pa.nulls(len(weights), column.type) for column in missing]
        return self._delta(arrays, weights)

    def _output(
        self,
        left: pa.Table,
        of_left: np.ndarray,
        right: pa.Table,
        of_right: np.ndarray,
        weights: np.ndarray,
    ) -> pa.Table:
        left = left.select(self._node.left.names()).take(pa.array(of_left))
        right = right.select(self._node.right.names()).take(pa.array(of_right))
        return self._delta([*left.columns, *right.columns], weights)

    def _delta(self, columns: list[pa.ChunkedArray], weights: np.ndarray) -> pa.Table:
        """The output; without any columns it is its weights that say how many rows there are."""
        return pa.Table.from_arrays([*columns, pa.array(weights)], schema=self._schema)


@dataclass(frozen=True)
class _Matches:
    """Rows of one side under keys of a delta of the other: `keys` are places in its unique keys,
    ascending; `counts` say how often each row is there."""

    keys: np.ndarray
    counts: np.ndarray
    rows: pa.Table

    def pairs(self, delta: Bagged) -> tuple[np.ndarray, np.ndarray]:
        """Places in the delta and here, for every pair of rows with equal keys."""
        numbers = np.arange(len(delta.unique))
        starts = np.searchsorted(self.keys, numbers)
        lengths = (np.searchsorted(self.keys, numbers, "right") - starts)[delta.which]
        mine = np.repeat(np.arange(len(delta.which)), lengths)
        within = np.arange(len(mine)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return mine, starts[delta.which][mine] + within


class _Side:
    """One side of a join: its rows as keys and bodies, and what is kept of it."""

    def __init__(self, join: Join, tag: int) -> None:
        node: Node = (join.left, join.right)[tag]
        self._tag = tag
        self._names = node.names()
        self._keys = (join.left_keys, join.right_keys)[tag]
        self._keys_of_other = (join.right_keys, join.left_keys)[tag]
        types = [node.column(name).type for name in self._keys]
        self._codec = GroupCodec([Column(str(i), arrow) for i, arrow in enumerate(types)])
        safe = zip(self._keys, join.null_safe, strict=True)
        self._strict = [name for name, null_is_equal in safe if not null_is_equal]
        self._counted = tag == RIGHT and join.how in ("semi", "anti")
        # equal keys that have floats may differ in their bits, so they are kept with the row
        exact = [not has_floats(arrow) for arrow in types]
        self._from_key = {n: i for i, n in enumerate(self._keys) if exact[i]}
        stored = [c for c in node.columns if c.name not in self._from_key and not self._counted]
        self._bodies = BagRows(stored)

    def read(self, delta: pa.Table) -> tuple[Bagged, pa.Table]:
        """The delta by key, and those of its rows that equal no key."""
        if delta.num_rows == 0:
            return no_rows(delta), delta
        present = np.ones(delta.num_rows, np.bool_)
        for name in self._strict:
            if delta[name].null_count:
                present &= delta[name].is_valid().to_numpy()
        keyless = delta.filter(pa.array(~present))
        if keyless.num_rows:
            delta = delta.filter(pa.array(present))
        columns = {str(i): delta[name] for i, name in enumerate(self._keys)}
        keys = self._codec.encode(pa.table(columns) if columns else delta, self._tag)
        return bagged(delta, keys, self._bodies.encode(delta)), keyless

    def keep(self, delta: Bagged, state: State) -> None:
        if not self._counted:
            delta.change(state)

    def kept(self, other: Bagged, state: State) -> _Matches:
        """What is kept of this side under the keys of a delta of the other."""
        tag = bytes([self._tag])
        keys = [tag + key[1:] for key in other.unique.to_pylist()]
        places, bodies, counts = state.get_bags(keys)
        stored = self._bodies.decode(bodies)
        first = np.searchsorted(other.which, np.arange(len(other.unique)))
        at = pa.array(first[places])
        columns = {
            name: other.rows[self._keys_of_other[self._from_key[name]]].take(at)
            if name in self._from_key
            else stored[name]
            for name in self._names
        }
        return _Matches(places, counts.astype(np.int64), pa.table(columns))

    def changed(self, mine: Bagged, other: Bagged) -> _Matches:
        """A delta of this side under the keys of one of the other."""
        found = pc.index_in(_untagged(mine), _untagged(other)).fill_null(-1).to_numpy()
        keys = found[mine.which] if len(mine.which) else np.zeros(0, np.int64)
        rows = np.flatnonzero(keys >= 0)
        rows = rows[np.argsort(keys[rows], kind="stable")]
        return _Matches(keys[rows], mine.weights[rows], mine.rows.take(pa.array(rows)))


def _untagged(changed: Bagged) -> pa.BinaryArray:
    """Keys as they are for both sides; of a join without keys they are one byte, as LMDB has no
    empty ones."""
    return pc.binary_replace_slice(changed.unique, 0, 1, b"\0")


def _counts(values: list[bytes]) -> np.ndarray:
    return np.array([_COUNT.unpack(value)[0] if value else 0 for value in values], np.int64)
