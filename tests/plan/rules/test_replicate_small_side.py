"""replicate_small_side: before and after."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from everview.plan.facts import Facts
from everview.plan.nodes import Filter, Join
from everview.plan.rules.replicate_small_side import replicate_small_side
from tests.plan.rules.test_order_joins import BEFORE, CHOSEN, EVENLY, LINES, TABLES, joined
from tests.plan.samples import facts_of
from tests.plan.trees import tree

FACTS = facts_of(TABLES, EVENLY)
FEW = Filter(CHOSEN.columns, CHOSEN, tree("{chosen_id} < 4"))
ROUND = replace(BEFORE, right=FEW)  # the left lies by orders, and is to be joined by customers


@pytest.mark.parametrize("how", ["inner", "left", "single", "semi", "anti", "existence"])
def test_a_small_right_side_is_copied_to_where_the_left_lies(how: str) -> None:
    before = replace(ROUND, how=how)
    after = replicate_small_side(before, FACTS)
    assert after == replace(before, replicated=True)
    assert "right side replicated" in after.label()


@pytest.mark.parametrize(
    ("why", "plan", "facts"),
    [
        (
            "a full join shows rows of the right that match nothing",
            replace(ROUND, how="full"),
            FACTS,
        ),
        ("the left lies nowhere yet", joined(LINES, CHOSEN, "lines_id", "chosen_id"), FACTS),
        ("nothing is known", ROUND, Facts()),
        ("another view keeps it", ROUND, facts_of(TABLES, EVENLY, frozenset({ROUND.identity}))),
    ],
)
def test_a_join_stays(why: str, plan: Join, facts: Facts) -> None:
    assert replicate_small_side(plan, facts) == plan


def test_a_large_right_side_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = sys.modules[replicate_small_side.__module__]
    monkeypatch.setattr(rule, "FEW_ROWS", 7)
    assert replicate_small_side(ROUND, FACTS) == ROUND
