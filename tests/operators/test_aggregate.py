"""Aggregates equal recomputation, however the changes are batched."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from everview.errors import Damaged, Overflow
from everview.operators.aggregate import AggregateOperator
from everview.plan.nodes import Aggregate, Call, Source
from everview.schema import Column, arrow_type
from tests.operators.conftest import Maintain
from tests.operators.histories import (
    COLUMNS,
    FEW,
    NAN,
    NESTED,
    OTHER_NAN,
    ROWS,
    STEPS,
    History,
    Row,
    delta_of,
    gone,
    histories,
    in_steps,
    plain,
    prefixes,
)
from tests.values import TYPES, order_of
from tests.values import values as values_of

Calls = tuple[tuple[Call, pa.DataType], ...]
WIDE = (
    *COLUMNS,
    Column("s", pa.string()),
    Column("d", pa.date32()),
    Column("f", pa.float64()),
    Column("y", pa.decimal128(38, 10)),
)
SOURCE = Source(WIDE, "t", tuple(column.name for column in WIDE))
WIDE_ROWS = st.tuples(
    ROWS,
    st.sampled_from([*FEW["STRING"], None]),
    st.sampled_from([*FEW["DATE"], None]),
    st.sampled_from([*FEW["DOUBLE"], None]) | st.floats(),
    st.sampled_from([*FEW["DECIMAL(38,10)"], None]),
).map(lambda row: row[0] + row[1:])
GROUPS = st.sampled_from([("g",), ("g", "h"), ("f",), ()])
SUMS: Calls = (
    (Call("count", None), pa.int64()),
    (Call("count", "x"), pa.int64()),
    (Call("sum", "x"), pa.decimal128(22, 2)),
    (Call("avg", "x"), pa.decimal128(16, 6)),
    (Call("sum", "n"), pa.int64()),
    (Call("avg", "n"), pa.float64()),
)
EXTREMES: Calls = (
    *((Call("min", name), SOURCE.column(name).type) for name in "sfny"),
    *((Call("max", name), SOURCE.column(name).type) for name in "sfxd"),
    (Call("count", "s"), pa.int64()),
)
DISTINCT: Calls = (
    (Call("sum", "x"), pa.decimal128(22, 2)),
    (Call("sum", "x", True), pa.decimal128(22, 2)),
    (Call("avg", "x", True), pa.decimal128(16, 6)),
    (Call("max", "x"), pa.decimal128(12, 2)),
    (Call("count", "f", True), pa.int64()),
    (Call("sum", "f", True), pa.float64()),
    (Call("avg", "f", True), pa.float64()),
    (Call("count", "s", True), pa.int64()),
    (Call("avg", "n", True), pa.float64()),
)
DOUBLES: Calls = (
    (Call("count", "f"), pa.int64()),
    (Call("sum", "f"), pa.float64()),
    (Call("avg", "f"), pa.float64()),
)
SOME_CALLS = st.lists(
    st.sampled_from(SUMS + EXTREMES + DISTINCT + DOUBLES),
    min_size=1,
    max_size=4,
    unique_by=lambda call: call[0],
).map(tuple)
EXACT = Context(prec=200)
A_ROW = ("a", 1, Decimal("1.00"), 7, "s", None, 1.5, None)
NOTHING = (None,) * len(WIDE)
NANS = [(("a", 1, None, 7, "s", None, value, None), 1) for value in (NAN, OTHER_NAN, -0.0, 0.0)]
DOUBLES_COME_AND_GO = [
    (("a", 1, None, 7, "s", None, value, None), weight)
    for weight in (1, -1)
    for value in (-1e308, -1e308, 1e300, 1.0, math.inf, NAN, -math.inf)
]


def aggregate(groups: tuple[str, ...], calls: Calls, source: Source = SOURCE) -> Aggregate:
    columns = [source.column(name) for name in groups]
    columns += [Column(f"c{i}", arrow) for i, (_, arrow) in enumerate(calls)]
    return Aggregate(tuple(columns), source, groups, tuple(call for call, _ in calls))


def recomputed(node: Aggregate, rows: list[Row]) -> Counter[Row]:
    """The aggregate in plain Python."""
    places = [node.input.names().index(name) for name in node.groups]
    groups: dict[Row, list[Row]] = {} if node.groups else {(): []}
    for row in rows:
        groups.setdefault(plain(normal(row[i]) for i in places), []).append(row)
    outputs = [column.type for column in node.columns[len(places) :]]
    calls = list(zip(node.calls, outputs, strict=True))
    return Counter(
        group + plain(result(node, call, arrow, members) for call, arrow in calls)
        for group, members in groups.items()
    )


def result(node: Aggregate, call: Call, arrow: pa.DataType, rows: list[Row]) -> Any:
    if call.argument is None:
        return len(rows)
    place = node.input.names().index(call.argument)
    values = [normal(row[place]) for row in rows if row[place] is not None]
    if call.distinct:
        values = list({order_of(value): value for value in values}.values())
    if call.function == "count":
        return len(values)
    if not values:
        return None
    if call.function in ("min", "max"):
        return {"min": min, "max": max}[call.function](values, key=order_of)
    total = sum_of(values)
    if call.function == "sum":
        return total
    if isinstance(total, Decimal):
        exact = Decimal(f"1E-{arrow.scale}")
        return EXACT.divide(total, len(values)).quantize(exact, ROUND_HALF_UP, EXACT)
    return total / len(values)


def sum_of(values: list[Any]) -> Any:
    """Exact, or of doubles the exact sum rounded once."""
    if isinstance(values[0], Decimal):
        return reduce(EXACT.add, values)
    if not isinstance(values[0], float):
        return sum(values)
    if not all(map(math.isfinite, values)):
        return normal(sum(value for value in values if not math.isfinite(value)))
    exact = sum(map(Fraction, values), Fraction(0))
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def normal(value: Any) -> Any:
    """As Spark shows values that it takes for equal: there is one zero and one NaN."""
    if isinstance(value, float):
        return value + 0.0 if value == value else NAN
    if isinstance(value, list | tuple):
        return type(value)(map(normal, value))
    return {k: normal(v) for k, v in value.items()} if isinstance(value, dict) else value


def check(
    maintain: Maintain,
    node: Aggregate,
    history: History,
    step: int,
    feed: Callable[[pa.Table], pa.Table] = lambda delta: delta,
) -> None:
    """The view is right after each step, and when all rows are gone no state of them is left."""
    columns, at_all = node.input.columns, 0 if node.groups else 1
    start = delta_of([((None,) * len(columns), 0)], columns)  # makes the group of all rows
    steps = [[start]] * at_all + in_steps(history, step, columns)
    steps += in_steps(gone(history), 1000, columns)
    views, left = maintain(node, [[feed(delta)] for (delta,) in steps])
    expected = [[]] * at_all + prefixes(history, step)
    assert views[: len(expected)] == [recomputed(node, rows) for rows in expected]
    assert not views or views[-1] == recomputed(node, [])
    assert left == at_all, "rows that are gone have left state behind"


@settings(max_examples=150)
@given(calls=SOME_CALLS, history=histories(WIDE_ROWS), step=STEPS, groups=GROUPS)
@example(calls=SUMS, history=[(A_ROW, 1), (A_ROW, -1), (A_ROW, 1)], step=1, groups=("g",))
@example(calls=EXTREMES, history=[(A_ROW, 1), (A_ROW, -1)], step=1, groups=())
@example(calls=EXTREMES, history=[(NOTHING, 1), (A_ROW, 2), (NOTHING, -1)], step=1, groups=())
@example(calls=SUMS, history=NANS, step=1, groups=("f",))  # two NaNs that differ are one group
@example(calls=DISTINCT, history=NANS, step=1, groups=("g",))
@example(calls=DOUBLES, history=DOUBLES_COME_AND_GO, step=1, groups=("g",))
@example(calls=DISTINCT, history=DOUBLES_COME_AND_GO, step=3, groups=())
def test_aggregates_equal_recomputation_however_changes_are_batched(
    maintain: Maintain, calls: Calls, history: History, step: int, groups: tuple[str, ...]
) -> None:
    check(maintain, aggregate(groups, calls), history, step)


@settings(max_examples=60)
@given(data=st.data(), kind=st.sampled_from(list(NESTED)), step=STEPS)
def test_groups_of_arrays_structs_and_maps_equal_recomputation(
    maintain: Maintain, data: st.DataObject, kind: str, step: int
) -> None:
    columns = (Column("k", arrow_type(kind)), Column("n", pa.int64()))
    rows = st.tuples(st.sampled_from([*NESTED[kind], None]), st.sampled_from([1, 2, None]))
    calls: Calls = ((Call("count", None), pa.int64()), (Call("sum", "n"), pa.int64()))
    node = aggregate(("k",), calls, Source(columns, "t", ("k", "n")))
    check(maintain, node, data.draw(histories(rows)), step)


@settings(max_examples=60)
@given(
    case=st.sampled_from(TYPES).flatmap(
        lambda kind: st.tuples(st.just(kind), histories(st.tuples(values_of(kind) | st.none())))
    ),
    step=STEPS,
)
def test_every_type_has_a_least_and_a_greatest_value(
    maintain: Maintain, case: tuple[str, History], step: int
) -> None:
    kind, history = case
    arrow = arrow_type(kind)
    calls = ((Call("min", "v"), arrow), (Call("max", "v"), arrow))
    source = Source((Column("v", arrow),), "t", ("v",))
    check(maintain, aggregate((), calls, source), history, step)


@settings(max_examples=50)
@given(history=histories(WIDE_ROWS), step=STEPS, groups=GROUPS)
@example(history=[(A_ROW, 3), (A_ROW, -2)], step=1000, groups=("g",))
def test_partial_sums_give_what_the_rows_give(
    maintain: Maintain, history: History, step: int, groups: tuple[str, ...]
) -> None:
    node = aggregate(groups, SUMS)
    operator = AggregateOperator(node)

    def in_two_parts(delta: pa.Table) -> pa.Table:
        half = delta.num_rows // 2
        parts = [operator.partial(part) for part in (delta[:half], delta[half:])]
        assert all(part.num_rows <= half + 1 for part in parts)
        return pa.concat_tables(parts)

    check(maintain, node, history, step, in_two_parts)
    assert operator.partial_columns is not None
    given_ = in_two_parts(delta_of(history, WIDE)).schema
    assert given_.names == [column.name for column in operator.partial_columns]
    assert given_.types == [column.type for column in operator.partial_columns]


@settings(max_examples=150)
@given(
    calls=st.lists(st.sampled_from(EXTREMES + DISTINCT + SUMS), min_size=1, max_size=5).map(tuple),
    history=histories(WIDE_ROWS),
    step=STEPS,
    groups=GROUPS,
)
@example(calls=EXTREMES, history=NANS, step=1, groups=())
@example(calls=EXTREMES, history=[(NOTHING, 1), (A_ROW, 1)], step=1, groups=("h",))
def test_of_rows_that_stay_no_values_are_kept_for_min_and_max(
    maintain: Maintain, calls: Calls, history: History, step: int, groups: tuple[str, ...]
) -> None:
    history = [(row, abs(weight)) for row, weight in history]
    node = replace(aggregate(groups, calls), growing=True)
    views, left = maintain(node, in_steps(history, step, WIDE))
    assert views == [recomputed(node, rows) for rows in prefixes(history, step)]
    if not any(call.distinct for call, _ in calls):
        assert left == sum(views[-1].values() if views else ())


def test_a_row_of_those_that_stay_can_not_go(maintain: Maintain) -> None:
    node = replace(aggregate(("g",), EXTREMES), growing=True)
    with pytest.raises(Damaged, match="none ever goes"):
        maintain(node, in_steps([(A_ROW, 2), (A_ROW, -1)], 1, WIDE))


@pytest.mark.parametrize("calls", [EXTREMES, DISTINCT, DOUBLES, DISTINCT[-1:], EXTREMES[:1]])
def test_what_needs_the_values_has_no_partial_sums(calls: Calls) -> None:
    assert AggregateOperator(aggregate(("g",), calls)).partial_columns is None


@pytest.mark.parametrize("name", ["rows", "_rows", "__rows", "x", "x sum", "_0_sum", "_0_count"])
def test_a_group_may_have_any_name(maintain: Maintain, name: str) -> None:
    source = Source((Column(name, pa.string()), Column("n", pa.int64())), "t", ("a", "n"))
    node = aggregate((name,), (SUMS[0], SUMS[4], SUMS[5]), source)
    check(maintain, node, [(("a", 1), 1), (("b", 2), 2)], 1, AggregateOperator(node).partial)


def test_an_argument_may_have_any_name(maintain: Maintain) -> None:
    names = ("g", "x", "distinct x")
    source = Source(tuple(Column(name, pa.int64()) for name in names), "t", names)
    calls = (Call("sum", "x"), Call("sum", "x", True), Call("sum", "distinct x"))
    node = aggregate(("g",), tuple((call, pa.int64()) for call in calls), source)
    check(maintain, node, [((1, 2, 3), 2), ((1, 4, 5), 1)], 1)


def test_a_row_that_is_not_there_can_not_go(maintain: Maintain) -> None:
    node = aggregate(("g",), SUMS)
    with pytest.raises(Damaged, match="more rows of a group than it had"):
        maintain(node, in_steps([(A_ROW, 1), (A_ROW, -2)], 1, WIDE))


AMOUNT = Column("x", pa.decimal128(36, 2))
AMOUNTS = Source((Column("g", pa.string()), AMOUNT), "t", ("g", "x"))
UNSCALED = (
    st.integers(-(10**35), 10**35)
    | st.integers(-(2**64), 2**64)
    | st.sampled_from([-(2**63), 2**63 - 1, 2**63, -1, 0, 1, -5, 5])
)


@settings(max_examples=50)
@given(
    history=histories(st.tuples(st.sampled_from("ab"), UNSCALED.map(lambda n: Decimal(f"{n}E-2")))),
    step=STEPS,
)
@example(history=[(("a", Decimal(f"{-(2**63)}E-2")), 1)], step=1)  # has no opposite of 64 bits
@example(history=[(("a", Decimal("0.01")), 7), (("b", Decimal("-0.01")), 7)], step=1)
@example(history=[(("a", Decimal("-0.01")), 1), (("a", Decimal("0.00")), 3)], step=1000)
def test_averages_of_decimals_are_exact_and_rounded_half_up(
    maintain: Maintain, history: History, step: int
) -> None:
    calls = ((Call("avg", "x"), pa.decimal128(38, 3)), (Call("sum", "x"), pa.decimal128(38, 2)))
    check(maintain, aggregate(("g",), calls, AMOUNTS), history, step)


def changes(*values: tuple[str, str, int]) -> History:
    return [((group, Decimal(value)), weight) for group, value, weight in values]


NINES = "9" * 34 + ".99"


@pytest.mark.parametrize(
    ("call", "arrow", "history"),
    [
        (Call("sum", "x"), pa.decimal128(38, 2), changes(("b", NINES, 101))),
        (
            Call("sum", "x"),
            pa.decimal128(38, 2),
            changes(("b", f"-{NINES}", 60), ("b", f"-{NINES}", 60)),
        ),
        (Call("sum", "x"), pa.decimal128(38, 2), changes(*[("b", NINES, 1)] * 200)),
        # 341 of them are a little more than 2^128
        (Call("sum", "x"), pa.decimal128(38, 2), changes(*[("b", NINES, 1)] * 341)),
        (Call("avg", "x"), pa.decimal128(38, 2), changes(*[("b", NINES, 1)] * 341)),
        (Call("sum", "x"), pa.decimal128(36, 2), changes(("b", NINES, 1), ("b", "0.01", 1))),
        (Call("avg", "x"), pa.decimal128(38, 6), changes(("b", NINES, 1), ("b", f"-{NINES}", 2))),
        (Call("avg", "x"), pa.decimal128(38, 5), changes(("b", NINES, 1))),
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_a_result_that_does_not_fit_is_an_error_that_names_the_group(
    maintain: Maintain, call: Call, arrow: pa.DataType, history: History, step: int
) -> None:
    node = aggregate(("g",), ((call, arrow),), AMOUNTS)
    history = changes(("a", "1.00", 1)) + history + changes(("c", "-2.00", 1))
    with pytest.raises(Overflow, match="of the group g = b"):
        maintain(node, in_steps(history, step, AMOUNTS.columns))


def test_a_partial_sum_that_does_not_fit_is_such_an_error(maintain: Maintain) -> None:
    node = aggregate(("g",), ((Call("sum", "x"), pa.decimal128(38, 2)),), AMOUNTS)
    partial = AggregateOperator(node).partial
    steps = in_steps(
        changes(("a", NINES, 60), ("b", NINES, 60), ("b", NINES, 60)), 2, AMOUNTS.columns
    )
    with pytest.raises(Overflow, match=r"sum\(x\) of the group g = b"):
        maintain(node, [[pa.concat_tables([partial(delta) for (delta,) in steps])]])
    ((delta,),) = in_steps(changes(("a", NINES, 60), ("b", NINES, 120)), 2, AMOUNTS.columns)
    with pytest.raises(Overflow, match=r"sum\(x\) of the group g = b"):
        partial(delta)


def test_a_sum_that_does_not_fit_for_a_moment_is_no_error(maintain: Maintain) -> None:
    node = aggregate(("g",), ((Call("sum", "x"), pa.decimal128(38, 2)),), AMOUNTS)
    check(maintain, node, changes(("b", NINES, 300), ("b", f"-{NINES}", 299)), 1000)


def test_a_sum_beyond_64_bits_is_an_error_and_not_a_wrong_number(maintain: Maintain) -> None:
    node = aggregate(("g",), SUMS)
    big, one = ("a", 1, None, 2**63 - 1, *NOTHING[4:]), ("a", 1, None, 1, *NOTHING[4:])
    with pytest.raises(Overflow, match=r"sum\(n\) of the group g = a does not fit int64"):
        maintain(node, in_steps([(big, 1), (one, 1)], 1000, WIDE))
    with pytest.raises(Overflow, match=r"sum\(n\) does not fit int64"):
        maintain(aggregate((), SUMS), in_steps([(big, 1), (one, 1)], 1, WIDE))
    check(maintain, node, [(big, 1), (one, 1), (one, -1)], 1000)


def test_a_tried_sum_that_does_not_fit_is_null_while_it_does_not(maintain: Maintain) -> None:
    calls = ((Call("try_sum", "n"), pa.int64()), (Call("count", "n"), pa.int64()))
    big, one = ((g, 1, None, n, *NOTHING[4:]) for g, n in (("b", 2**63 - 1), ("b", 1)))
    others = [((g, 1, None, 7, *NOTHING[4:]), 1) for g in ("a", "c", "d")]
    steps = in_steps([*others, (big, 1), (one, 1), (one, -1)], 1, WIDE)
    views, _ = maintain(aggregate(("g",), calls), steps)
    shown = [{row[1:] for row in view if row[0] == "b"} for view in views[3:]]
    assert shown == [{(2**63 - 1, 1)}, {(None, 2)}, {(2**63 - 1, 1)}]
    at_once, _ = maintain(
        aggregate(("g",), calls), in_steps([*others, (big, 1), (one, 1)], 9, WIDE)
    )
    assert set(at_once[0]) == {("a", 7, 1), ("b", None, 2), ("c", 7, 1), ("d", 7, 1)}
