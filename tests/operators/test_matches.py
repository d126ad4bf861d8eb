"""Rows are given to the members that have them, however changes of rows and of members are
batched."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from everview.errors import Damaged
from everview.operators import cells, matches
from everview.plan.nodes import Bound, Matches, Source
from everview.schema import Column, arrow_type
from tests.operators.conftest import Maintain
from tests.operators.histories import STEPS, Row, delta_of, plain
from tests.operators.test_by_member import KINDS, Event, _is_true, histories

BOUNDS = (
    *((Bound(0, "a", sign, "m"),) for sign in ("=", "<", "<=", ">", ">=")),
    (Bound(0, "a", ">=", "m"), Bound(0, "a", "<", "n")),
    (Bound(0, "a", ">", "m"), Bound(0, "a", "<=", "n"), Bound(0, "b", "=", "k")),
    (Bound(0, "b", "<", "k"), Bound(0, "a", "=", "m")),
)
HELD: list[Event] = [("rows", ("g", 1, 1, None), 2), ("members", (0, 1, 1, 1), 1)]


def node_of(kind: str, bounds: tuple[Bound, ...]) -> Matches:
    arrow = arrow_type(kind)
    rows = (Column("g", pa.string()), Column("a", arrow), Column("b", pa.int32()))
    rows += (Column("x", pa.decimal128(12, 2)),)
    members = (Column("id", pa.int32()), Column("m", arrow), Column("n", arrow))
    members += (Column("k", pa.int32()),)
    sources = [
        Source(columns, name, tuple(column.name for column in columns))
        for name, columns in (("rows", rows), ("members", members))
    ]
    return Matches((*rows, *members), sources[0], sources[1], bounds)


def recomputed(node: Matches, history: list[Event]) -> Counter[Row]:
    found: Counter[Row] = Counter()
    rows = [(row, weight) for what, row, weight in history if what == "rows"]
    members = [(row, weight) for what, row, weight in history if what == "members"]
    for row, weight in rows:
        values = {"a": row[1], "b": row[2]}
        for member, sign in members:
            own = {"m": member[1], "n": member[2], "k": member[3]}
            if all(_is_true(values[b.column], b.comparison, own[b.member]) for b in node.bounds):
                found[plain((*row, *member))] += weight * sign
    return Counter({row: weight for row, weight in found.items() if weight})


def check(maintain: Maintain, node: Matches, history: list[Event], step: int) -> None:
    history = history + [(what, row, -weight) for what, row, weight in reversed(history)]
    steps = []
    for start in range(0, len(history), step):
        some = history[start : start + step]
        deltas = {
            name: [(row, weight) for what, row, weight in some if what == name]
            for name in ("rows", "members")
        }
        net = Counter[Row]()
        for row, weight in deltas["members"]:
            net[row] += weight
        moved = [(row, weight) for row, weight in net.items() if weight]
        steps.append([delta_of(deltas["rows"], node.rows.columns),
                      delta_of(moved, node.members.columns)])  # fmt: skip
    views, left = maintain(node, steps)
    for place, view in enumerate(views):
        assert view == recomputed(node, history[: (place + 1) * step])
    assert left == 0, "rows and members that are gone have left state behind"


CASES = st.sampled_from(KINDS).flatmap(lambda kind: st.tuples(st.just(kind), histories(kind)))


@settings(max_examples=120)
@given(case=CASES, bounds=st.sampled_from(BOUNDS), step=STEPS, most=st.sampled_from([1, 5, 1000]))
@example(case=("INT", HELD), bounds=BOUNDS[2], step=1, most=1)
@example(case=("INT", HELD[::-1]), bounds=BOUNDS[2], step=1, most=1)
@example(case=("INT", HELD), bounds=BOUNDS[4], step=1000, most=1)
@example(
    case=("DOUBLE", [("rows", ("g", zero, 1, None), weight) for zero, weight in
                     ((0.0, 1), (-0.0, 1), (0.0, -1))] + [("members", (0, 0.0, 0.0, 1), 1)]),
    bounds=BOUNDS[0], step=1, most=1,
)  # fmt: skip
def test_it_equals_each_member_alone(
    case: tuple[str, list[Event]],
    bounds: tuple[Bound, ...],
    step: int,
    most: int,
    maintain: Maintain,
) -> None:
    kind, history = case
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(matches, "MOST_PAIRS", most)
        patched.setattr(cells, "CHUNK", most)
        check(maintain, node_of(kind, bounds), history, step)


def one_range_less(start: Any, stop: Any) -> Any:
    return RANGES(start, np.maximum(stop - 1, start))


RANGES = matches._ranges


def test_a_planted_bug_is_found(maintain: Maintain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matches, "_ranges", one_range_less)
    with pytest.raises((AssertionError, Damaged)):
        check(maintain, node_of("INT", BOUNDS[2]), HELD, 1)
