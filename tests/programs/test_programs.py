"""Programs that are made once and run for many epochs."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import everview as ev
from everview.catalog import VIEWS
from everview.engines.engine import Engine
from everview.maintain.views import maintenance_paused
from everview.programs import programs, workers
from everview.programs.workers import Step
from tests.records import record_of

pytestmark = pytest.mark.on_the_engine


@pytest.mark.parametrize("few", [0, 20_000], ids=["spread", "in one partition"])
def test_a_program_is_run_again(
    few: int, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everview.programs.step.FEW_CHANGES", few)
    made: list[Any] = []
    program = programs.Program

    def counted(*args: Any, **options: Any) -> Any:
        made.append(program(*args, **options))
        return made[-1]

    monkeypatch.setattr(programs, "Program", counted)
    with ev.open(tmp_path / "t.ev", create=True) as db:
        db.engines.use(engine)
        a = db.create_table("a", {"id": "INT", "k": "INT"}, key="id")
        b = db.create_table("b", {"k": "INT", "name": "STRING"}, key="k")
        db.sql(
            "CREATE MATERIALIZED VIEW v AS "
            "SELECT name, count(*) AS n FROM a JOIN b USING (k) GROUP BY name"
        )
        b.put([{"k": k, "name": "xy"[k % 2]} for k in range(10)])
        db.maintain()
        made.clear()
        for epoch in range(4):
            a.put([{"id": epoch * 100 + i, "k": i % 10} for i in range(100)])
            assert db.maintain().epochs == 1
            rows = {row["name"]: row["n"] for row in db.view("v").scan()}
            assert rows == {"x": 50 * (epoch + 1), "y": 50 * (epoch + 1)}
        assert len(made) == 1
        b.delete([0])
        db.maintain()
        assert {row["name"]: row["n"] for row in db.view("v").scan()} == {"x": 160, "y": 200}
        assert len(made) == 2  # other tables change, so that it is another program


def followed(db: ev.Database) -> ev.Table:
    """A table whose rows a view counts, after one epoch."""
    table = db.create_table("a", {"id": "INT"}, key="id")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM a")
    db.maintain()
    table.put([{"id": 1}])
    db.maintain()
    return table


def test_a_job_that_does_not_say_its_epoch_does_nothing(engine: Engine, tmp_path: Path) -> None:
    with ev.open(tmp_path / "t.ev", create=True) as db:
        db.engines.use(engine)
        followed(db)
        made = next(reversed(engine.programs._programs.values()))
        with pytest.raises(PySparkException, match="doesn't say for which"):
            made.jobs[0].collect()
        assert [row["n"] for row in db.view("v").scan()] == [1]


def test_a_program_is_made_anew_when_an_operator_keeps_its_state_elsewhere(
    engine: Engine, tmp_path: Path
) -> None:
    """As after a maintainer was superseded in the middle of a write."""
    with ev.open(tmp_path / "t.ev", create=True) as db:
        db.engines.use(engine)
        table = followed(db)
        with maintenance_paused(db.store) as token:
            view = record_of(db, "v")
            ((operator, old),) = view.operators.items()
            states = tmp_path / "t.ev" / "state"
            volume, _, name = old.partition(".")
            shutil.copytree(states / f"volume-{volume}", states / "volume-moved")
            moved = replace(view, states={**view.states, operator: f"moved.{name}"})
            db.store.catalog.write({VIEWS["v"]: moved}, token)
        before = [db.store.states.shard(old, number).work() for number in view.shards]
        table.put([{"id": 2}])
        assert not db.maintain().failed
        assert [row["n"] for row in db.view("v").scan()] == [2]
        after = [db.store.states.shard(old, number).work() for number in view.shards]
        assert after == before, "nobody wrote there any more"


def test_a_program_that_failed_is_not_run_again(
    sail: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task of its job may go on, and must not find the step of another job."""
    with ev.open(tmp_path / "t.ev", create=True) as db:
        db.engines.use(sail)
        table = followed(db)
        failed = next(reversed(sail.programs._programs.values())).name
        asked: list[str | Step] = []

        def step(given: str | Step, found: Any = workers._step) -> Step:
            asked.append(given)
            if given == failed:
                raise RuntimeError("once")
            return found(given)

        monkeypatch.setattr(workers, "_step", step)
        table.put([{"id": 2}])
        assert not db.maintain().failed
        assert failed in asked
        assert [row["n"] for row in db.view("v").scan()] == [2]
        assert failed not in {made.name for made in sail.programs._programs.values()}
        assert not workers.RUNNING
        assert not sail.session.catalog.tableExists(f"{failed}_0")


def test_a_step_comes_back_from_its_text() -> None:
    step = Step("db", (3, 1), 2, 7, {"t": {0: 5, 1: 2**62}}, {"t": {0: 6, 1: 2**62}})
    assert Step.from_json(step.to_json()) == step
    assert step.changes == 1
