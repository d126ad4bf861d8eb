"""Members of whose groups the first are kept: up to where, in the order of members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import Ints
from everview.codec.streams import from_stream, to_stream
from everview.operators.bags import BagRows, bagged, whole
from everview.operators.contenders import LEAST, near_each_other
from everview.operators.members import intervals
from everview.plan.nodes import Bound
from everview.schema import Column
from everview.state import State

KEY, FLOOR, SCORE = "_key", "_floor", "_score"
_MEMBERS = b"members"


@dataclass(frozen=True)
class Ranking:
    """Members: where what they keep is stored (`KEY`); the place of the last group that they keep
    (`FLOOR`), NULL if they keep all; and the score of that group (`SCORE`)."""

    rows: pa.Table

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def floors(self) -> pa.BinaryArray:
        return whole(self.rows[FLOOR])

    @property
    def scores(self) -> Ints:
        scores: Ints = self.rows[SCORE].to_numpy()
        return scores

    def has_floor(self) -> np.ndarray:
        has: np.ndarray = self.floors.is_valid().to_numpy(zero_copy_only=False)
        return has

    def keys(self) -> list[bytes]:
        keys: list[bytes] = self.rows[KEY].to_pylist()
        return keys

    def take(self, places: Ints) -> Ranking:
        return Ranking(self.rows.take(pa.array(places)))

    def with_floors(self, places: Ints, floors: pa.BinaryArray, scores: Ints) -> Ranking:
        """The same, with other floors of some members."""
        mask = np.zeros(len(self), np.bool_)
        mask[places] = True
        at = self.rows.schema.get_field_index(FLOOR)
        order = np.argsort(places, kind="stable")
        new = pc.replace_with_mask(self.floors, pa.array(mask), floors.take(pa.array(order)))
        numbers = self.scores.copy()
        numbers[places] = scores
        rows = self.rows.set_column(at, FLOOR, new)
        return Ranking(rows.set_column(at + 1, SCORE, pa.array(numbers)))


class RankedMembers:
    """The members of a state, all of them in one value."""

    def __init__(self, columns: Sequence[Column], bounds: Sequence[Sequence[Bound]]) -> None:
        self._rows = BagRows(columns)
        self._bounds = bounds

    def read(self, state: State) -> Ranking:
        (stored,) = state.get_many([_MEMBERS])
        return (
            Ranking(from_stream(stored)) if stored else self._new(self._rows.schema.empty_table())
        )

    def moved(self, delta: pa.Table) -> tuple[Ranking, Ranking]:
        """The members that come and those that go."""
        keys = pa.repeat(pa.scalar(b"", pa.binary()), delta.num_rows)
        changed = bagged(delta, keys, self._rows.encode(delta))
        assert np.all(np.abs(changed.weights) == 1), "members are there once"
        rows = changed.rows.select(self._rows.schema.names).cast(self._rows.schema)
        came = pa.array(changed.weights > 0)
        return self._new(rows.filter(came)), self._new(rows.filter(pc.invert(came)))

    def write(self, ranking: Ranking, state: State) -> None:
        """Store members in the order that they have."""
        value = to_stream(ranking.rows.combine_chunks()) if len(ranking) else b""
        state.put_many([_MEMBERS], [value])

    def in_order(self, ranking: Ranking) -> Ranking:
        """The members such that those with boxes close to each other are neighbours."""
        if not len(ranking):
            return ranking
        (bounds, *_) = self._bounds
        none = pa.table(
            {bound.column: pa.array([], ranking.rows[bound.member].type) for bound in bounds}
        )
        _, boxes = intervals(none, ranking.rows, bounds)
        return ranking.take(near_each_other(boxes))

    def _new(self, rows: pa.Table) -> Ranking:
        encoded = self._rows.encode(rows).to_pylist()
        keys = [b"\3" + blake2b(row, digest_size=16).digest() for row in encoded]
        return Ranking(
            rows.append_column(KEY, pa.array(keys, pa.binary()))
            .append_column(FLOOR, pa.nulls(len(keys), pa.binary()))
            .append_column(SCORE, pa.array(np.full(len(keys), LEAST)))
        )
