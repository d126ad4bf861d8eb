"""The least or greatest value of an aggregate's argument by group, where no row ever goes: then it
is all that is kept of them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec import KeyCodec
from everview.operators.bags import whole
from everview.schema import Column


class Extreme:
    """One value for each group, as ordered bytes in a column of the group's state.

    State: b"" for a group that has only NULLs.
    Cost:  none but that of the group.
    """

    def __init__(self, argument: Column, greatest: bool, column: str) -> None:
        self.name = argument.name
        self.column = Column(column, pa.binary(), False)
        self._codec = KeyCodec([argument])
        self._one = "max" if greatest else "min"
        choose = pc.max_element_wise if greatest else pc.min_element_wise
        self._choose = partial(choose, skip_nulls=True)

    def change(self, delta: pa.Table, ids: np.ndarray, count: int) -> pa.Array:
        """Of the rows of a delta, for groups 0 to count - 1."""
        values = whole(delta[self.name])
        there = values.is_valid()
        mine = pa.table(
            {
                "id": ids[there.to_numpy(zero_copy_only=False)],
                "value": self._codec.encode([values.drop_null()]),
            }
        )
        found = mine.group_by("id", use_threads=False).aggregate([("value", self._one)])
        at = pc.index_in(pa.array(np.arange(count)), whole(found["id"]))
        return whole(found[f"value_{self._one}"]).take(at).fill_null(b"")

    def added(self, kept: pa.Array, change: pa.Array) -> pa.Array:
        """What is kept, with a change."""
        return self._choose(_there(kept), _there(change)).fill_null(b"")

    def values(self, state: pa.Table) -> pa.Array:
        """The values that groups have; NULL where there is none."""
        kept = whole(state[self.column.name])
        there = pc.not_equal(kept, b"").to_numpy(zero_copy_only=False)
        found = self._codec.decode(kept.filter(pa.array(there)).to_pylist())
        return found.take(pa.array(np.cumsum(there) - 1, mask=~there))


def _there(kept: pa.Array) -> pa.Array:
    """NULL where there is no value."""
    return pc.if_else(pc.equal(kept, b""), pa.scalar(None, pa.binary()), kept)
