"""Operators that are run ahead of others: once, however many read them, and like all others when
the process ends in between."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.plan.nodes import Filter, Node, Source
from everview.programs import programs, workers
from everview.programs.program import Program
from everview.programs.step import Step
from everview.schema import Column
from tests.plan.trees import tree
from tests.records import all_states

pytestmark = pytest.mark.on_the_engine

LEVELS = 9  # each reads the one before twice
NESTED = (
    "WITH a AS (SELECT g, sum(x) AS s, count(*) AS n FROM t GROUP BY g), "
    "b AS (SELECT a.g, a.s + c.s AS s, c.n FROM a JOIN a AS c ON a.n = c.n), "
    "c AS (SELECT b.g, b.s - d.n AS s, d.n FROM b JOIN b AS d ON b.g = d.g) "
    "SELECT c.g, count(*) AS n, sum(c.s) AS s FROM c JOIN c AS e ON c.n = e.n GROUP BY c.g"
)


@pytest.fixture
def db(engine: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "t.ev", create=True, durability="never") as db:
        db.engines.use(engine)
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT, x INT)")
        db.table("t").put([{"k": k, "g": k % 5, "x": k % 3} for k in range(40)])
        yield db


def change(db: ev.Database, chance: random.Random) -> None:
    rows = [
        {"k": chance.randrange(60), "g": chance.choice([0, 1, 2, 3, 4, 5, None]), "x": k}
        for k in range(8)
    ]
    db.table("t").put(rows)
    db.table("t").delete([chance.randrange(60), chance.randrange(60)])


def found(db: ev.Database, view: str) -> list[tuple[Any, ...]]:
    rows = [tuple(row.values()) for row in db.view(view).scan()]
    return sorted(rows, key=lambda row: [(one is None, one) for one in row])


def expected(db: ev.Database) -> dict[int | None, int]:
    """What the last of the chain has, from the rows of the table."""
    sums: dict[int | None, int] = {}
    for row in db.table("t").scan():
        sums[row["g"]] = sums.get(row["g"], 0) + row["x"]
    return {g: s * 2**LEVELS for g, s in sums.items()}


def create_chain(db: ev.Database) -> None:
    db.sql("CREATE MATERIALIZED VIEW z0 AS SELECT g, sum(x) AS s FROM t GROUP BY g")
    for level in range(1, LEVELS + 1):
        name = f"{'zyx'[level % 3]}{level}"  # they are not loaded in the order of their names
        before = f"{'zyx'[(level - 1) % 3]}{level - 1}"
        db.sql(
            f"CREATE MATERIALIZED VIEW {name} AS SELECT a.g, a.s + b.s AS s FROM {before} a "
            f"JOIN {before} b ON a.g <=> b.g"
        )


def test_views_that_read_the_one_before_twice(db: ev.Database) -> None:
    create_chain(db)
    assert db.maintain().failed == {}
    assert dict(found(db, "z9")) == expected(db)
    chance = random.Random(1)
    for _ in range(3):
        change(db, chance)
        assert (report := db.maintain()).epochs == 1
        assert report.failed == {}
        assert dict(found(db, "z9")) == expected(db)


@pytest.mark.parametrize("few", [0, 20_000], ids=["spread", "in one partition"])
def test_parts_of_one_query_that_are_read_twice(
    few: int,
    db: ev.Database,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Loaded and maintained ahead; also where another view keeps their state already."""
    if few and db.engine.name == "spark" and not request.config.getoption("--long"):
        pytest.skip("with --long")
    monkeypatch.setattr("everview.programs.step.FEW_CHANGES", few)
    db.sql(f"CREATE MATERIALIZED VIEW v AS {NESTED}")
    assert db.maintain().failed == {}
    db.sql(f"CREATE MATERIALIZED VIEW w AS {NESTED} HAVING n > 2")
    chance = random.Random(2)
    for _ in range(3):
        assert db.maintain().failed == {}
        for view in ("v", "w"):
            assert db.verify(view).equal
        change(db, chance)
    assert {*db.store.states.names()} == all_states(db), (
        "what went from job to job in a load is gone"
    )


def test_each_operator_is_run_once(
    sail: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: list[tuple[str | None, int]] = []

    def operated(
        task: workers.Task, rows: workers.PartRows, work: Any = workers._apply_operator
    ) -> Any:
        run.append((task.state, rows.part.shard))
        return work(task, rows)

    monkeypatch.setitem(workers._KINDS, "operator", operated)
    monkeypatch.setattr(programs, "jobs", _always(programs.jobs))
    with ev.open(tmp_path / "t.ev", create=True) as db:
        db.engines.use(sail)
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT, x INT)")
        create_chain(db)
        db.maintain()
        run.clear()
        db.table("t").put({"k": 1, "g": 2, "x": 3})
        db.maintain()
        assert len(run) == len(set(run)) == LEVELS + 1
        run.clear()
        db.sql("CREATE MATERIALIZED VIEW over AS SELECT g, count(*) AS n FROM z9 GROUP BY g")
        db.maintain()
        assert len(run) == 1, "the rows of the view that it reads are there"
        assert found(db, "over") == [(2, 1)]


