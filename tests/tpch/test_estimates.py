"""What EXPLAIN expects of a view before it is created, against what is measured afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.tpch import QUERIES, create_tables
from everview.tpch.changes import ORDERS_AND_LINES, Changes, apply

VIEWS = ("q1", "q3", "q5", "q6", "q12", "q18")
WITHIN = 3
FEWEST = 30  # rows, reads or writes of an operator below which nothing is compared
EPOCHS, SIZE = 3, 1_000
COSTS = ("rows_in", "rows_out", "reads", "writes")
Document = dict[str, Any]


@pytest.fixture(scope="module")
def db(
    sail: Engine, rows: dict[str, pa.Table], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ev.Database]:
    path = tmp_path_factory.mktemp("estimates") / "tpch.ev"
    with ev.open(path, create=True, durability="never", engine="sail") as database:
        database.engines.use(sail)
        create_tables(database)
        for name, table in rows.items():
            database.table(name).put(table)
        yield database


@pytest.fixture(scope="module")
def states(db: ev.Database) -> dict[str, tuple[Document, Document]]:
    """Of each view what is expected, and how it is once it is loaded."""
    before = {view: expected(db, view) for view in VIEWS}
    for view in VIEWS:
        db.sql(f"CREATE MATERIALIZED VIEW {view} AS {QUERIES[view]}")
    assert db.maintain().failed == {}
    return {view: (before[view], db.explain(view, json=True)) for view in VIEWS}


def expected(db: ev.Database, view: str) -> Document:
    return db.explain(f"CREATE MATERIALIZED VIEW {view}_too AS {QUERIES[view]}", json=True)


def operators(document: Document) -> dict[str, Document]:
    """The nodes that have state, by identity."""
    found: dict[str, Document] = {}

    def walk(node: Document) -> None:
        if node["runs"] == "operator":
            found[node.get("identity", "view")] = node
        for one in node["inputs"]:
            walk(one)

    walk(document["plan"])
    return found


def is_near(guess: float, real: float) -> bool:
    return real / WITHIN <= guess <= real * WITHIN


@pytest.mark.parametrize("view", VIEWS)
def test_state_is_as_large_as_expected(
    states: dict[str, tuple[Document, Document]], view: str
) -> None:
    before, after = states[view]
    wrong = []
    guesses, loaded = operators(before), operators(after)
    for name, node in loaded.items():
        guess, real = guesses[name]["estimate"]["state"], node["state"]
        if real["rows"] >= FEWEST and not is_near(guess["rows"], real["rows"]):
            wrong.append((node["label"], guess, real))
        if real["rows"] >= FEWEST and not is_near(guess["bytes"], real["bytes"]):
            wrong.append((node["label"], guess, real))
    assert not wrong
    for what in ("rows", "bytes"):
        assert is_near(before["estimate"]["state"][what], after["state"][what])
    assert before["estimate"]["load_seconds"] > 0


@pytest.fixture(scope="module")
def changed(
    db: ev.Database, rows: dict[str, pa.Table], states: dict[str, tuple[Document, Document]]
) -> ev.Database:
    changes = Changes(rows, np.random.default_rng(3))
    for _ in range(EPOCHS):
        apply(db, changes.epoch(SIZE, ORDERS_AND_LINES))
        db.maintain()
    return db


@pytest.mark.parametrize("view", VIEWS)
def test_changes_take_as_many_rows_reads_and_writes_as_expected(
    changed: ev.Database, view: str
) -> None:
    guesses = operators(expected(changed, view))
    found = changed.view(view).analyze()
    assert found is not None
    wrong = []
    compared = 0
    for name, node in guesses.items():
        work = found.operators[name].whole
        real = dict(zip(COSTS, (work.rows_in, work.rows_out, work.reads, work.writes), strict=True))
        for what in COSTS:
            by_table = node["estimate"]["per_1000_changes"]
            guess = sum(found.changes[t] / 1_000 * one[what] for t, one in by_table.items())
            if real[what] >= FEWEST:
                compared += 1
                if not is_near(guess, real[what]):
                    wrong.append((node["label"], what, round(guess), real[what]))
    assert not wrong
    assert compared
