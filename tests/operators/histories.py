"""Random histories of weighted rows, and how to feed them to operators in steps."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from everview.delta import WEIGHT, weighted
from everview.plan.nodes import Source
from everview.schema import Column

Row = tuple[Any, ...]
History = list[tuple[Any, int]]
STEPS = st.sampled_from([1, 3, 1000])
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
    st.none() | st.integers(-9999, 9999).map(lambda n: Decimal(f"{n}E-2")),
    st.none() | st.integers(-(2**40), 2**40),
)
NAN, OTHER_NAN = math.nan, struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0]
LONG = "k" * 600  # longer than what LMDB takes as a key or as a row of a bag
# Few values of each type, so that they meet again: some that are equal, some that nearly are.
FEW: dict[str, list[Any]] = {
    "BOOLEAN": [False, True],
    "INT": [-(2**31), -1, 0, 2**31 - 1],
    "BIGINT": [-(2**63), -1, 0, 1, 2**63 - 1],
    "DECIMAL(12,2)": [Decimal("-1.50"), Decimal("0.00"), Decimal("9999999999.99")],
    "DECIMAL(38,10)": [Decimal(f"{n}E-10") for n in (1 - 10**38, -(2**64), -1, 0, 2**64)],
    "DOUBLE": [-math.inf, -1.5, -0.0, 0.0, 5e-324, math.inf, NAN, OTHER_NAN],
    "FLOAT": [-math.inf, -0.0, 0.0, 1.5, NAN],
    "DATE": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)],
    "BINARY": [b"", b"\0", b"\0\xff", b"\xff", LONG.encode()],
    "STRING": ["", "a", "a\0", "a\0b", "ab", "\u00fc", LONG, LONG + "\0", LONG + "l"],
}

# The same of types that have parts and no order.
NESTED: dict[str, list[Any]] = {
    "ARRAY<DOUBLE>": [[], [None], [0.0], [-0.0], [NAN], [0.0, 1.5]],
    "ARRAY<STRING>": [[], [""], ["", ""], ["a", None], [LONG]],
    "STRUCT<a: INT, b: ARRAY<FLOAT>>": [
        {"a": 1, "b": None},
        {"a": 1, "b": []},
        {"a": None, "b": [0.0]},
        {"a": None, "b": [-0.0]},
    ],
    "MAP<STRING, INT>": [[], [("a", 1)], [("a", None)], [("a", 1), ("b", 2)]],
}


@st.composite
def histories(draw: st.DrawFn, rows: st.SearchStrategy[Any] = ROWS) -> History:
    """Rows that come, once or more often, and go again later; never more than came."""
    history: History = []
    there: dict[Row, tuple[Row, int]] = {}
    for _ in range(draw(st.integers(0, 16))):
        if there and draw(st.booleans()):
            row, count = draw(st.sampled_from(list(there.values())))
            weight = -draw(st.integers(1, count))
        else:
            row, weight = draw(rows), draw(st.sampled_from([1, 1, 1, 2, 3]))
        count = there.pop(plain(row), (row, 0))[1] + weight
        if count:
            there[plain(row)] = (row, count)
        history.append((row, weight))
    return history


def batched(history: History, step: int) -> list[History]:
    return [history[start : start + step] for start in range(0, len(history), step)]


def prefixes(history: History, step: int) -> list[list[Row]]:
    """The rows that are there after each step."""
    ends = range(step, len(history) + step, step)
    return [present(history[:end]) for end in ends]


def in_steps(
    history: History, step: int, columns: Sequence[Column] = COLUMNS
) -> list[list[pa.Table]]:
    """The inputs of an operator that has one, for each step."""
    return [[delta_of(changes, columns)] for changes in batched(history, step)]


def delta_of(changes: History, columns: Sequence[Column] = COLUMNS) -> pa.Table:
    weights = np.array([weight for _, weight in changes], np.int64)
    arrays = [
        pa.array([row[i] for row, _ in changes], column.type) for i, column in enumerate(columns)
    ]
    if not arrays:
        return pa.table({WEIGHT: weights})
    names = [column.name for column in columns]
    return weighted(pa.Table.from_arrays(arrays, names=names), weights)


def counted(delta: pa.Table) -> Counter[Row]:
    """A delta as a multiset, negative counts included."""
    found: Counter[Row] = Counter()
    for row in delta.to_pylist():
        weight = row.pop(WEIGHT)
        found[plain(row.values())] += weight
    return found


def present(history: History) -> list[Row]:
    """The rows that are there at the end, each as often as it is."""
    counts: Counter[Row] = Counter()
    for row, weight in history:
        counts[plain(row)] += weight
    rows = {plain(row): row for row, _ in history}
    return [rows[key] for key in counts.elements()]


def gone(history: History) -> History:
    """What takes away all that a history has left."""
    return [(row, -1) for row in present(history)]


def plain(row: Any) -> Row:
    """A row that equals another exactly if all bits do, NaN included."""
    return tuple(map(_plain, row))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return plain(value)
    if isinstance(value, dict):
        return plain(value.items())
    if isinstance(value, float):
        return repr(value) if value == value else struct.pack(">d", value).hex()
    return str(value) if isinstance(value, Decimal) else value
