"""The first groups of each member equal those of sorting the groups of its rows, however changes of
rows and of members are batched."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from everview.errors import Damaged
from everview.operators import cells, contenders, first_by_member, members, search
from everview.plan.nodes import Bound, Call, FirstByMember, Order, Source
from everview.schema import Column, arrow_type
from tests.operators.conftest import Maintain
from tests.operators.histories import STEPS, Row, delta_of, plain
from tests.operators.test_by_member import (
    AMOUNT,
    BOUNDS,
    KINDS,
    SIGNS,
    Event,
    histories,
    holds,
)
from tests.values import order_of

UP, DOWN = (False, True), (True, False)  # descending, NULLs first
ORDERS = (
    (Order("total", *DOWN),),
    (Order("total", *DOWN), Order("g", *UP)),
    (Order("total", *UP),),
    (Order("total", False, False), Order("rows", *DOWN)),
    (Order("rows", *DOWN), Order("total", *UP)),
    (Order("n", False, False),),
    (Order("mean", *DOWN),),
    (Order("g", *UP),),
    (Order("g", *DOWN), Order("x", *UP)),
    (),
)
CALLS = (Call("count", None), Call("sum", "y"), Call("count", "y"), Call("avg", "y"))
OUTPUTS = (
    Column("rows", pa.int64(), False),
    Column("total", AMOUNT),
    Column("n", pa.int64()),
    Column("mean", pa.decimal128(16, 6)),
)


def node_of(
    kind: str, bounds: tuple[Bound, ...], order: tuple[Order, ...], limit: int, offset: int,
    each_row: bool,
) -> FirstByMember:  # fmt: skip
    """Rows (g, a, b, x), grouped by g, or by all columns; y is x again."""
    arrow = arrow_type(kind)
    rows = (Column("g", pa.string()), Column("a", arrow), Column("b", pa.int32()))
    rows += (Column("x", AMOUNT),)
    rows += () if each_row else (Column("y", AMOUNT),)
    members = (Column("id", pa.int32()), Column("m", arrow), Column("n_", arrow))
    members += (Column("k", pa.int32()),)
    bounds = tuple(
        Bound(b.box, b.column, b.comparison, {"n": "n_"}.get(b.member, b.member)) for b in bounds
    )
    groups = rows if each_row else rows[:1] + rows[3:4]
    return FirstByMember(
        (members[0], *groups, *(() if each_row else OUTPUTS)),
        Source(rows, "rows", tuple(column.name for column in rows)),
        Source(members, "members", tuple(column.name for column in members)),
        ("id",),
        tuple(column.name for column in groups),
        SIGNS[: 1 + max(bound.box for bound in bounds)],
        bounds,
        () if each_row else CALLS,
        () if each_row else (Column("y", AMOUNT),),
        order,
        limit,
        offset,
        each_row,
    )


def recomputed(node: FirstByMember, history: list[Event], bounds: tuple[Bound, ...]) -> Any:
    """For each member its groups with what is shown of each, in order; ties are one item."""
    rows, members = Counter[Row](), Counter[Row]()
    values = {}
    for what, row, weight in history:
        counts = rows if what == "rows" else members
        counts[plain(row)] += weight
        values[plain(row)] = row
    found = {}
    for member in (values[key] for key in members.elements()):
        groups: dict[Row, Any] = defaultdict(list)
        for row in (values[key] for key in rows.elements()):
            if holds(row, member, bounds):
                groups[plain(row if node.each_row else (row[0], row[3]))].append(row)
        shown = []
        for own in groups.values():
            names = node.names()[1:]
            if node.each_row:
                shown += [dict(zip(names, row, strict=True)) for row in own]
            else:
                shown.append(dict(zip(names, _group(own), strict=True)))
        found[member[0]] = shown
    return found


def _group(rows: list[Row]) -> Row:
    amounts = [row[3] for row in rows if row[3] is not None]
    total = sum(amounts) if amounts else None
    mean = None if total is None else (total / len(amounts)).quantize(Decimal("1e-6"))
    return (rows[0][0], rows[0][3], len(rows), total, len(amounts), mean)


def place(row: dict[str, Any], order: tuple[Order, ...]) -> list[Any]:
    found: list[Any] = []
    for by in order:
        value = row[by.column]
        null = (0 if by.nulls_first else 2) if value is None else 1
        rank = None if value is None else order_of(value)
        found.append((null, _Reversed(rank) if by.descending else rank))
    return found


class _Reversed:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and other.value == self.value


def check(
    maintain: Maintain, node: FirstByMember, history: list[Event], bounds: tuple[Bound, ...],
    step: int,
) -> None:  # fmt: skip
    history = history + [(what, row, -weight) for what, row, weight in reversed(history)]
    steps = []
    for start in range(0, len(history), step):
        some = history[start : start + step]
        net = Counter[Row]()
        for what, row, weight in some:
            if what == "members":
                net[row] += weight
        rows = [
            ((*row, row[3])[: len(node.rows.columns)], weight)
            for what, row, weight in some
            if what == "rows"
        ]
        moved = [(row, weight) for row, weight in net.items() if weight]
        steps.append([delta_of(rows, node.rows.columns), delta_of(moved, node.members.columns)])
    views, left = maintain(node, steps)
    for number, view in enumerate(views):
        _compare(node, view, recomputed(node, history[: (number + 1) * step], bounds))
    assert left == 0, "rows and members that are gone have left state behind"


def _compare(node: FirstByMember, view: Counter[Row], groups: dict[int, Any]) -> None:
    """The rows of each member are groups of it, and they have the right places in the order."""
    assert all(weight > 0 for weight in view.values())
    assert {row[0] for row in view} <= groups.keys()
    for member, shown in groups.items():
        own = Counter({row: weight for row, weight in view.items() if row[0] == member})
        there = {plain((member, *row.values())): row for row in shown}
        counts = Counter(plain((member, *row.values())) for row in shown)
        assert not own - counts, "it shows what the member does not have"
        places = sorted(place(row, node.order) for row in shown)
        wanted = places[node.offset : node.offset + node.limit]
        assert sorted(place(there[row], node.order) for row in own.elements()) == wanted


CASES = st.sampled_from(KINDS).flatmap(lambda kind: st.tuples(st.just(kind), histories(kind)))
HELD: list[Event] = [
    ("rows", ("g", 1, 1, Decimal("2.50")), 2),
    ("rows", ("h", 1, 1, Decimal("1.50")), 1),
    ("members", (0, 1, 1, 1), 1),
    ("rows", ("g", 1, 1, Decimal("2.50")), -2),
    ("rows", ("h", 1, 1, Decimal("1.50")), 3),
]


# a floor is noted also if it changes nothing of what is shown
FOUR = list(zip("ghij", map(Decimal, ("4.00", "3.00", "2.00", "1.00")), strict=True))
LOW: list[Event] = [
    ("members", (0, 1, 1, 2), 1),
    *(
        ("rows", (g, 1, 1, Decimal(f"{x}.00")), 1)
        for g, x in zip("ghij", (4, 3, 2, 1), strict=True)
    ),
    *(("rows", (g, 1, 1, x), -1) for g, x in FOUR[:3]),
]


@settings(max_examples=200)
@given(
    case=CASES, bounds=st.sampled_from(BOUNDS), order=st.sampled_from(ORDERS),
    limit=st.sampled_from([1, 2, 5]), offset=st.sampled_from([0, 0, 1]), step=STEPS,
    most=st.sampled_from([1, 5, 1000]), each_row=st.booleans(),
)  # fmt: skip
@example(
    case=("INT", HELD),
    bounds=BOUNDS[2],
    order=ORDERS[0],
    limit=1,
    offset=0,
    step=1,
    most=1,
    each_row=False,
)
@example(
    case=("INT", LOW),
    bounds=BOUNDS[7],
    order=ORDERS[0],
    limit=1,
    offset=0,
    step=1,
    most=1000,
    each_row=False,
)
@example(
    case=("INT", LOW),
    bounds=BOUNDS[7],
    order=(Order("x", True, False),),
    limit=1,
    offset=0,
    step=1,
    most=1000,
    each_row=True,
)
@example(case=("INT", HELD), bounds=BOUNDS[2], order=(), limit=2, offset=0, step=1, most=1,
         each_row=True)  # fmt: skip
def test_they_are_those_of_each_member_alone(
    case: tuple[str, list[Event]],
    bounds: tuple[Bound, ...],
    order: tuple[Order, ...],
    limit: int,
    offset: int,
    step: int,
    most: int,
    each_row: bool,
    maintain: Maintain,
) -> None:
    kind, history = case
    if each_row:
        order = tuple(by for by in order if by.column in "gabx")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(contenders, "MOST", most)
        patched.setattr(contenders, "TOGETHER", 2 if most < 5 else 64)
        patched.setattr(contenders, "_BOOTSTRAP", most)
        patched.setattr(cells, "CHUNK", most)
        patched.setattr(first_by_member, "spare", lambda first: 0 if most < 1000 else 2)
        check(maintain, node_of(kind, bounds, order, limit, offset, each_row), history, bounds,
              step)  # fmt: skip


def nothing_is_filled_again(self: Any, *arguments: Any) -> Any:
    moves, members, low = UPDATED(self, *arguments)
    return moves, members, low[:0]


def bounds_of_less(self: Any, found: Any, groups: Any) -> Any:
    fewer = replace(found, parts=None if found.parts is None else found.parts // 2)
    return MAY_HAVE(self, fewer, groups)


def open_end_is_closed(bounds: Any, ranks: Any, most: int) -> Any:
    low, high = INTERVAL(bounds, ranks, most)
    return low, np.minimum(high + 1, most)


UPDATED = first_by_member.FirstByMemberOperator._updated
MAY_HAVE = contenders._Neighbours._may_have
ENDS = search.Entries.ends
INTERVAL = members._interval
PLANTED: dict[str, tuple[Any, str, Any]] = {
    "a member that has too few is not filled again": (
        first_by_member.FirstByMemberOperator, "_updated", nothing_is_filled_again,
    ),
    "a group is thought to be less than it is": (
        contenders._Neighbours, "_may_have", bounds_of_less,
    ),
    "an open end is closed": (members, "_interval", open_end_is_closed),
    "what is left out is forgotten": (
        search.Entries, "ends", lambda entries, most: (ENDS(entries, most)[0], NOTHING),
    ),
}  # fmt: skip
NOTHING = np.zeros(0, np.int64)
CHANGES: list[Event] = [
    *(("members", (i, m, 7, 1), 1) for i, m in enumerate((-1, 0, 3, 7))),
    *(
        ("rows", (g, a, 1, Decimal(f"{x}.00")), 1)
        for x, g in enumerate("ghijk", 1)
        for a in (-1, 0, 7)
    ),
    *(
        ("rows", (g, a, 1, Decimal(f"{x}.00")), -1)
        for x, g in enumerate("ghijk", 1)
        for a in (7, 0)
    ),
]


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(
    name: str, maintain: Maintain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_by_member, "spare", lambda first: 0)
    for bounds in BOUNDS:
        check(maintain, node_of("INT", bounds, ORDERS[0], 2, 0, False), CHANGES, bounds, 1)
    monkeypatch.setattr(*PLANTED[name])
    wrong = 0
    for bounds in BOUNDS:
        try:
            check(maintain, node_of("INT", bounds, ORDERS[0], 2, 0, False), CHANGES, bounds, 1)
        except (AssertionError, Damaged):
            wrong += 1
    assert wrong
