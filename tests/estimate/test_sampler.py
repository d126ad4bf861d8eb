"""Samples of a database: what sources, expressions and aggregates make of some of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.estimate.sampler import Sampler
from everview.plan.conditions import Condition
from everview.plan.expressions import Ref
from everview.plan.nodes import Aggregate, Call, Filter, Project, Source
from everview.plan.statistics import RANGE
from everview.schema import Column
from tests.plan.trees import tree

ROWS = 300
COLUMNS = (Column("id_1", pa.int64(), False), Column("value_1", pa.int64()))
TABLE = Source(COLUMNS, "t", ("id", "value"))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "t.ev", create=True) as db:
        db.create_table("t", {"id": "BIGINT", "value": "BIGINT", "other": "STRING"}, "id")
        rows = [{"id": i, "value": None if i % 3 == 0 else i % 10} for i in range(ROWS)]
        db.table("t").put(rows)
        yield db


@pytest.fixture
def sampler(db: ev.Database, spark: Engine) -> Sampler:
    return Sampler(db.store, spark.session)


def test_a_small_table_is_sampled_whole_by_the_names_of_the_source(sampler: Sampler) -> None:
    rows, looked_at = sampler.sample(TABLE)
    assert (rows.column_names, looked_at) == (["id_1", "value_1", RANGE], ROWS)
    assert sorted(rows["id_1"].to_pylist()) == list(range(ROWS))
    assert (sampler.rows("t"), sampler.key("t")) == (ROWS, ("id",))


def test_conditions_of_a_source_choose_rows_of_its_sample(sampler: Sampler) -> None:
    above = Source(COLUMNS[:1], "t", ("id",), where=(Condition("value", ">", ("5",)),))
    rows, looked_at = sampler.sample(above)
    expected = [i for i in range(ROWS) if i % 3 and i % 10 > 5]
    assert (sorted(rows["id_1"].to_pylist()), looked_at) == (expected, ROWS)


def test_rows_are_found_by_their_keys(sampler: Sampler) -> None:
    found = sampler.find(TABLE, pa.table({"id": pa.array([1, 4, ROWS], pa.int64())}))
    assert found.to_pylist() == [{"id_1": 1, "value_1": 1}, {"id_1": 4, "value_1": 4}]


def test_expressions_are_computed_by_the_engine_and_plain_choices_are_not(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, _ = sampler.sample(TABLE)
    sums = Project((COLUMNS[0],), TABLE, (tree("({id_1} + {value_1})"),))
    computed = sampler.compute(sums, TABLE, rows)
    assert computed is not None
    expected = [i + i % 10 for i in range(ROWS) if i % 3]
    assert sorted(x for x in computed["id_1"].to_pylist() if x is not None) == sorted(expected)
    assert computed["id_1"].null_count == ROWS // 3
    monkeypatch.setattr(sampler, "_session", None)
    chosen = Project(
        COLUMNS[:1], Filter(COLUMNS, TABLE, tree("({value_1} IS NOT NULL)")), (Ref("id_1"),)
    )
    plain = sampler.compute(chosen, TABLE, rows)
    assert plain is not None
    assert sorted(plain["id_1"].to_pylist()) == [i for i in range(ROWS) if i % 3]


def test_an_expression_that_fails_on_a_row_gives_no_sample(sampler: Sampler) -> None:
    rows, _ = sampler.sample(TABLE)
    failing = Project(COLUMNS[:1], TABLE, (tree("raise_error('no')"),))
    assert sampler.compute(failing, TABLE, rows) is None


def test_groups_are_told_apart_by_the_range_of_keys_they_come_from(sampler: Sampler) -> None:
    rows, _ = sampler.sample(TABLE)
    total = Column("total", pa.int64())
    node = Aggregate((COLUMNS[1], total), TABLE, ("value_1",), (Call("sum", "id_1"),))
    groups = sampler.aggregate(node, rows)
    assert groups is not None
    assert groups.column_names == ["value_1", "total", RANGE]
    assert sum(groups["total"].to_pylist()) == sum(range(ROWS))
