"""Deltas: Arrow rows with an integer weight, +1 for a row that came, -1 for one that went.

A delta stands for a change of a multiset of rows; equal rows may be added up.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

WEIGHT = "_weight"
_FIELD = pa.field(WEIGHT, pa.int64(), False)


def weighted(rows: pa.Table, weights: npt.NDArray[np.int64] | int) -> pa.Table:
    """Rows with their weights, as a delta."""
    if isinstance(weights, int):
        weights = np.full(rows.num_rows, weights, np.int64)
    if not rows.num_columns:
        return pa.Table.from_arrays([pa.array(weights)], schema=pa.schema([_FIELD]))
    return rows.append_column(_FIELD, pa.array(weights))


def weights_of(delta: pa.Table) -> npt.NDArray[np.int64]:
    weights: npt.NDArray[np.int64] = delta[WEIGHT].to_numpy()
    return weights


def rows_of(delta: pa.Table) -> pa.Table:
    return delta.drop_columns(WEIGHT)


def without_zeros(delta: pa.Table) -> pa.Table:
    return delta.filter(pc.not_equal(delta[WEIGHT], 0))
