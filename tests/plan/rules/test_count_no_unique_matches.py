"""count_no_unique_matches: before and after."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from everview.plan.facts import Facts, TableFacts
from everview.plan.nodes import Join, Source
from everview.plan.rules.count_no_unique_matches import count_no_unique_matches
from everview.schema import Column

A, ID, N = (Column(name, pa.int64()) for name in ("a", "id", "n"))
RIGHT = Source((ID, N), "dim", ("id", "n"))
FACTS = Facts({"dim": TableFacts(("id",))})


def join(how: str, by: str) -> Join:
    left = Source((A,), "fact", ("a",))
    return Join((A, ID, N), left, RIGHT, how, ("a",), (by,), (False,), replicated=False)


def test_a_left_join_to_a_key_keeps_no_counts() -> None:
    before = join("left", "id")
    assert count_no_unique_matches(before, FACTS) == replace(before, unique=True)


@pytest.mark.parametrize(("how", "by"), [("left", "n"), ("inner", "id"), ("full", "id")])
def test_other_joins_are_as_they_were(how: str, by: str) -> None:
    assert count_no_unique_matches(join(how, by), FACTS) == join(how, by)
