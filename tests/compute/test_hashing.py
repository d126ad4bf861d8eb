"""Rows are placed by the same hash here, on Spark and on Sail."""

from __future__ import annotations

import pyarrow as pa

from everview.compute.hashing import hash_of, hashes, is_hashed
from everview.engines.engine import Engine
from everview.plan.placing import hashed
from everview.schema import Column
from tests.breadth.hurting import table

ROWS = table()
HASHED = [name for name in ROWS.column_names if is_hashed(ROWS.schema.field(name).type)]


def test_every_column_that_places_rows_is_hashed_as_the_engine_does(engine: Engine) -> None:
    frame = engine.session.createDataFrame(ROWS.select(HASHED))
    several = [("int_1", "str_1"), ("str_1", "str_2", "long_1"), ("date_1", "dec_1", "bin_1")]
    for names in [*((name,) for name in HASHED), *several]:
        there = frame.selectExpr(f"xxhash64({', '.join(names)}) AS h").toArrow()["h"].to_pylist()
        here = hashes([ROWS[name].combine_chunks() for name in names], ROWS.num_rows)
        assert here.tolist() == there, names


def test_a_single_row_has_the_hash_of_its_column() -> None:
    known = 0
    for names in [*((name,) for name in HASHED), ("int_1", "str_1", "date_1"), ("long_1", "str_2")]:
        columns = [ROWS[name].combine_chunks() for name in names]
        every = hashes(columns, ROWS.num_rows).tolist()
        types = [ROWS.schema.field(name).type for name in names]
        for row, expected in zip(ROWS.select(names).to_pylist(), every, strict=True):
            found = hash_of(list(zip(types, row.values(), strict=True)))
            assert found in (None, expected), (names, row)
            known += found is not None
    assert known > ROWS.num_rows * 5
    assert hash_of([(pa.int32(), 2**40)]) is None
    assert hash_of([(pa.int64(), "1")]) is None
    assert hash_of([(pa.bool_(), True)]) is None


def test_a_slice_has_the_hashes_of_its_rows() -> None:
    for name in HASHED:
        column = ROWS[name].combine_chunks()
        part = hashes([column.slice(3, 7)], 7)
        assert part.tolist() == hashes([column], len(column))[3:10].tolist(), name


def test_no_type_that_places_rows_is_missing() -> None:
    columns = [Column(field.name, field.type) for field in ROWS.schema]
    placing = {min(place) for place in hashed(columns, ROWS.column_names)}
    assert placing <= set(HASHED)
    assert pa.types.is_floating(ROWS.schema.field("double_1").type)
    assert "double_1" not in placing
