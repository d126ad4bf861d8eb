"""Where rows lie, and so which inputs of operators are shuffled."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from everview.plan.distribution import (
    UNNAMED,
    distribution,
    hashed,
    keyed_by,
    lies,
    shards_by,
    shuffles,
)
from everview.plan.expressions import Ref
from everview.plan.nodes import (
    Aggregate,
    Call,
    Constant,
    Filter,
    Generate,
    Join,
    Node,
    Order,
    Project,
    Source,
    Threshold,
    TopK,
    Touched,
    Union,
)
from everview.schema import Column
from tests.plan.trees import tree


def source(table: str, **types: pa.DataType) -> Source:
    columns = tuple(Column(name, type_) for name, type_ in types.items())
    return Source(columns, table, tuple(types))


def by(*names: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(name.split("=")) for name in names)


def grouped(node: Node, *groups: str) -> Aggregate:
    counted = Column("call_0", pa.int64(), False)
    columns = (*map(node.column, groups), counted)
    return Aggregate(columns, node, groups, (Call("count", None),))


def joined(left: Node, right: Node, how: str = "inner", replicated: bool = False) -> Join:
    columns = (*left.columns, *right.columns)
    return Join(columns, left, right, how, ("b",), ("c",), (False,), replicated)


LEFT = source("t", a=pa.int64(), b=pa.int64(), f=pa.float64())
RIGHT = source("u", c=pa.int64(), d=pa.string())
GROUPS = grouped(LEFT, "a", "b")


def test_rows_of_tables_and_constants_lie_anywhere() -> None:
    assert distribution(LEFT) is None
    assert distribution(Constant(LEFT.columns, ())) is None
    assert distribution(Union(LEFT.columns, (LEFT, LEFT))) is None


def test_groups_lie_by_their_columns_and_first_rows_in_one_place() -> None:
    assert distribution(GROUPS) == by("a", "b")
    assert distribution(grouped(LEFT)) == ()
    assert distribution(TopK(LEFT.columns, LEFT, (Order("a", False, True),), 3)) == ()


def test_floats_wide_decimals_and_nested_values_decide_about_no_shard() -> None:
    odd = source(
        "t",
        a=pa.int64(),
        f=pa.float64(),
        w=pa.decimal128(19, 2),
        n=pa.decimal128(18, 2),
        i=pa.duration("us"),
        l=pa.list_(pa.int64()),
    )
    assert hashed(odd, tuple(odd.names())) == by("a", "n")


def test_filters_and_projections_leave_rows_where_they_are() -> None:
    assert distribution(Filter(GROUPS.columns, GROUPS, tree("{call_0} > 1"))) == by("a", "b")
    a, b, x, y = (Column(name, pa.int64()) for name in "abxy")
    renamed = Project((x, y, a), GROUPS, (Ref("a"), Ref("b"), Ref("a")))
    assert distribution(renamed) == by("x=a", "y")
    computed = Project((a, b), GROUPS, (Ref("a"), tree("{b} + 1")))
    assert distribution(computed) == UNNAMED
    made = Generate((a, x), GROUPS, ("a",), tree("explode(array({b}))"))
    assert distribution(made) == UNNAMED
    both = replace(made, columns=(a, b, x), kept=("a", "b"))
    assert distribution(both) == by("a", "b")


def test_an_inner_join_has_its_keys_by_the_names_of_both_sides() -> None:
    assert shards_by(joined(LEFT, RIGHT)) == (by("b"), by("c"))
    assert distribution(joined(LEFT, RIGHT)) == by("b=c")
    assert distribution(joined(LEFT, RIGHT, "left")) == by("b")
    assert distribution(joined(LEFT, RIGHT, "full")) is None


def test_a_join_goes_by_those_of_its_keys_that_a_side_lies_by() -> None:
    columns = (*LEFT.columns[:2], *GROUPS.columns)
    keys = ("a", "b")
    pair = Join(columns, LEFT, grouped(LEFT, "b"), "semi", keys, ("b", "b"), (False,) * 2, False)
    assert shards_by(pair) == (by("a"), by("b"))


def test_a_replicated_side_leaves_the_other_as_it_lies() -> None:
    assert shards_by(joined(LEFT, RIGHT, replicated=True)) == (by("a", "b"), None)
    assert shards_by(joined(GROUPS, RIGHT, replicated=True)) == (by("a", "b"), None)
    unnamed = Project((Column("b", pa.int64()),), GROUPS, (tree("{b} + 1"),))
    assert shards_by(joined(unnamed, RIGHT, replicated=True)) == (UNNAMED, None)
    cross = replace(joined(unnamed, RIGHT, replicated=True), left_keys=(), right_keys=())
    assert shards_by(cross) == (by("b"), None)


def test_a_threshold_leaves_rows_where_they_lie() -> None:
    scalar = grouped(RIGHT)
    assert shards_by(Threshold(GROUPS.columns, GROUPS, scalar, "a", ">")) == (by("a", "b"), None)
    assert shards_by(Threshold(RIGHT.columns, RIGHT, scalar, "c", ">")) == (by("c", "d"), None)


@pytest.mark.parametrize(
    ("node", "is_shuffled"),
    [
        (LEFT, False),
        (grouped(LEFT, "a"), True),
        (grouped(GROUPS, "a", "b"), False),
        (grouped(GROUPS, "a"), True),
        (grouped(grouped(LEFT, "a"), "a", "call_0"), False),
        (grouped(joined(LEFT, RIGHT), "c"), False),
        (Touched(GROUPS.columns, GROUPS, ("b", "a")), False),
        (TopK(GROUPS.columns, GROUPS, (), 3), True),
        (TopK(LEFT.columns, grouped(LEFT), (), 3), False),
        (joined(LEFT, RIGHT), True),
    ],
    ids=[
        *("a table", "of a table", "alike", "of fewer", "of more", "of a join by its key"),
        *("touched", "first rows", "first of one", "a join"),
    ],
)
def test_what_lies_right_is_not_shuffled(node: Node, is_shuffled: bool) -> None:
    assert shuffles(node) == is_shuffled


def test_rows_lie_as_asked_if_each_place_has_the_names() -> None:
    pairs = joined(LEFT, RIGHT)
    assert lies(pairs, by("b"))
    assert lies(pairs, by("c"))
    assert not lies(pairs, by("a"))
    assert not lies(pairs, by("b", "c"))
    assert not lies(LEFT, by("a"))
    assert not lies(pairs, None)


def test_equal_rows_are_kept_together_as_they_lie_if_they_do() -> None:
    assert keyed_by(grouped(LEFT, "a"), ("a", "call_0")) == by("a")
    assert keyed_by(LEFT, ("f", "b")) == by("b")
    assert keyed_by(GROUPS, ("a",)) == by("a")


def test_plans_may_be_deep() -> None:
    plan: Node = GROUPS
    for i in range(2_000):
        plan = Filter(plan.columns, plan, tree(f"{{a}} > {i}"))
    assert distribution(plan) == by("a", "b")
