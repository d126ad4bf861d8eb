"""The checker against the product itself: right runs are strong, and each planted bug is caught."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from everview.check import Level, Verdict
from everview.engines.engine import Engine

from . import shop
from .planted import PLANTED
from .shop import Shop
from .simulator import BUGS

Scenario = Callable[[Shop, pytest.MonkeyPatch], None]
Play = Callable[..., list[Verdict]]
SCENARIOS: list[Scenario] = [
    shop.nothing_fails,
    shop.operators_are_done_and_views_not,
    shop.all_is_done_and_not_committed,
    shop.a_maintainer_sleeps_and_is_superseded,
]
# of the view that is furthest from strong: the level it reaches, and what explains it
CAUGHT: dict[str, tuple[Scenario, Level, str]] = {
    "skip the outbox": (
        shop.operators_are_done_and_views_not,
        Level.NONE,
        "it shows epoch 2",
    ),
    "apply twice": (
        shop.all_is_done_and_not_committed,
        Level.NONE,
        "as if orders 1/3 was applied twice",
    ),
    "commit before a shard is done": (
        shop.nothing_fails,
        Level.CONVERGENCE,
        "as if homes 1/2 was lost",
    ),
    "ignore the token": (
        shop.a_maintainer_sleeps_and_is_superseded,
        Level.WEAK,
        "a read goes back behind one that ended before, from epoch 4 to 3",
    ),
    "trim too early": (shop.nothing_fails, Level.NONE, "it shows epoch 3"),
    "swap two versions of a key": (shop.nothing_fails, Level.NONE, "as if orders 0/4 was lost"),
    "drop a delete": (shop.nothing_fails, Level.NONE, "as if orders 1/3 was lost"),
    "read new rows before commit": (shop.nothing_fails, Level.WEAK, "it shows epoch 3"),
    "forget one region's range": (shop.nothing_fails, Level.NONE, "as if orders 1/5 was lost"),
    "lose a group's last delete": (shop.nothing_fails, Level.NONE, "as if orders 1/4 was lost"),
}


@pytest.fixture(scope="module")
def made(sail: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shop") / "shop.ev"
    shop.create(path, sail)
    return path


@pytest.fixture
def play(made: Path, sail: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Plays a scenario in a new shop, with a bug or without; gives what the checker says of it."""

    def played(scenario: Scenario, bug: str | None = None) -> list[Verdict]:
        shutil.copytree(made, tmp_path / "shop.ev")
        with closing(Shop(tmp_path / "shop.ev", sail, tmp_path / "history")) as one:
            if bug is not None:
                PLANTED[bug](monkeypatch)
            scenario(one, monkeypatch)
            monkeypatch.undo()
            stopped = [name for name in shop.VIEWS if one.db.view(name).status != "live"]
        assert not stopped, "the product has noticed by itself, which is not the checker's merit"
        return one.verdicts()

    return played


def test_the_bugs_are_those_of_the_simulator():
    assert list(PLANTED) == list(CAUGHT) == BUGS


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_without_a_bug_every_scenario_is_strong(play: Play, scenario: Scenario):
    for verdict in play(scenario):
        assert verdict.holds(Level.STRONG) is True, verdict.counterexample(Level.STRONG)


@pytest.mark.whole_shards  # or shards would refuse what a bug writes, dealt out otherwise
@pytest.mark.parametrize("bug", CAUGHT)
def test_a_bug_planted_in_the_product_is_caught(play: Play, bug: str):
    scenario, level, words = CAUGHT[bug]
    *verdicts, together = play(scenario, bug)
    assert together.holds(Level.STRONG) is False
    worst = min(verdicts, key=lambda verdict: verdict.level)
    assert worst.level is level
    example = worst.counterexample(Level.STRONG)
    assert example is not None
    assert (example.hint or example.reason) == words
