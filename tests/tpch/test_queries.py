"""The texts of the 22 queries."""

from __future__ import annotations

import re

from everview.tpch import QUERIES


def test_there_are_22_of_which_five_are_top_k() -> None:
    assert list(QUERIES) == [f"q{number}" for number in range(1, 23)]
    limits = {name: re.findall(r"LIMIT (\d+)", text) for name, text in QUERIES.items()}
    found = {name: int(limit) for name, (limit,) in ((n, f) for n, f in limits.items() if f)}
    assert found == {"q2": 100, "q3": 10, "q10": 20, "q18": 100, "q21": 100}
