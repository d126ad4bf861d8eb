"""All 22 TPC-H queries as views of one database, equal to DuckDB's recomputation at every epoch.

A few epochs on Sail; with --long there are 30, and Spark does the same.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.programs import step
from everview.tpch import KEYS, QUERIES, create_tables
from everview.tpch.changes import Changes, Mix, apply
from tests.tpch.oracle import Row, check, tables_of

EPOCHS = 2
SIZE = 400
ARRIVING = Mix(insert=0.85, update=0.05, move=0.05, delete=0.05, revived=1)
ONE_ROW = {"q6", "q14", "q17", "q19"}


@pytest.fixture
def epochs(engine: Engine, request: pytest.FixtureRequest) -> int:
    if request.config.getoption("--long"):
        return 30
    if engine.name == "spark":
        pytest.skip("22 views on Spark take minutes: make test-all")
    return EPOCHS


@pytest.fixture(scope="module")
def created(spark: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the tables and the views, which nothing has loaded yet."""
    path = tmp_path_factory.mktemp("views") / "tpch.ev"
    with ev.open(path, create=True) as db:
        create_tables(db)
        for name, query in QUERIES.items():
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    return path


@pytest.fixture
def db(engine: Engine, created: Path, tmp_path: Path) -> Iterator[ev.Database]:
    path = shutil.copytree(created, tmp_path / "tpch.ev")
    with ev.open(path) as database:
        database.engines.use(engine)
        yield database


@pytest.fixture(autouse=True)
def several_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second epoch, about, is spread over several partitions, as a large one would be."""
    monkeypatch.setattr(step, "FEW_CHANGES", SIZE)


def maintain(db: ev.Database) -> None:
    assert db.maintain().failed == {}


def put_all(db: ev.Database, tables: dict[str, pa.Table]) -> None:
    for name, table in tables.items():
        db.table(name).put(table)


def contents(db: ev.Database) -> dict[str, Counter[Row]]:
    tables = {name: db.view(name).to_arrow() for name in QUERIES}
    return {
        name: Counter(map(tuple, map(dict.values, table.to_pylist())))
        for name, table in tables.items()
    }


def check_that_everything_goes_and_comes_back(db: ev.Database) -> None:
    tables, before = tables_of(db), contents(db)
    for name, table in tables.items():
        db.table(name).delete(table.select([*KEYS[name]]))
    maintain(db)
    check(db, when="without rows")
    one_row = {name: Counter([(None,)]) for name in ONE_ROW}
    assert contents(db) == {name: one_row.get(name, Counter()) for name in QUERIES}
    put_all(db, tables)
    maintain(db)
    assert contents(db) == before


def test_views_over_loaded_tables_follow_random_changes(
    db: ev.Database, rows: dict[str, pa.Table], epochs: int
) -> None:
    put_all(db, rows)
    maintain(db)
    check(db, when="loaded")
    changes = Changes(rows, np.random.default_rng(22))
    for number in range(1, epochs + 1):
        apply(db, changes.epoch(SIZE))
        maintain(db)
        check(db, when=f"epoch {number}")
    check_that_everything_goes_and_comes_back(db)


def test_views_over_empty_tables_follow_rows_as_they_arrive(
    db: ev.Database, rows: dict[str, pa.Table], epochs: int
) -> None:
    maintain(db)
    check(db, when="empty")
    changes = Changes(rows, np.random.default_rng(33), keys="zipf", nulls=0.02, loaded=False)
    # as many of each table as it has rows, but nations from the first
    shares = {name: float(max(len(table), 100)) for name, table in rows.items()}
    pieces = [300, *[12_000] * max(1, epochs // 4)]
    for number in range(1, epochs + 1):
        if number <= len(pieces):
            apply(db, changes.epoch(pieces[number - 1], shares, ARRIVING))
        else:
            apply(db, changes.epoch(SIZE))
        maintain(db)
        check(db, when=f"epoch {number}")
    check_that_everything_goes_and_comes_back(db)
