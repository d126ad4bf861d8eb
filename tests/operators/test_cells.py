"""Cells have what was added to them, in few blocks, and are gone when nothing is left."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everview.delta import weighted
from everview.errors import Damaged
from everview.operators import cells
from everview.operators.base import MemoryState
from everview.operators.cells import Cells
from everview.schema import Column

SUM = pa.decimal128(38, 2)
KEYS = (Column("g", pa.string()), Column("a", pa.float64()))
VALUES = (Column("n", pa.int64(), False), Column("s", SUM))
CELLS = Cells(KEYS, VALUES, "n", ["a"])
Key = tuple[Any, Any]
Cell = tuple[int, Decimal]


def delta(changes: list[tuple[Key, Cell, int]]) -> pa.Table:
    columns = [[(*key, *cell)[place] for key, cell, _ in changes] for place in range(4)]
    types = [column.type for column in (*KEYS, *VALUES)]
    arrays = [pa.array(values, type_) for values, type_ in zip(columns, types, strict=True)]
    rows = pa.Table.from_arrays(arrays, ["g", "a", "n", "s"])
    return weighted(rows, np.array([weight for *_, weight in changes], np.int64))


def totals(numbers: pa.Table) -> dict[str, Cell]:
    found: dict[str, list[Any]] = {}
    for row in numbers.to_pylist():
        own = found.setdefault(repr((row["g"], row["a"])), [0, Decimal("0.00")])
        own[0] += row["n"]
        own[1] += row["s"]
    return {key: (n, s) for key, (n, s) in found.items() if n or s}


def everything(column: str, least: pa.Array, greatest: pa.Array) -> np.ndarray:
    return np.ones(len(least), np.bool_)


KEY = st.tuples(
    st.sampled_from(["g", "h", None]), st.sampled_from([None, -1.5, 0.0, 2.0, float("nan")])
)
CHANGE = st.tuples(KEY, st.integers(1, 5), st.integers(-99, 99).map(lambda n: Decimal(n) / 4))


@settings(max_examples=150)
@given(
    steps=st.lists(st.lists(CHANGE, max_size=12), max_size=8), chunk=st.sampled_from([1, 3, 100])
)
def test_they_have_what_was_added(steps: list[list[Any]], chunk: int) -> None:
    state = MemoryState()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cells, "CHUNK", chunk)
        now: dict[str, tuple[Key, Cell]] = {}
        for step in [*steps, None]:
            changes: list[tuple[Key, Cell, int]] = []
            before = dict(now)
            for key, n, s in step or ():
                _, (n_before, s_before) = now.get(repr(key), (key, (0, Decimal("0.00"))))
                now[repr(key)] = key, (n_before + n, s_before + s)
            now = now if step is not None else {}
            for name in before.keys() | now.keys():
                if before.get(name) != now.get(name):
                    changes += [(*before[name], -1)] if name in before else []
                    changes += [(*now[name], 1)] if name in now else []
            CELLS.add(CELLS.numbers_of(delta(changes)), state)
            assert totals(CELLS.read(state, everything)) == {k: c for k, (_, c) in now.items()}
    assert state.values == {}


def test_blocks_are_few_and_each_at_most_half_as_large_as_the_one_before() -> None:
    state = MemoryState()
    for number in range(200):
        CELLS.add(CELLS.numbers_of(delta([(("g", float(number)), (1, Decimal(number)), 1)])), state)
        header = CELLS._header(state)
        assert header is not None
        sizes = [size for _, size in header.blocks()]
        assert all(2 * after <= before for before, after in pairwise(sizes))
    assert len(sizes) <= 8
    assert len(state.values) == len(sizes) + 1


def test_chunks_that_are_not_wanted_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "CHUNK", 4)
    state, asked = MemoryState(), Counter[str]()
    values = [None, float("nan"), *map(float, range(20))]
    CELLS.add(CELLS.numbers_of(delta([(("g", a), (1, Decimal(1)), 1) for a in values])), state)

    def from_7_to_9(column: str, least: pa.Array, greatest: pa.Array) -> np.ndarray:
        asked[column] += 1
        assert str(greatest[4].as_py()) == "19.0"
        assert str(greatest[5].as_py()) == "nan"
        ends = zip(least.to_pylist(), greatest.to_pylist(), strict=True)
        return np.array([low <= 9 and high >= 7 for low, high in ends])

    assert CELLS.read(state, from_7_to_9)["a"].to_pylist() == [*map(float, range(4, 12))]
    assert asked == {"a": 1}


def test_more_rows_gone_than_there_were_is_damage() -> None:
    state = MemoryState()
    with pytest.raises(Damaged, match="more rows than they had"):
        CELLS.add(CELLS.numbers_of(delta([(("g", 1.0), (1, Decimal(1)), -1)])), state)