def _always(jobs: Any) -> Any:
    return lambda plans, worth=1, **options: jobs(plans, worth=1, **options)


@pytest.mark.parametrize("after", range(1, 5))
def test_a_process_that_ends_between_two_jobs(
    after: int, sail: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch is run again: what was run ahead is not, and gives what it gave."""
    with ev.open(tmp_path / "t.ev", create=True) as db:
        db.engines.use(sail)
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT, x INT)")
        create_chain(db)
        db.maintain()
        db.table("t").put([{"k": k, "g": k % 4, "x": k} for k in range(20)])
        with monkeypatch.context() as broken:
            done: list[None] = []

            def touched(job: Any, work: Any = programs.touched) -> int:
                done.append(None)
                if len(done) > after:
                    raise KeyboardInterrupt
                return int(work(job))

            broken.setattr(programs, "jobs", _always(programs.jobs))
            broken.setattr(programs, "touched", touched)
            with pytest.raises(KeyboardInterrupt):
                db.maintain()
        db.table("t").delete([3])
        assert db.maintain().failed == {}
        assert dict(found(db, "z9")) == expected(db)


def test_views_over_rows_that_lie_by_columns_which_are_not_shown(db: ev.Database) -> None:
    """Those of a join that doesn't show its key, read by a join that leaves them where they lie."""
    db.sql("CREATE TABLE names (g INT PRIMARY KEY, name STRING)")
    db.table("names").put([{"g": g, "name": f"n{g % 3}"} for g in range(5)])
    db.sql("CREATE MATERIALIZED VIEW named AS SELECT k, name, x FROM t JOIN names USING (g)")
    db.maintain()
    db.sql("CREATE MATERIALIZED VIEW by_name AS SELECT name, sum(x) AS s FROM named GROUP BY name")
    db.sql(
        "CREATE MATERIALIZED VIEW most AS SELECT k, x FROM named WHERE x >= (SELECT avg(x) FROM "
        "named)"
    )
    db.sql(
        "CREATE MATERIALIZED VIEW beside AS SELECT k, m.name FROM named CROSS JOIN (SELECT "
        "max(name) AS name FROM names) m WHERE named.name <> m.name"
    )
    chance = random.Random(3)
    for _ in range(3):
        assert db.maintain().failed == {}
        for view in ("by_name", "most", "beside"):
            assert db.verify(view).equal
        change(db, chance)


def test_a_view_over_zeros_of_both_signs(db: ev.Database) -> None:
    db.sql("CREATE TABLE d (k INT PRIMARY KEY, d DOUBLE)")
    db.table("d").put([{"k": 1, "d": 0.0}, {"k": 2, "d": -0.0}, {"k": 3, "d": 1.5}])
    db.sql("CREATE MATERIALIZED VIEW plain AS SELECT d FROM d")
    db.maintain()
    db.sql("CREATE MATERIALIZED VIEW texts AS SELECT CAST(d AS STRING) AS s FROM plain")
    assert db.maintain().failed == {}
    db.table("d").delete([2])
    assert db.maintain().failed == {}
    assert found(db, "texts") == [("0.0",), ("1.5",)]


def test_a_view_over_maps_that_were_made_in_another_order(db: ev.Database) -> None:
    db.sql("CREATE MATERIALIZED VIEW maps AS SELECT k, map('b', g, 'a', x) AS m FROM t")
    db.maintain()
    db.sql(
        "CREATE MATERIALIZED VIEW firsts AS SELECT map_keys(m)[0] AS f, count(*) AS n FROM maps "
        "GROUP BY 1"
    )
    db.maintain()
    db.table("t").delete([1, 2])
    assert db.maintain().failed == {}
    assert found(db, "firsts") == [("b", 38)]


def test_a_view_over_columns_with_odd_names(db: ev.Database) -> None:
    db.sql("CREATE MATERIALIZED VIEW odds AS SELECT g AS `a.b`, sum(x) AS `c``d` FROM t GROUP BY g")
    db.maintain()
    db.sql("CREATE MATERIALIZED VIEW `over` AS SELECT `a.b`, `c``d` + 1 AS `e f` FROM odds")
    db.sql(
        "CREATE MATERIALIZED VIEW joined AS SELECT o.`a.b`, p.`c``d` FROM odds o JOIN odds p "
        "USING (`a.b`)"
    )
    for _ in range(2):
        assert db.maintain().failed == {}
        assert db.verify("over").equal
        assert db.verify("joined").equal
        db.table("t").put({"k": 3, "g": 1, "x": 100})


def test_frames_of_deep_plans_are_made(sail: Engine) -> None:
    column = Column("id", pa.int64(), False)
    plan: Node = Source((column,), "t", ("id",))
    for i in range(500):
        plan = Filter((column,), plan, tree(f"{{id}} > {i}"))
    step = Step("db", (0,), 1, 1, {"t": {0: 0}}, {"t": {0: 1}})
    assert Program(sail.session, step, {}).frame(plan) is not None
