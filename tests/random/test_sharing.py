"""Views that share operators are right, whatever an engine leaves out of its plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from everview.engines.engine import Engine

from .sharing import run_set

SHORT, LONG = {"sail": 4, "spark": 1}, {"sail": 2000, "spark": 200}  # sets
AT_ONCE = 20


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`--seed 12` runs one set."""
    asked = metafunc.config.getoption("--seed")
    number = LONG if metafunc.config.getoption("--long") else SHORT
    sets = [
        (engine, range(first, min(first + AT_ONCE, number[engine])))
        for engine in number
        for first in range(0, number[engine], AT_ONCE)
    ]
    if asked is not None:
        sets = [(engine, range(int(asked), int(asked) + 1)) for engine in number]
    metafunc.parametrize(("name", "seeds"), sets, ids=str)


def test_views_that_share_operators_equal_recomputation(
    name: str, seeds: range, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    engine: Engine = request.getfixturevalue(name)
    compared = [run_set(seed, engine, tmp_path / f"{seed}.ev") for seed in seeds]
    assert min(compared) > 0
