"""TPC-DS queries as views, equal to DuckDB's or Spark's recomputation at every epoch.

A few queries on Sail; with --long all of them, in databases of ten views.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

import everview as ev
from everview.engines.engine import Engine
from tests.tpcds import queries, tables, trial
from tests.tpcds.oracle import Answer
from tests.tpcds.queries import Query
from tests.tpcds.trial import FAILED, INCREMENTAL, REFUSED, Trial, create

QUERIES = queries.read(limit=5)
CHEAP = ("q1", "q3", "q43", "q65", "q93", "q96")
SCALE, SHARE = 0.01, 20
EPOCHS, SIZE = 2, 200
TOGETHER = 10

Opened = Callable[[], AbstractContextManager[ev.Database]]


def chosen(long: bool) -> list[list[Query]]:
    names = list(QUERIES) if long else list(CHEAP)
    groups = [names[at : at + TOGETHER] for at in range(0, len(names), TOGETHER)]
    return [[QUERIES[name] for name in group] for group in groups]


@pytest.fixture(scope="module")
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the tables that the queries read."""
    directory = tmp_path_factory.mktemp("tpcds")
    groups = chosen(request.config.getoption("--long"))
    read = {table for group in groups for query in group for table in query.tables}
    names = [name for name in tables.KEYS if name in read]
    path = directory / "tpcds.ev"
    with ev.open(path, create=True, durability="never") as db:
        tables.create(db, tables.rows(directory, SCALE, SHARE, names))
    return path


@pytest.fixture
def opened(sail: Engine, base: Path, tmp_path: Path) -> Opened:
    """Opens a copy of the database."""

    numbers = count()

    @contextmanager
    def copy() -> Iterator[ev.Database]:
        # each at a path of its own: an engine keeps what it opened
        path = shutil.copytree(base, tmp_path / f"{next(numbers)}.ev")
        with ev.open(path, durability="never") as db:
            db.engines.use(sail)
            yield db
        shutil.rmtree(path)

    return copy


@pytest.mark.skipif(not QUERIES, reason="the TPC-DS queries are not beside the project")
def test_the_queries_are_refused_or_exact_at_every_epoch(
    opened: Opened, request: pytest.FixtureRequest
) -> None:
    long = request.config.getoption("--long")
    outcomes = []
    for group in chosen(long):
        with opened() as db:
            tried = [create(db, query) for query in group]
            if any(outcome.maintained for outcome in tried):
                Trial(db, group, tried).run(EPOCHS, SIZE)
            outcomes += tried
    wrong = {outcome.query: outcome.wrong for outcome in outcomes if outcome.wrong}
    failed = {o.query: o.reason for o in outcomes if o.verdict == FAILED}
    assert (wrong, failed) == ({}, {})
    kept = {outcome.query: outcome for outcome in outcomes if outcome.query in CHEAP}
    assert {outcome.verdict for outcome in kept.values()} == {INCREMENTAL}
    assert all(outcome.exact and outcome.checks == EPOCHS + 1 for outcome in kept.values())
    assert sum(outcome.changed > 0 for outcome in kept.values()) >= 4


@pytest.fixture
def stores(db: ev.Database, sail: Engine) -> ev.Database:
    """A database with two stores."""
    schema = pa.schema([pa.field("s_store_sk", pa.int32(), False), ("s_state", pa.string())])
    tables.create(db, {"store": pa.table([[1, 2], ["TN", "GA"]], schema=schema)})
    db.engines.use(sail)
    return db


def test_a_wrong_row_is_told_with_the_epoch(
    stores: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query("states", "SELECT s_state, count(*) AS stores FROM store GROUP BY s_state")
    outcome = create(stores, query)
    compare = trial.differences

    def one_row_twice(view: pa.Table, wanted: Answer) -> list[str]:
        return compare(pa.concat_tables([view, view.slice(0, 1)]), wanted)

    monkeypatch.setattr(trial, "differences", one_row_twice)
    Trial(stores, [query], [outcome]).run(1, 2)
    assert not outcome.exact
    assert outcome.oracle == "spark"
    assert [line.split(" (")[0] for line in outcome.wrong] == [
        "loaded: too much:",
        "epoch 1: too much:",
    ]


def test_a_view_that_stops_is_failed_and_the_reason_says_whether_spark_fails_too(
    stores: ev.Database,
) -> None:
    query = Query("shares", "SELECT s_state, 1 / (s_store_sk - 1) AS share FROM store")
    outcome = create(stores, query)
    Trial(stores, [query], [outcome]).run(0, 0)
    assert outcome.verdict == FAILED
    assert outcome.reason.startswith("as does Spark: ")


def test_a_query_that_cannot_be_a_view_is_refused_with_the_reason(stores: ev.Database) -> None:
    outcome = create(stores, Query("other", "SELECT nothing FROM store"))
    assert outcome.verdict == REFUSED
    assert "nothing" in outcome.reason
