"""Members in state, and which rows they have: intervals of the ranks of what they compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import Ints
from everview.codec.streams import from_stream, to_stream
from everview.operators.bags import Bagged, BagRows, bagged, whole
from everview.operators.boxes import Boxes, ranked
from everview.plan.nodes import Bound
from everview.schema import Column, has_floats
from everview.state import State

FEW = 8  # members, whose rows are looked for one by one
_KEY = b"members"


@dataclass(frozen=True)
class Moved:
    """The members `before` a step, which of them `stays`, and the delta: each member comes (1) or
    goes (-1)."""

    before: pa.Table
    stays: np.ndarray
    rows: pa.Table
    weights: np.ndarray


class StoredMembers:
    """The members, all of them in one value of a state."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._rows = BagRows(columns)

    def move(self, delta: pa.Table, state: State) -> Moved:
        """Change the members by a delta."""
        (stored,) = state.get_many([_KEY])
        before = from_stream(stored) if stored else self._rows.schema.empty_table()
        moved = self._changed(delta)
        stays = np.ones(before.num_rows, np.bool_)
        if len(moved.weights):
            came = moved.weights > 0
            gone = moved.bodies.filter(pa.array(~came))
            stays = ~pc.is_in(self._rows.encode(before), gone).to_numpy(zero_copy_only=False)
            new = moved.rows.filter(pa.array(came)).select(before.column_names)
            members = pa.concat_tables([before.filter(pa.array(stays)), new.cast(before.schema)])
            state.put_many([_KEY], [to_stream(members) if members.num_rows else b""])
        return Moved(before, stays, moved.rows.select(before.column_names), moved.weights)

    def _changed(self, delta: pa.Table) -> Bagged:
        keys = pa.repeat(pa.scalar(_KEY, pa.binary()), delta.num_rows)
        changed = bagged(delta, keys, self._rows.encode(delta))
        assert np.all(np.abs(changed.weights) == 1), "members are there once"
        return changed


def intervals(
    rows: pa.Table, members: pa.Table, bounds: Sequence[Bound]
) -> tuple[list[Ints], Boxes]:
    """The coordinate of each row in every column that is compared, -1 for NULL; and the box of each
    member."""
    coordinates, lows, highs = [], [], []
    for name in dict.fromkeys(bound.column for bound in bounds):
        of_column = [bound for bound in bounds if bound.column == name]
        columns = [whole(rows[name]), *(whole(members[bound.member]) for bound in of_column)]
        places, *ranks = ranked(columns)
        low, high = _interval(of_column, ranks, sum(map(len, columns)))
        coordinates.append(places)
        lows.append(low)
        highs.append(high)
    return coordinates, Boxes(lows, highs)


def may_have(
    least: pa.Array, greatest: pa.Array, members: pa.Table, bounds: Sequence[Bound]
) -> np.ndarray:
    """Which chunks of rows, with these ends of the values in the column of the bounds, may have
    rows of some members."""
    arrays = [least, greatest, *(whole(members[bound.member]) for bound in bounds)]
    first, last, *ranks = ranked(arrays)
    low, high = _interval(bounds, ranks, sum(map(len, arrays)))
    some = low < high
    found = np.zeros(len(least), np.bool_)
    for start, stop in np.unique(np.stack([low[some], high[some]], axis=1), axis=0):
        found |= (first >= 0) & (first < stop) & (last >= start)
    return found


def had_by(rows: pa.Table, members: pa.Table, boxes: Sequence[Sequence[Bound]]) -> pa.Table:
    """The rows that some members have in one of their boxes, and perhaps others."""
    had = np.zeros(len(rows), np.bool_)
    for member in members.to_pylist():
        for bounds in boxes:
            inside = np.ones(len(rows), np.bool_)
            for bound in bounds:
                if not has_floats(rows[bound.column].type):  # Spark's NaN is the greatest
                    inside &= bound.holds(rows, member)
            had |= inside
    return rows.filter(pa.array(had))


def _interval(
    bounds: Sequence[Bound], ranks: Sequence[np.ndarray], most: int
) -> tuple[np.ndarray, np.ndarray]:
    """The places that satisfy all bounds on a column, from the first to before the last, for each
    member. A bound that is NULL is satisfied by none."""
    low = np.zeros(len(ranks[0]), np.int64)
    high = np.full(len(ranks[0]), most, np.int64)
    for bound, rank in zip(bounds, ranks, strict=True):
        if bound.comparison in ("=", ">", ">="):
            low = np.maximum(low, rank + (bound.comparison == ">"))
        if bound.comparison in ("=", "<", "<="):
            high = np.minimum(high, rank + (bound.comparison != "<"))
        high[rank < 0] = 0
    return low, np.maximum(low, high)
