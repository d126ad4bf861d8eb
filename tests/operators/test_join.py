"""Joins equal recomputation, however the changes of both sides are batched."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from everview.errors import Damaged, SqlError
from everview.operators import join as operator
from everview.plan.nodes import Join, Source
from everview.schema import Column, arrow_type
from tests.operators.conftest import Maintain
from tests.operators.histories import (
    FEW,
    LONG,
    NESTED,
    STEPS,
    History,
    Row,
    batched,
    delta_of,
    gone,
    histories,
    plain,
    prefixes,
)

LEFT, RIGHT = 0, 1
HOW = ("inner", "left", "full", "semi", "anti", "existence")
HOWS = st.sampled_from(HOW)
PAYLOADS = st.sampled_from(["v", "w", None, LONG, LONG + "v"])
ZEROS = [((LEFT, (0.0, 0, "v")), 1), ((RIGHT, (-0.0, 0, "w")), 2), ((RIGHT, (0.0, 0, "w")), 1)]
NESTED_ZEROS = [((side, ([zero], *rest)), count) for (side, (zero, *rest)), count in ZEROS]
ONE_EACH = [((LEFT, (1, 1, "v")), 1), ((RIGHT, (1, 1, "w")), 1)]


def sources(kind: str, columns: int = 3) -> tuple[Source, Source]:
    """Two tables: the first key is of the kind, the second an integer; the rest is payload."""
    types = [arrow_type(kind), pa.int32(), pa.string()][:columns]
    named = [[Column(f"{side}{i}", arrow) for i, arrow in enumerate(types)] for side in "lr"]
    left, right = [Source(tuple(c), "t", tuple(one.name for one in c)) for c in named]
    return left, right


def join(
    left: Source,
    right: Source,
    how: str,
    null_safe: tuple[bool, ...],
    keys: tuple[tuple[int, ...], tuple[int, ...]] = ((0, 1), (0, 1)),
) -> Join:
    """A join by as many of the keys as there are flags."""
    columns = left.columns + (right.columns if how in ("inner", "left", "full", "single") else ())
    if how == "existence":
        columns += (Column("exists", pa.bool_(), False),)
    left_keys, right_keys = (
        tuple(side.columns[i].name for i in places[: len(null_safe)])
        for side, places in zip((left, right), keys, strict=True)
    )
    return Join(columns, left, right, how, left_keys, right_keys, null_safe, False)


def recomputed(node: Join, left: list[Row], right: list[Row]) -> Counter[Row]:
    """The join in plain Python."""
    found: Counter[Row] = Counter()
    for row in left:
        matches = [other for other in right if match(node, row, other)]
        if node.how == "inner" or (node.how in ("left", "full") and matches):
            found.update(plain(row + other) for other in matches)
        elif node.how in ("left", "full"):
            found[plain(row + (None,) * len(node.right.columns))] += 1
        elif node.how == "existence":
            found[plain((*row, bool(matches)))] += 1
        elif (node.how == "semi") == bool(matches):
            found[plain(row)] += 1
    alone = [row for row in right if not any(match(node, other, row) for other in left)]
    if node.how == "full":
        found.update(plain((None,) * len(node.left.columns) + row) for row in alone)
    return found


def match(node: Join, left: Row, right: Row) -> bool:
    pairs = zip(node.left_keys, node.right_keys, node.null_safe, strict=True)
    return all(
        equal(left[node.left.names().index(one)], right[node.right.names().index(other)], safe)
        for one, other, safe in pairs
    )


def equal(left: Any, right: Any, null_safe: bool) -> bool:
    """As in Spark: NaN equals NaN, -0.0 equals 0.0, and NULL nothing unless asked to."""
    if left is None or right is None:
        return null_safe and left is right
    return bool(left == right or (left != left and right != right))


@st.composite
def two_sided(draw: st.DrawFn, kind: str, columns: int = 3) -> History:
    """A history of rows (side, row)."""
    keys = st.sampled_from(
        [*draw(st.lists(st.sampled_from((FEW | NESTED)[kind]), min_size=2)), None]
    )
    row = st.tuples(keys, st.sampled_from([0, 7, None]), PAYLOADS).map(lambda r: r[:columns])
    return draw(histories(st.tuples(st.sampled_from([LEFT, RIGHT]), row)))


def sides(node: Join, history: History, step: int) -> list[list[pa.Table]]:
    """The deltas of both sides, for each step."""
    return [
        [
            delta_of([(row, weight) for (of, row), weight in changes if of == side], one.columns)
            for side, one in enumerate((node.left, node.right))
        ]
        for changes in batched(history, step)
    ]


def check(maintain: Maintain, node: Join, history: History, step: int) -> None:
    """The view is right after each step, and when all rows are gone no state is left."""
    steps = sides(node, history, step) + sides(node, gone(history), 1000)
    views, left = maintain(node, steps)
    for view, rows in zip(views, prefixes(history, step), strict=False):
        assert view == recomputed(node, *([r for of, r in rows if of == side] for side in (0, 1)))
    assert not views or views[-1] == recomputed(node, [], [])
    assert left == 0, "rows that are gone have left state behind"


@pytest.mark.parametrize("how", HOW)
@settings(max_examples=60)
@given(
    case=st.sampled_from([*FEW, *NESTED]).flatmap(lambda k: st.tuples(st.just(k), two_sided(k))),
    null_safe=st.lists(st.booleans(), min_size=1, max_size=2).map(tuple),
    step=STEPS,
)
@example(case=("DOUBLE", ZEROS), null_safe=(False,), step=1)
@example(case=("ARRAY<DOUBLE>", NESTED_ZEROS), null_safe=(False,), step=1)
@example(case=("DOUBLE", ZEROS), null_safe=(True,), step=1000)
def test_joins_equal_recomputation_however_changes_are_batched(
    maintain: Maintain,
    how: str,
    case: tuple[str, History],
    null_safe: tuple[bool, ...],
    step: int,
) -> None:
    kind, history = case
    check(maintain, join(*sources(kind), how, null_safe), history, step)


@settings(max_examples=60)
@given(
    case=st.sampled_from([*FEW, *NESTED]).flatmap(lambda k: st.tuples(st.just(k), two_sided(k))),
    null_safe=st.lists(st.booleans(), max_size=2).map(tuple),
    step=STEPS,
)
def test_a_join_that_keeps_no_counts_equals_recomputation(
    maintain: Maintain, case: tuple[str, History], null_safe: tuple[bool, ...], step: int
) -> None:
    kind, history = case
    check(maintain, replace(join(*sources(kind), "left", null_safe), unique=True), history, step)


def test_a_join_to_a_key_keeps_the_rows_of_the_right_once(maintain: Maintain) -> None:
    node = join(*sources("INT"), "left", (False,))
    steps = sides(node, [((RIGHT, (key, 7, "v")), 1) for key in (-1, 0)], 1)
    assert maintain(node, steps)[1] == 4
    assert maintain(replace(node, unique=True), steps)[1] == 2


@settings(max_examples=30)
@given(how=HOWS, history=two_sided("BIGINT"), step=STEPS)
@example(how="left", history=[((RIGHT, (1, 1, "v")), 1)], step=1)  # a count under an empty key
def test_without_keys_every_row_matches_every_other(
    maintain: Maintain, how: str, history: History, step: int
) -> None:
    check(maintain, join(*sources("BIGINT"), how, ()), history, step)


@settings(max_examples=30)
@given(how=HOWS, history=two_sided("STRING", 1), step=STEPS, null_safe=st.booleans())
@example(how="inner", history=[((LEFT, ("",)), 1)] * 3, step=1, null_safe=False)  # an empty row
def test_rows_may_be_nothing_but_a_key(
    maintain: Maintain, how: str, history: History, step: int, null_safe: bool
) -> None:
    check(maintain, join(*sources("STRING", 1), how, (null_safe,)), history, step)


@settings(max_examples=30)
@given(
    how=HOWS,
    history=two_sided("INT"),
    step=STEPS,
    null_safe=st.tuples(st.booleans(), st.booleans()),
)
def test_a_column_may_be_in_two_keys(
    maintain: Maintain, how: str, history: History, step: int, null_safe: tuple[bool, bool]
) -> None:
    keys = ((0, 0), (0, 1))
    check(maintain, join(*sources("INT"), how, null_safe, keys), history, step)


@settings(max_examples=30)
@given(how=HOWS, columnless=st.sampled_from([LEFT, RIGHT]), history=two_sided("INT"), step=STEPS)
@example(how="left", columnless=LEFT, history=ONE_EACH, step=1)
@example(how="semi", columnless=LEFT, history=ONE_EACH, step=1000)
def test_a_side_may_have_no_columns(
    maintain: Maintain, how: str, columnless: int, history: History, step: int
) -> None:
    both = list(sources("INT"))
    both[columnless] = Source((), "t", ())
    history = [((of, () if of == columnless else row), n) for (of, row), n in history]
    check(maintain, join(*both, how, ()), history, step)


@settings(max_examples=30)
@given(
    how=HOWS,
    history=histories(st.tuples(st.sampled_from(FEW["STRING"]), st.just(0), PAYLOADS)),
    step=STEPS,
)
def test_a_table_may_be_joined_with_itself(
    maintain: Maintain, how: str, history: History, step: int
) -> None:
    both = [((side, row), weight) for row, weight in history for side in (LEFT, RIGHT)]
    check(maintain, join(*sources("STRING"), how, (False,)), both, 2 * step)


@pytest.mark.parametrize("how", ["left", "semi", "anti"])
def test_a_right_row_that_is_not_there_can_not_go(maintain: Maintain, how: str) -> None:
    node = join(*sources("INT"), how, (False,))
    steps = sides(node, [((RIGHT, (1, 0, "v")), 1), ((RIGHT, (1, 0, "v")), -2)], 1)
    with pytest.raises(Damaged, match="more rows of its right side than it had"):
        maintain(node, steps)


@pytest.mark.parametrize("side", [LEFT, RIGHT])
def test_a_row_that_is_not_there_can_not_go(maintain: Maintain, side: int) -> None:
    node = join(*sources("INT"), "inner", (False,))
    steps = sides(node, [((side, (1, 0, "v")), 1), ((side, (1, 0, "w")), -1)], 1)
    with pytest.raises(Damaged, match="negative number of times"):
        maintain(node, steps)


def test_a_join_of_one_match_at_most_refuses_a_second(maintain: Maintain) -> None:
    node = join(*sources("INT"), "single", (False,))
    fine = [((LEFT, (1, 0, "v")), 1), ((RIGHT, (1, 0, "a")), 1), ((RIGHT, (2, 0, "b")), 2)]
    views, _ = maintain(node, sides(node, fine, 1))
    assert views[-1] == Counter([(1, 0, "v", 1, 0, "a")])
    for late in ((RIGHT, (1, 0, "b")), (LEFT, (2, 0, "v"))):
        with pytest.raises(SqlError, match="more than one row"):
            maintain(node, sides(node, [*fine, (late, 1)], 1))


def test_a_join_without_an_equality_has_a_limit(
    maintain: Maintain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator, "MOST_PAIRS", 5)
    node = join(*sources("INT"), "inner", ())
    rows = [((LEFT, (n, 0, "v")), 1) for n in range(3)]
    rows += [((RIGHT, (n, 0, "w")), 1) for n in range(2)]
    with pytest.raises(SqlError, match="6 pairs of rows at once, and 5 are the most"):
        maintain(node, sides(node, rows, 1000))
