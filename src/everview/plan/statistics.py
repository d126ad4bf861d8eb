"""What a sample of rows says about all of them: how many distinct values, and how wide they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import storage_dtype
from everview.schema import Column, is_nested, is_variable

RANGE = "_range"  # the column of a sample that says from which range of its table a row is
TEXT_WIDTH = 16  # of values of which there is no sample
_END = 4  # bytes that say where a value of variable width ends


def distinct(sample: pa.Table, names: Sequence[str], rows: float) -> float:
    """How many distinct values `names` have in `rows` rows of which there is a sample.

    Neighbours in a sample are neighbours in their table, and may be alike. So what counts is in how
    many ranges a value is found, not how often (Chao's second estimator): values that are in one
    range only say that there are others yet; but at most as many to the row as in the sample.
    """
    if not names or sample.num_rows == 0:
        return min(1.0, rows)
    plain = [name for name in dict.fromkeys(names) if not is_nested(sample[name].type)]
    if not plain:
        return rows
    by_range = sample.group_by([*plain, RANGE], use_threads=False).aggregate([])
    found = by_range.group_by(plain, use_threads=False).aggregate([(RANGE, "count")])
    seen = found.num_rows
    if rows <= sample.num_rows:
        return min(float(seen), rows)
    in_ranges = found[f"{RANGE}_count"].to_numpy()
    once, twice = np.count_nonzero(in_ranges == 1), np.count_nonzero(in_ranges == 2)
    others = once * (once - 1) / (2 * (twice + 1))
    return float(min(seen + others, seen * rows / sample.num_rows, rows))


def touched(changes: float, values: float) -> float:
    """How many of some values so many changes hit, each any of them."""
    if values <= 1:
        return min(changes, values)
    return float(values * -np.expm1(changes * np.log1p(-1 / values)))


def width(column: Column, sample: pa.Table | None) -> float:
    """Bytes of a value as it lies in a row of state."""
    if not is_variable(column.type):
        return float(storage_dtype(column.type).itemsize)
    if sample is None or not sample.num_rows:
        return TEXT_WIDTH + _END
    values = sample[column.name]
    if is_nested(column.type):
        return float(values.nbytes / sample.num_rows) + _END
    total = pc.sum(pc.binary_length(values)).as_py() or 0
    return float(total / sample.num_rows) + _END
