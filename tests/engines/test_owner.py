"""Who starts engines, and how often."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.engines.owner import Engines
from everview.errors import EngineUnavailable


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """The engines that were started, with the sessions that they are to be beside."""
    found: list[tuple[str, Any]] = []

    def start(name: str, beside: Any = None) -> Any:
        found.append((name, beside))
        return SimpleNamespace(name=name, has_optimizer=name == "spark" and beside != "connect")

    monkeypatch.setattr("everview.engines.engine.start", start)
    return found


def test_an_engine_is_started_once_when_it_is_first_needed(started: list[Any]) -> None:
    engines = Engines("spark")
    assert started == []
    assert engines.own is engines.named(None) is engines.named("spark") is engines.planner
    assert started == [("spark", None)]
    assert engines.named("sail") is engines.named("sail")
    assert started == [("spark", None), ("sail", None)]


def test_no_engine_is_started_for_another(started: list[Any]) -> None:
    engines = Engines("spark")
    assert engines.named("sail").name == "sail"
    assert started == [("sail", None)]
    assert not engines.interrupt()


def test_views_that_sail_runs_are_planned_by_spark(started: list[Any]) -> None:
    engines = Engines("sail")
    assert engines.planner is engines.planner
    assert engines.planner.name == "spark"
    assert started == [("spark", None)]
    assert engines.own.name == "sail"


def test_an_engine_works_beside_the_session_of_a_user(started: list[Any]) -> None:
    engines = Engines("spark", "mine")  # type: ignore[arg-type]
    assert engines.own is engines.planner
    assert started == [("spark", "mine")]


def test_over_spark_connect_another_spark_plans(started: list[Any]) -> None:
    engines = Engines("spark", "connect")  # type: ignore[arg-type]
    assert engines.planner is not engines.own
    assert started == [("spark", "connect"), ("spark", None)]


def test_an_unknown_engine_is_refused(started: list[Any]) -> None:
    with pytest.raises(EngineUnavailable, match="there is no engine 'flink'"):
        Engines("flink")


def test_a_session_of_a_user_stays_as_it_is(spark: Engine, tmp_path: Path) -> None:
    mine = spark.session.newSession()
    mine.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    with ev.open(tmp_path / "t.ev", create=True, spark=mine) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP)")
        db.sql("INSERT INTO t VALUES (1, TIMESTAMP'2020-01-01 00:00:00 UTC')")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT id, hour(at) AS h FROM t")
        assert db.maintain().failed == {}
        assert db.view("v").to_arrow().to_pylist() == [{"id": 1, "h": 0}]
        assert db.engine.session.sparkContext is mine.sparkContext
        assert db.engine.session is not mine
    assert mine.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    assert mine.catalog.listTables() == []
