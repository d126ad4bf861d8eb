"""Random histories of weighted rows, and how to feed them to operators in steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from everview.delta import WEIGHT, weighted
from everview.plan.nodes import Source
from everview.schema import Column

Row = tuple[Any, ...]
COLUMNS = (
    Column("g", pa.string()),
    Column("h", pa.int32()),
    Column("x", pa.decimal128(12, 2)),
    Column("n", pa.int64()),
)
SOURCE = Source(COLUMNS, "t", ("g", "h", "x", "n"))
ROWS = st.tuples(
    st.sampled_from(["a", "b", "", None]),
    st.sampled_from([1, None]),
    st.none() | st.decimals("-99.99", "99.99", places=2),
    st.none() | st.integers(-(2**40), 2**40),
)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Row, int]]:
    """Rows that come, and some of them that go again later; never more than came."""
    history: list[tuple[Row, int]] = []
    there: list[Row] = []
    for _ in range(draw(st.integers(0, 25))):
        if there and draw(st.booleans()):
            row = there.pop(draw(st.integers(0, len(there) - 1)))
            history.append((row, -1))
        else:
            row = draw(ROWS)
            there.append(row)
            history.append((row, 1))
    return history


def in_steps(history: list[tuple[Row, int]], step: int) -> Iterator[pa.Table]:
    for start in range(0, len(history), step):
        yield delta_of(history[start : start + step])


def delta_of(changes: list[tuple[Row, int]]) -> pa.Table:
    arrays = [
        pa.array([row[i] for row, _ in changes], column.type) for i, column in enumerate(COLUMNS)
    ]
    rows = pa.Table.from_arrays(arrays, names=[column.name for column in COLUMNS])
    return weighted(rows, np.array([weight for _, weight in changes], np.int64))


def counted(delta: pa.Table) -> Counter[Row]:
    """A delta as a multiset, negative counts included."""
    found: Counter[Row] = Counter()
    for row in delta.to_pylist():
        weight = row.pop(WEIGHT)
        found[tuple(_plain(value) for value in row.values())] += weight
    return found


def present(history: list[tuple[Row, int]]) -> list[Row]:
    found: Counter[Row] = Counter()
    for row, weight in history:
        found[row] += weight
    return list(found.elements())


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value
