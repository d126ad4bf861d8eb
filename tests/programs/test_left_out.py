"""Operators that an engine leaves out of its plan are run after all, or nothing is committed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.errors import EngineFailed
from everview.plan import rules
from everview.plan.expressions import readable
from everview.plan.nodes import Filter
from everview.plan.rules import fold_what_is_empty
from everview.programs import left_out, workers
from everview.programs.computed import Computed
from tests.records import change_record

pytestmark = pytest.mark.on_the_engine

SHOWN = "SELECT t.k1, t.k2, u.k FROM t FULL JOIN u ON"
BELOW = f"{SHOWN} t.k1 < u.k"
MATCHES = [(1, 0, 4), (1, 0, 9), (2, 0, 4), (2, 0, 9)]


@pytest.fixture
def unfolded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave it to the engine to fold."""
    others = tuple(rule for rule in rules.RULES if rule is not fold_what_is_empty)
    monkeypatch.setattr(rules, "RULES", others)


def database(path: Path, engine: Engine) -> Iterator[ev.Database]:
    with ev.open(path / "pairs.ev", create=True) as db:
        db.engines.use(engine)
        db.sql("CREATE TABLE t (k1 INT, k2 INT, PRIMARY KEY (k1, k2))")
        db.sql("CREATE TABLE u (k INT PRIMARY KEY)")
        db.sql("INSERT INTO t VALUES (1, 0), (2, 0)")
        db.sql("INSERT INTO u VALUES (4)")
        yield db


@pytest.fixture
def pairs(tmp_path: Path, sail: Engine, spark: Engine) -> Iterator[ev.Database]:
    yield from database(tmp_path, sail)


@pytest.fixture
def either(tmp_path: Path, engine: Engine, spark: Engine) -> Iterator[ev.Database]:
    yield from database(tmp_path, engine)


def create(db: ev.Database, **views: str) -> None:
    for name, query in views.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")


def rows(db: ev.Database, view: str) -> list[Any]:
    found = [tuple(row.values()) for row in db.view(view).scan()]
    return sorted(found, key=lambda row: [(value is None, value) for value in row])


@pytest.mark.usefixtures("unfolded")
def test_a_join_below_a_condition_that_is_never_true_has_its_state(either: ev.Database) -> None:
    create(either, a_stacked=f"{SHOWN} 1 = 0", below=BELOW)
    assert either.maintain().failed == {}
    either.sql("INSERT INTO u VALUES (9)")
    either.maintain()
    assert rows(either, "below") == MATCHES
    assert rows(either, "a_stacked") == [
        *[(1, 0, None), (2, 0, None)],
        *[(None, None, 4), (None, None, 9)],
    ]


@pytest.mark.usefixtures("unfolded")
@pytest.mark.parametrize("on", ["t.k1 IS NULL", "u.k IS NULL", "t.k1 = u.k AND 1 = 0"])
def test_other_conditions_that_are_never_true(pairs: ev.Database, on: str) -> None:
    create(
        pairs,
        a_stacked=f"{SHOWN} {on}",
        below=BELOW,
        number="SELECT count(*) AS n FROM t LEFT JOIN u ON t.k1 < u.k",
    )
    pairs.maintain()
    pairs.sql("INSERT INTO u VALUES (9)")
    pairs.maintain()
    assert rows(pairs, "below") == MATCHES
    assert rows(pairs, "number") == [(4,)]


