"""What is added up for each member equals adding up its rows alone, however changes of rows and of
members are batched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from everview.errors import Damaged
from everview.operators import boxes, by_member, members
from everview.plan.nodes import Bound, ByMember, Call, CellSum, Source
from everview.plan.nodes.members import ROWS
from everview.schema import Column, arrow_type
from tests.operators.conftest import Maintain
from tests.operators.histories import FEW, STEPS, Row, delta_of, plain
from tests.values import order_of

AMOUNT, SUM = pa.decimal128(12, 2), pa.decimal128(38, 2)
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda one, other: one == other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}
BOUNDS = (
    *((Bound(0, "a", sign, "m"),) for sign in COMPARE),
    (Bound(0, "a", ">=", "m"), Bound(0, "a", "<", "n")),
    (Bound(0, "a", ">", "m"), Bound(0, "a", "<=", "n"), Bound(0, "b", "=", "k")),
    (Bound(0, "b", "<", "k"), Bound(0, "a", "=", "m")),
    # either of two comparisons, less both
    (Bound(0, "a", ">", "m"), Bound(1, "b", "=", "k"), Bound(2, "a", ">", "m"),
     Bound(2, "b", "=", "k")),
)  # fmt: skip
KINDS = [kind for kind in FEW if kind not in ("BINARY", "FLOAT")]
Event = tuple[str, Row, int]  # of "rows" or "members"
SIGNS = (1, 1, -1)
HELD = [("rows", ("g", 1, 1, Decimal("2.50")), 1), ("members", (0, 1, 1, 1), 1)]


def node_of(kind: str, bounds: tuple[Bound, ...], groups: tuple[str, ...]) -> ByMember:
    arrow = arrow_type(kind)
    keys = (*(Column(name, pa.string()) for name in groups), Column("a", arrow))
    keys += (Column("b", pa.int32()),)
    sums = (
        (CellSum(None, ROWS, "r"), Column("r", pa.int64(), False)),
        (CellSum("x", "count", "c"), Column("c", pa.int64(), False)),
        (CellSum("x", "sum", "s"), Column("s", SUM)),
    )
    cells = (*keys, *(column for _, column in sums))
    members = (Column("id", pa.int32()), Column("m", arrow), Column("n", arrow))
    members += (Column("k", pa.int32()),)
    outputs = (Column("rows", pa.int64(), False), Column("total", AMOUNT), Column("n", pa.int64()))
    calls = (Call("count", None), Call("sum", "x"), Call("count", "x"))
    return ByMember(
        (members[0], *keys[: len(groups)], *outputs),
        Source(cells, "cells", tuple(column.name for column in cells)),
        Source(members, "members", tuple(column.name for column in members)),
        ("id",),
        groups,
        SIGNS[: 1 + max(bound.box for bound in bounds)],
        bounds,
        calls,
        (Column("x", AMOUNT),),
        tuple(one for one, _ in sums),
        each=not groups,
    )


@st.composite
def histories(draw: st.DrawFn, kind: str) -> list[Event]:
    few = st.sampled_from([*draw(st.lists(st.sampled_from(FEW[kind]), min_size=1)), None])
    amounts = st.none() | st.integers(-9999, 9999).map(lambda n: Decimal(f"{n}E-2"))
    row = st.tuples(st.sampled_from(["g", "h", None]), few, st.sampled_from([1, 2, None]), amounts)
    member = st.tuples(st.integers(0, 4), few, few, st.sampled_from([1, 2]))
    history: list[Event] = []
    there: dict[int, Row] = {}
    for _ in range(draw(st.integers(0, 20))):
        what = draw(st.sampled_from(["rows", "rows", "members", "less"]))
        if what == "members":
            new = draw(member)
            if (old := there.pop(new[0], None)) is not None:
                history.append(("members", old, -1))
            else:
                there[new[0]] = new
                history.append(("members", new, 1))
        elif what == "rows":
            history.append(("rows", draw(row), draw(st.sampled_from([1, 1, 2]))))
        elif left := _left(history):
            history.append(("rows", draw(st.sampled_from(left)), -1))
    return history


def _left(history: list[Event]) -> list[Row]:
    """The rows that are there."""
    counts: Counter[Row] = Counter()
    for what, row, weight in history:
        counts[plain(row)] += weight if what == "rows" else 0
    return [row for what, row, _ in history if what == "rows" and counts[plain(row)] > 0]


def holds(row: Row, member: Row, bounds: tuple[Bound, ...]) -> bool:
    values = {"a": row[1], "b": row[2], "m": member[1], "n": member[2], "k": member[3]}
    true = [
        (bound.box, _is_true(values[bound.column], bound.comparison, values[bound.member]))
        for bound in bounds
    ]
    boxes_of = {box: all(is_true for of, is_true in true if of == box) for box, _ in true}
    return any(boxes_of.values())


def _is_true(one: Any, sign: str, other: Any) -> bool:
    known = one is not None and other is not None
    return known and COMPARE[sign](order_of(one), order_of(other))


def recomputed(node: ByMember, history: list[Event]) -> Counter[Row]:
    found: Counter[Row] = Counter()
    rows = [(row, weight) for what, row, weight in history if what == "rows"]
    members = Counter[Row]()
    for what, row, weight in history:
        members[row] += weight if what == "members" else 0
    for member in members.elements():
        own = [(row, weight) for row, weight in rows if holds(row, member, node.bounds)]
        groups = {row[:1] for row, _ in own} if node.groups else {()}
        for group in groups:
            of_group = [(row[3], weight) for row, weight in own if row[: len(group)] == group]
            number = sum(weight for _, weight in of_group)
            present = [(x, weight) for x, weight in of_group if x is not None]
            counted = sum(weight for _, weight in present)
            total = sum((x * weight for x, weight in present), Decimal("0.00"))
            if number or not node.groups:
                last = (number, total if counted else None, counted)
                found[plain((member[0], *group, *last))] += 1
    return found


def cells_of(node: ByMember, history: list[Event]) -> Counter[Row]:
    """The cells of rows, as an aggregate below gives them."""
    sums: dict[Row, list[Any]] = {}
    for what, row, weight in history:
        if what == "rows":
            key = (*row[: len(node.groups)], *row[1:3])
            own = sums.setdefault(plain(_equal(key)), [_equal(key), 0, 0, Decimal("0.00")])
            own[1] += weight
            if row[3] is not None:
                own[2] += weight
                own[3] += row[3] * weight
    return Counter(
        {(*key, n, c, total if c else None): 1 for key, n, c, total in sums.values() if n}
    )


def _equal(row: Row) -> Row:
    """Equal floats look equal in groups, and a row is a key."""
    return tuple((float("nan") if x != x else x + 0.0) if isinstance(x, float) else x for x in row)


def steps_of(node: ByMember, history: list[Event], step: int) -> list[list[pa.Table]]:
    steps, before = [], Counter[Row]()
    for start in range(0, len(history), step):
        now = cells_of(node, history[: start + step])
        keyed_now, keyed_before = ({repr(row): row for row in some} for some in (now, before))
        cells = [(row, 1) for key, row in keyed_now.items() if key not in keyed_before]
        cells += [(row, -1) for key, row in keyed_before.items() if key not in keyed_now]
        moved = [(row, w) for what, row, w in history[start : start + step] if what == "members"]
        deltas = delta_of(cells, node.cells.columns), delta_of(moved, node.members.columns)
        steps.append(list(deltas))
        before = now
    return steps


def check(maintain: Maintain, node: ByMember, history: list[Event], step: int) -> None:
    gone: list[Event] = [(what, row, -weight) for what, row, weight in reversed(history)]
    views, left = maintain(node, steps_of(node, history + gone, step))
    for place, view in enumerate(views):
        assert view == recomputed(node, (history + gone)[: (place + 1) * step])
    assert left == 0, "rows and members that are gone have left state behind"


CASES = st.sampled_from(KINDS).flatmap(lambda kind: st.tuples(st.just(kind), histories(kind)))


@pytest.mark.parametrize("groups", [(), ("g",)], ids=["one row", "groups"])
@settings(max_examples=120)
@given(case=CASES, bounds=st.sampled_from(BOUNDS), step=STEPS)
@example(case=("INT", HELD), bounds=BOUNDS[2], step=1)
@example(case=("INT", HELD[::-1]), bounds=BOUNDS[2], step=1)
@example(case=("INT", HELD), bounds=BOUNDS[4], step=1000)
def test_it_equals_each_member_alone(
    case: tuple[str, list[Event]],
    bounds: tuple[Bound, ...],
    step: int,
    groups: tuple[str, ...],
    maintain: Maintain,
) -> None:
    kind, history = case
    check(maintain, node_of(kind, bounds, groups), history, step)


def closed(bounds: Any, ranks: Any, most: int) -> Any:
    low, high = INTERVAL(bounds, ranks, most)
    return low, np.minimum(high + 1, most)


def null_as_a_value(arrays: Any) -> Any:
    return [np.maximum(ranks, 0) for ranks in RANKED(arrays)]


def one_cell_for_two(points: Any, places: Any) -> Any:
    points.coordinates[0][:] = points.coordinates[0] // 2 * 2
    return WITHIN(points, places)


INTERVAL, RANKED, WITHIN = members._interval, members.ranked, boxes._within
PLANTED = {
    "an open end is closed": (members, "_interval", closed),
    "NULL is the first value": (members, "ranked", null_as_a_value),
    "two values share a cell": (boxes, "_within", one_cell_for_two),
}
ROWS_OF_ALL = [
    ("rows", (g, a, b, Decimal(a or 0))) for g in "gh" for a in (-1, 0, 7, None) for b in (1, 2)
]


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(
    name: str, maintain: Maintain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*PLANTED[name])
    history: list[Event] = [(what, row, 1) for what, row in ROWS_OF_ALL]
    history[3:3] = [("members", (i, m, 7, 1), 1) for i, m in enumerate((-1, 0, 3, 7))]
    wrong = 0
    for bounds in BOUNDS:
        try:
            check(maintain, node_of("INT", bounds, ("g",)), history, 3)
        except (AssertionError, Damaged):
            wrong += 1
    assert wrong


def test_a_member_that_misses_the_changes_of_its_step_is_found(
    maintain: Maintain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells are changed before members that come read them."""
    add = by_member.Cells.add
    late: list[Any] = []

    def added_later(self: Any, numbers: Any, state: Any) -> None:
        for before in late:
            add(self, before, state)
        late[:] = [numbers]

    monkeypatch.setattr(by_member.Cells, "add", added_later)
    with pytest.raises((AssertionError, Damaged)):
        check(maintain, node_of("INT", BOUNDS[4], ("g",)), HELD, 2)
