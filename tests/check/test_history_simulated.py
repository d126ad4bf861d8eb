"""The checker against a simulated maintainer: right runs pass, and each planted bug is caught."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everview.check import History, Level, check_history

from .simulator import BUGS, SQL_VIEWS, VIEWS, Simulation

SEEDS = range(40)


@given(seed=st.integers(0, 2**32), steps=st.integers(0, 150))
def test_a_right_run_is_strong_however_its_steps_interleave(seed, steps):
    for verdict in check_history(Simulation(seed, steps).history, VIEWS):
        assert verdict.holds(Level.STRONG) is True, verdict.counterexample(Level.STRONG)


@given(seed=st.integers(0, 2**32), steps=st.integers(0, 30))
def test_a_right_run_is_never_called_wrong_without_its_commits(seed, steps):
    history = Simulation(seed, steps).history
    for verdict in check_history(History(history.writes, history.reads), VIEWS, bound=500):
        assert verdict.holds(Level.STRONG) is not False, verdict.counterexample(Level.STRONG)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(bug):
    caught = [
        verdict
        for seed in SEEDS
        for verdict in check_history(Simulation(seed, bug=bug).history, VIEWS)[:-1]
        if verdict.holds(Level.STRONG) is False
    ]
    assert caught, f"{bug} was never caught"
    assert all(verdict.counterexample(Level.STRONG) for verdict in caught)


@pytest.mark.parametrize("bug", BUGS)
def test_without_commits_a_planted_bug_is_caught_too(bug):
    for seed in SEEDS:
        history = Simulation(seed, bug=bug).history
        history = History(history.writes, history.reads)
        if any(v.holds(Level.STRONG) is False for v in check_history(history, VIEWS, bound=500)):
            return
    pytest.fail(f"{bug} was never caught")


@pytest.mark.parametrize("bug", [None, "apply twice", "lose a group's last delete"])
def test_views_in_sql_get_the_verdicts_of_the_same_views_as_functions(bug):
    for seed in range(3):
        history = Simulation(seed, bug=bug).history
        in_sql = check_history(history, SQL_VIEWS, bound=300)
        as_functions = check_history(history, VIEWS, bound=300)
        for one, other in zip(in_sql, as_functions, strict=True):
            assert [f.holds for f in one.findings] == [f.holds for f in other.findings]
