"""Which seeds are run, and what of the random queries was refused, at the end of the run."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from everview.maintain import waiting

from .cases import Outcome

SHORT, LONG, ON_SPARK = 2, 50, 1  # cases
_total = pytest.StashKey[Outcome]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A case for each seed: `--seed 12`, or `--seed 12:3` for the fourth view of it alone."""
    if "case_of" not in metafunc.fixturenames:
        return
    asked = metafunc.config.getoption("--seed")
    number = LONG if metafunc.config.getoption("--long") else SHORT
    seeds = [("sail", str(seed)) for seed in range(number)]
    seeds += [("spark", str(1000 + seed)) for seed in range(ON_SPARK * number // SHORT)]
    if asked is not None:
        seeds = [(engine, asked) for engine in ("sail", "spark")]
    metafunc.parametrize("case_of", seeds, ids="-".join)


@pytest.fixture(autouse=True)
def loads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In half of the tests all views are loaded beside epochs, also the small ones."""
    if random.Random(f"{request.node.nodeid} loads").random() < 0.5:
        monkeypatch.setattr(waiting, "SMALL_ROWS", -1)


@pytest.fixture(scope="session")
def total(pytestconfig: pytest.Config) -> Outcome:
    """What all cases had together."""
    return pytestconfig.stash.setdefault(_total, Outcome())


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    found = config.stash.get(_total, None)
    if found is None or not found.queries:
        return
    refused = Counter(found.refused)
    terminalreporter.section("random queries")
    seconds = ", ".join(f"{what} {time:.0f} s" for what, time in found.seconds.items())
    terminalreporter.line(
        f"{found.queries} queries: {found.compared} compared after {found.epochs} epochs, "
        f"{refused.total()} refused ({refused.total() / found.queries:.0%}); {seconds}"
    )
    for reason, times in refused.most_common():
        terminalreporter.line(f"{times / found.queries:6.1%}  {reason}")
