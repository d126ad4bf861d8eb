"""Samples of tables: bounded, spread over all keys, and whole where a table is small."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import everview as ev
from everview.stores.embedded.sampling import RANGE, RANGE_ROWS, RANGES

KINDS = {"INT": lambda i: i, "STRING": lambda i: f"{i:07d}" + "x" * (i % 3)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [0, 1, 50, 40_000])
def test_a_sample_is_bounded_and_of_rows_from_everywhere(
    db: ev.Database, kind: str, rows: int
) -> None:
    table = db.create_table("t", {"id": kind, "n": "INT"}, key="id")
    ids = pa.array([KINDS[kind](i) for i in range(rows)], pa.int32() if kind == "INT" else None)
    if rows:
        table.put(pa.table({"id": ids, "n": np.arange(rows, dtype=np.int32)}))
    found = db.store.sample("t", ["n"])
    assert found.column_names == ["n", RANGE]
    numbers = found["n"].to_numpy()
    assert len(np.unique(numbers)) == len(numbers) == min(rows, len(numbers))
    if rows <= RANGES * RANGE_ROWS:
        assert len(numbers) == rows
    else:
        assert RANGES * RANGE_ROWS / 4 < len(numbers) <= RANGES * RANGE_ROWS
        tenths = np.bincount(numbers * 10 // rows, minlength=10)
        assert tenths.min() > len(numbers) / 40
    assert db.store.sample("t", ["n"]).equals(found)


def test_what_was_neighbouring_in_the_table_is_in_one_range(db: ev.Database) -> None:
    table = db.create_table("t", {"a": "INT", "b": "INT"}, key=["a", "b"])
    each, count = 5, 8_000
    table.put(
        pa.table(
            {
                "a": pa.array(np.repeat(np.arange(count), each), pa.int32()),
                "b": pa.array(np.tile(np.arange(each), count), pa.int32()),
            }
        )
    )
    found = db.store.sample("t", ["a"]).group_by("a").aggregate([(RANGE, "count_distinct")])
    assert pc.mean(found[f"{RANGE}_count_distinct"]).as_py() < 1.05
