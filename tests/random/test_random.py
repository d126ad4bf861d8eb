"""Random views over random tables follow random changes: equal to DuckDB after every epoch.

A failure says its seed; `--shrink` makes it small, in the form that `test_found` keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from everview.engines.engine import Engine

from .cases import Case, Failure, Outcome, only, random_case, run_case
from .oracle import differences
from .shrinking import Shrinking, as_text

VIEWS = {"sail": 38, "spark": 10}
SHRUNK = 3  # failures of one case


def test_random_views_equal_recomputation_after_every_epoch(
    case_of: tuple[str, str], total: Outcome, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    engine: Engine = request.getfixturevalue(case_of[0])
    seed, _, place = case_of[1].partition(":")
    case = random_case(int(seed), VIEWS[engine.name])
    if place:
        case = _only(case, int(place))
    outcome = run_case(case, engine, tmp_path / "random.ev")
    total.add(outcome)
    if not outcome.failures:
        return
    told = list(_told(case, outcome.failures, *case_of))
    if request.config.getoption("--shrink"):
        for failure in outcome.failures[:SHRUNK]:
            told.append(f"small:\n{as_text(_small(case, failure, engine, tmp_path))!r}")
    pytest.fail("\n\n".join(told), pytrace=False)


def _only(case: Case, place: int) -> Case:
    """One view of a case; with its three parts, if it has some."""
    if place not in case.whole:
        return only(case, place)
    return replace(case, queries=case.queries[place : place + 4], later=0, whole=(0,))


def _told(case: Case, failures: Sequence[Failure], engine: str, asked: str) -> Iterator[str]:
    """The tables, the changes so far, and each view that is wrong."""
    yield "\n".join(f"{table.sql()};" for table in case.tables)
    done = max(failure.done for failure in failures)
    changes = [f"{number}. {change}" for number, change in enumerate(case.changes[:done], 1)]
    yield "\n".join([*changes, f"{case.step} changes are an epoch"])
    for failure in failures:
        lines = [f"after {failure.done} changes, on {engine}: {failure.what}"]
        seed = asked
        if failure.place is not None:
            query = case.queries[failure.place]
            lines += [f"Spark:  {query.sql('spark')}", f"DuckDB: {query.sql('duck')}"]
            seed = asked if ":" in asked else f"{asked}:{failure.place}"
        yield "\n".join([*lines, f"pytest tests/random -k {engine} --seed {seed}"])


def _small(case: Case, failure: Failure, engine: Engine, path: Path) -> Case:
    """The case of a failure made small, if its view fails without the others."""
    if failure.place is not None:
        parts = failure.what.startswith("parts")
        case = (_only if parts else only)(case, failure.place)
    runs = 0

    def fails(smaller: Case) -> bool:
        nonlocal runs
        runs += 1
        found = run_case(smaller, engine, path / f"small{runs}.ev").failures
        return any(one.kind == failure.kind for one in found)

    return Shrinking(fails).shrink(case) if fails(case) else case


def test_differences_are_told() -> None:
    """The comparison itself: rows, how often, kinds of values, and roundings."""
    rows = [(1, "a", 0.25), (1, "a", 0.25), (None, None, None)]
    assert differences(rows, rows[::-1]) == []
    assert differences(rows, [*rows[:2], (None, None, None)]) == []
    assert differences([(1, 0.1 + 0.2)], [(1, 0.3)]) == []
    assert differences(rows, rows[1:]) == ["unexpected (1, 'a', 0.25)"]
    assert differences(rows[1:], rows) == ["missing (1, 'a', 0.25)"]
    assert len(differences([(1, 0.3)], [(1, 0.301)])) == 2
    assert len(differences([(True,)], [(1,)])) == 2
    assert len(differences([(None, 1.0)], [(0, 1.0)])) == 2