@pytest.mark.parametrize("few", [0, 20_000])
def test_a_condition_that_an_engine_folds_takes_no_rows_from_the_join_below_it(
    either: ev.Database, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sail makes `false` of two equalities, and moves that to the rows that the join is to get."""
    monkeypatch.setattr("everview.programs.step.FEW_CHANGES", few)
    create(either, a_stacked=f"{SHOWN} t.k1 = 1 AND t.k1 = 2", below=BELOW)
    assert either.maintain().failed == {}
    either.sql("INSERT INTO t VALUES (3, 0)")
    assert either.maintain().failed == {}
    assert rows(either, "below") == [(1, 0, 4), (2, 0, 4), (3, 0, 4)]
    either.sql("DELETE FROM u WHERE k = 4")
    assert either.maintain().failed == {}
    alone_of_t = [(1, 0, None), (2, 0, None), (3, 0, None)]
    assert rows(either, "a_stacked") == rows(either, "below") == alone_of_t


def test_a_view_whose_join_can_have_no_pairs_keeps_no_join(pairs: ev.Database) -> None:
    create(pairs, stacked=f"{SHOWN} 1 = 0", nothing="SELECT k1 FROM t WHERE k2 > 0 AND 1 = 0")
    pairs.maintain()
    plan = pairs.explain("stacked")
    assert "join" not in plan
    assert "source t" in plan
    assert "constant (0 rows)" in pairs.explain("nothing")
    assert rows(pairs, "stacked") == [(1, 0, None), (2, 0, None), (None, None, 4)]
    assert rows(pairs, "nothing") == []


@pytest.fixture
def prunes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimizer that knows better than ours which conditions never hold."""
    expressed = Computed.expressed

    def pruned(self: Computed, node: Any, frame: Any) -> Any:
        made = expressed(self, node, frame)
        folds = isinstance(node, Filter) and "-5" in readable(node.condition)
        return made.where("false") if folds else made

    monkeypatch.setattr(Computed, "expressed", pruned)


@pytest.mark.usefixtures("prunes")
@pytest.mark.parametrize("few", [0, 20_000])
def test_what_an_engine_finds_needless_is_there_for_others(
    either: ev.Database, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few rows in one task, and with each shard in a task of its own."""
    monkeypatch.setattr("everview.programs.step.FEW_CHANGES", few)
    ran: list[str] = []
    has_ended = left_out._has_ended
    monkeypatch.setattr(
        left_out, "_has_ended", lambda duty, step: has_ended(duty, step) or ran.append(duty.name)
    )
    joined = "SELECT k1, max(k) AS k FROM t JOIN u ON t.k2 = u.k GROUP BY k1"
    create(either, a=f"SELECT * FROM ({joined}) WHERE k < -5 - k1", b=joined)
    either.sql("INSERT INTO u VALUES (0)")
    either.maintain()
    assert ran
    assert rows(either, "b") == [(1, 0), (2, 0)]
    either.sql("DELETE FROM t WHERE k1 = 2")
    either.maintain()
    assert rows(either, "b") == [(1, 0)]


def test_an_operator_that_never_runs_is_no_epoch(
    pairs: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that leaves an operator out even where its answer is asked for."""
    create(pairs, sums="SELECT k2, sum(k1) AS total FROM t GROUP BY k2")
    pairs.maintain()
    epoch = pairs.view("sums").epoch
    pairs.sql("INSERT INTO t VALUES (5, 0)")

    def skipped(task: Any, *given: Any) -> Iterator[Any]:
        list(given[-1])
        yield from ()

    with monkeypatch.context() as planted:
        planted.setattr(workers, "operate", skipped)
        planted.setattr(workers, "operate_ahead", skipped)
        with pytest.raises(EngineFailed, match=r"did not run aggregate by \(k2\)"):
            pairs.maintain()
    assert (pairs.view("sums").epoch, rows(pairs, "sums")) == (epoch, [(0, 3)])
    pairs.maintain()
    assert rows(pairs, "sums") == [(0, 8)]


def test_an_operator_that_is_skipped_once_is_run_alone(
    pairs: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(pairs, sums="SELECT k2, sum(k1) AS total FROM t GROUP BY k2 HAVING sum(k1) > 100")
    pairs.maintain()
    pairs.sql("INSERT INTO t VALUES (5, 0)")

    def skipped(task: Any, batches: Iterator[Any]) -> Iterator[Any]:
        list(batches)
        yield from ()

    with monkeypatch.context() as planted:
        planted.setattr(workers, "operate", skipped)
        pairs.maintain()  # what it leaves out has no row for the view
    create(pairs, other="SELECT k2 FROM t")  # so that the program is made anew
    pairs.maintain()
    pairs.sql("INSERT INTO t VALUES (200, 0)")
    pairs.maintain()
    assert rows(pairs, "sums") == [(0, 208)]


@pytest.mark.parametrize("noted", [0, 1])
def test_views_whose_state_may_lack_rows_are_made_anew(pairs: ev.Database, noted: int) -> None:
    """Those from before operators noted their end, and from before an end meant all rows."""
    create(pairs, sums="SELECT k2, sum(k1) AS total FROM t GROUP BY k2")
    pairs.maintain()
    change_record(pairs, "sums", load_notes=noted)
    assert pairs.maintain().loaded == ["sums"]
    assert pairs.maintain().loaded == []
    assert rows(pairs, "sums") == [(0, 3)]
