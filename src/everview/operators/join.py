"""Joins by equal keys: inner, left, full, single, semi, anti, existence."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.delta import WEIGHT, weights_of, without_zeros
from everview.errors import Damaged, TooManyRows
from everview.operators.bags import Bagged
from everview.operators.base import SEVERAL, Operator
from everview.operators.sides import Side, untagged
from everview.plan.nodes import Join
from everview.state import State

LEFT, RIGHT = 0, 1
MOST_PAIRS = 20_000_000
_COUNT = struct.Struct("<q")


class JoinOperator(Operator):
    """Pair changed rows of one side with the rows of the other side, and keep both.

    Law:   sum of outputs == join(sum of left inputs, sum of right inputs).
    State: rows of each side by join key, without the key's columns. All but inner joins also count
           the rows of the right by key (full joins those of the left too; left joins to unique keys
           don't, as they see it from the rows). Semi, anti and existence joins keep only the count
           of the right.
    Cost:  one look-up for each changed key, and the rows that match.
    """

    kind = Join.kind

    def __init__(self, node: Join) -> None:
        self._node = node
        self._paired = node.how in ("inner", "left", "full", "single")
        keys, safe = (node.left_keys, node.right_keys), node.null_safe
        self._sides = (
            Side(node.left.columns, keys[LEFT], keys[RIGHT], safe, LEFT),
            Side(node.right.columns, keys[RIGHT], keys[LEFT], safe, RIGHT, not self._paired),
        )
        fields = [pa.field(c.name, c.type) for c in node.columns]
        self._schema = pa.schema([*fields, pa.field(WEIGHT, pa.int64(), False)])

    def apply(self, inputs: list[pa.Table], state: State) -> pa.Table:
        (left, keyless_left), (right, keyless_right) = (
            side.read(delta) for side, delta in zip(self._sides, inputs, strict=True)
        )
        deltas, keyless = (left, right), (keyless_left, keyless_right)
        outputs = [self._schema.empty_table()]
        if self._paired:
            outputs += self._pairs(left, right, state)
        for side in {"inner": (), "full": (LEFT, RIGHT)}.get(self._node.how, (LEFT,)):
            outputs += self._by_count(side, deltas, state)
            rows = keyless[side]
            outputs.append(
                self._unpaired(side, rows, weights_of(rows), np.zeros(len(rows), np.bool_))
            )
        self._sides[LEFT].keep(left, state)
        self._sides[RIGHT].keep(right, state)
        if self._node.how == "single":
            self._check_single(left, right, state)
        return without_zeros(pa.concat_tables(outputs))

    def _pairs(self, left: Bagged, right: Bagged, state: State) -> list[pa.Table]:
        """Changed left rows with all right rows, and changed right rows with the old left rows."""
        outputs = []
        if len(left.unique):
            all_matches = [self._sides[RIGHT].stored_matches(left, state)]
            if len(right.unique):
                all_matches.append(self._sides[RIGHT].changed_matches(right, left))
            for matches in all_matches:
                self._check_pairs(len(left.which) * len(matches.keys))
                changed, matching = matches.pairs(left)
                weights = left.weights[changed] * matches.counts[matching]
                outputs.append(self._output(left.rows, changed, matches.rows, matching, weights))
        if len(right.unique):
            matches = self._sides[LEFT].stored_matches(right, state)
            self._check_pairs(len(right.which) * len(matches.keys))
            changed, matching = matches.pairs(right)
            weights = right.weights[changed] * matches.counts[matching]
            outputs.append(self._output(matches.rows, matching, right.rows, changed, weights))
        return outputs

    def _check_pairs(self, pairs: int) -> None:
        if not self._node.left_keys and pairs > MOST_PAIRS:
            raise TooManyRows(
                f"a join without an equality between its sides would make {pairs:,} pairs of rows "
                f"at once, and {MOST_PAIRS:,} are the most; add one, as in a.key = b.key, or "
                "filter its sides"
            )

    def _by_count(self, side: int, deltas: tuple[Bagged, Bagged], state: State) -> list[pa.Table]:
        """Rows of a side whose output depends on whether they have a match: changed rows, and rows
        that got their first match or lost their last."""
        own, other = deltas[side], deltas[1 - side]
        own_keys, other_keys = untagged(own, side), untagged(other, side)
        keys = pa.concat_arrays([own_keys, other_keys]).unique()
        keys = keys.take(pc.array_sort_indices(keys))
        key_list = keys.to_pylist()
        before = self._counts_before(key_list, state)
        at = pc.index_in(other_keys, keys).to_numpy()
        after = before.copy()
        after[at] += other.totals()
        if np.any(after < 0):
            raise Damaged(
                f"a join has lost more rows of its {('right', 'left')[side]} side than it had"
            )
        if not self._node.unique:
            state.put_many(
                [key_list[i] for i in at],
                [_COUNT.pack(n) if n else b"" for n in after[at].tolist()],
            )
        has_match = (after > 0)[pc.index_in(own_keys, keys).to_numpy()][own.which]
        outputs = [self._unpaired(side, own.rows, own.weights, has_match)]
        turned = (before[at] > 0) != (after[at] > 0)
        if turned.any():
            matches = self._sides[side].stored_matches(other.under(turned), state)
            has_match = (after[at] > 0)[turned][matches.keys]
            outputs.append(self._unpaired(side, matches.rows, -matches.counts, ~has_match))
            outputs.append(self._unpaired(side, matches.rows, matches.counts, has_match))
        return outputs

    def _counts_before(self, keys: list[bytes], state: State) -> np.ndarray:
        """How many rows the other side had; unique rows are counted as they are stored."""
        if not self._node.unique:
            return _counts(state.get_many(keys))
        places, _, counts = state.get_bags([bytes([RIGHT]) + key[1:] for key in keys])
        return np.bincount(places, counts, len(keys)).astype(np.int64)

    def _unpaired(
        self, side: int, rows: pa.Table, weights: np.ndarray, has_match: np.ndarray
    ) -> pa.Table:
        """The output for rows of a side that isn't a pair, by whether they have a match."""
        names = (self._node.left, self._node.right)[side].names()
        arrays = [rows[name] for name in names]
        if self._node.how == "existence":
            return self._delta([*arrays, pa.array(has_match)], weights)
        missing = [pa.nulls(len(weights), type_) for type_ in self._types_of_other(side)]
        arrays = [*missing, *arrays] if side == RIGHT else [*arrays, *missing]
        return self._delta(
            arrays, weights * (has_match if self._node.how == "semi" else ~has_match)
        )

    def _types_of_other(self, side: int) -> list[pa.DataType]:
        """The types of the columns that are NULL in a row without a match."""
        count = len(self._node.left.columns)
        columns = self._node.columns[:count] if side == RIGHT else self._node.columns[count:]
        return [column.type for column in columns]

    def _check_single(self, left: Bagged, right: Bagged, state: State) -> None:
        """Raise `TooManyRows` if a row of the left has more than one match."""
        keys = pa.concat_arrays([untagged(left), untagged(right)]).unique()
        key_list = keys.take(pc.array_sort_indices(keys)).to_pylist()
        many = _counts(state.get_many(key_list)) > 1
        if many.any():
            left_keys = [bytes([LEFT]) + key_list[i][1:] for i in np.flatnonzero(many)]
            if len(state.get_bags(left_keys)[0]):
                raise TooManyRows(SEVERAL)

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
        """The output; if it has no columns, its weights say how many rows there are."""
        return pa.Table.from_arrays([*columns, pa.array(weights)], schema=self._schema)


def _counts(values: list[bytes]) -> np.ndarray:
    return np.array([_COUNT.unpack(value)[0] if value else 0 for value in values], np.int64)
