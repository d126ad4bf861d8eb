"""Statistics from a sample of rows: how many distinct values there are, and how wide they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import storage_dtype
from everview.schema import Column, is_nested, is_variable

RANGE = "_range"  # the column of a sample with the number of a row's range in its table
TEXT_WIDTH = 16  # of values without a sample
_END = 4  # bytes that say where a value of variable width ends


def distinct(sample: pa.Table, names: Sequence[str], rows: float) -> float:
    """How many distinct values `names` have in `rows` rows, estimated from a sample.

    Neighbours in a sample are neighbours in their table, and may be alike. So the number of ranges
    with a value counts, not the number of rows (Chao's second estimator): values in only one range
    show that there are more values; but per row at most as many as in the sample.
    """
    if not names or sample.num_rows == 0:
        return min(1.0, rows)
    plain = [name for name in dict.fromkeys(names) if not is_nested(sample[name].type)]
    if not plain:
        return rows
    by_range = sample.group_by([*plain, RANGE], use_threads=False).aggregate([])
    values = by_range.group_by(plain, use_threads=False).aggregate([(RANGE, "count")])
    seen = values.num_rows
    if rows <= sample.num_rows:
        return min(float(seen), rows)
    in_ranges = values[f"{RANGE}_count"].to_numpy()
    once, twice = np.count_nonzero(in_ranges == 1), np.count_nonzero(in_ranges == 2)
    others = once * (once - 1) / (2 * (twice + 1))
    return float(min(seen + others, seen * rows / sample.num_rows, rows))


def touched(changes: float, values: float) -> float:
    """How many of some values are hit by so many changes, each of which hits any of them."""
    if values <= 1:
        return min(changes, values)
    return float(values * -np.expm1(changes * np.log1p(-1 / values)))


def width(column: Column, sample: pa.Table | None) -> float:
    """Bytes of a value in a row of state."""
    if not is_variable(column.type):
        return float(storage_dtype(column.type).itemsize)
    if sample is None or not sample.num_rows:
        return TEXT_WIDTH + _END
    values = sample[column.name]
    if is_nested(column.type):
        return float(values.nbytes / sample.num_rows) + _END
    total = pc.sum(pc.binary_length(values)).as_py() or 0
    return float(total / sample.num_rows) + _END
