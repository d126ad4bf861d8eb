"""keep_first_groups_of_members: before and after."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from everview.plan.expressions import Ref, sql
from everview.plan.facts import Facts, TableFacts
from everview.plan.nodes import (
    Aggregate,
    Bound,
    ByMember,
    Filter,
    FirstByMember,
    Join,
    Matches,
    Node,
    Order,
    Project,
    Source,
    TopKByGroup,
)
from everview.plan.rules.add_up_cells_for_values_of_members import (
    add_up_cells_for_values_of_members,
)
from everview.plan.rules.drop_joins_with_members import drop_joins_with_members
from everview.plan.rules.keep_first_groups_of_members import keep_first_groups_of_members
from everview.plan.rules.match_rows_with_members import match_rows_with_members
from everview.schema import Column
from tests.plan.rules.test_add_up_cells_for_members import REGION, ROWS_, D, G
from tests.plan.rules.test_add_up_cells_for_values_of_members import (
    DAYS,
    MANY,
    SINCE,
    joined,
    rows,
)

KEY = {"v_members": TableFacts(("c",))}
C, ID, X = Column("c", pa.int32()), Column("id", pa.int64()), Column("x", pa.int32())
MEMBERS = Source((C,), "v_members", ("c",))
ROWS = Source((ID, X), "t", ("id", "x"))
BY_X = (Order("x", True, False),)


def firsts(plan: Node) -> list[FirstByMember]:
    return [node for node in plan.walk() if isinstance(node, FirstByMember)]


def of_groups(filtered: bool = False) -> Node:
    """The first groups of members, whose values the rows are joined with first."""
    node: Node = rows((G, REGION, D))
    node = Filter(node.columns, node, MANY) if filtered else node
    order = (Order("call_0", True, False), Order("g", False, True))
    before = joined(TopKByGroup(node.columns, node, ("d", "region"), order, 3, 1))
    facts = Facts(members="v_members")
    return drop_joins_with_members(add_up_cells_for_values_of_members(before, facts), facts)


def of_rows(members: Node = MEMBERS, computed: bool = False) -> Node:
    matches = Matches(
        (*ROWS.columns, C), ROWS, Project((C,), members, (Ref("c"),)), (Bound(0, "x", ">", "c"),)
    )
    tree = sql("(- {0})", Ref("x")) if computed else Ref("x")
    node = Project((C, X, ID), matches, (Ref("c"), tree, Ref("id")))
    return TopKByGroup(node.columns, node, ("c",), BY_X, 3, 0)


def test_groups_that_are_added_up_for_whole_members() -> None:
    before = of_groups()
    assert not any(isinstance(node, Join) for node in before.walk())
    after = keep_first_groups_of_members(before, Facts(members="v_members"))
    assert after.columns == before.columns
    (node,) = firsts(after)
    assert not any(isinstance(one, ByMember | Aggregate | TopKByGroup) for one in after.walk())
    assert (node.by, node.groups, node.limit, node.offset) == (("_d", "_r"), ("g",), 3, 1)
    assert node.order == (Order("call_0", True, False), Order("g", False, True))
    assert {*node.bounds} == {Bound(0, "day", ">=", "_d"), Bound(0, "region", "=", "_r")}
    assert not node.each_row


def test_groups_of_which_some_are_left_out_before_stay() -> None:
    before = of_groups(filtered=True)
    assert keep_first_groups_of_members(before, Facts(members="v_members")) == before


def test_rows_of_whole_members_where_values_of_them_were_joined() -> None:
    """`WHERE region = :r AND day >= :d`: days are compared first, regions by a join above."""
    columns = (*DAYS.columns, *ROWS_.columns)
    join = Join(columns, DAYS, ROWS_, "inner", (), (), (), False)
    node = Filter(columns, join, SINCE)
    before = joined(TopKByGroup(columns, node, ("d", "region"), BY_X, 3, 0))
    facts = Facts({"v_members": TableFacts(("d", "r"))}, members="v_members")
    after = add_up_cells_for_values_of_members(before, facts)
    after = keep_first_groups_of_members(match_rows_with_members(after, facts), facts)
    assert after.columns == before.columns
    (first,) = firsts(after)
    assert {*first.bounds} == {Bound(0, "day", ">=", "d"), Bound(0, "region", "=", "_r")}
    assert (first.by, first.groups) == (("d", "_r"), tuple(ROWS_.names()))


def test_rows_of_members() -> None:
    before = of_rows()
    after = keep_first_groups_of_members(before, Facts(KEY, members="v_members"))
    (node,) = firsts(after)
    assert after == Project(before.columns, node, (Ref("c"), Ref("x"), Ref("id")))
    assert (node.by, node.groups, node.order) == (("c",), ("id", "x"), BY_X)
    assert node.each_row


def test_rows_of_the_distinct_values_of_members() -> None:
    values = Aggregate((C,), MEMBERS, ("c",), ())
    facts = Facts({"v_members": TableFacts(("c", "d"))}, members="v_members")
    assert firsts(keep_first_groups_of_members(of_rows(values), facts))


@pytest.mark.parametrize(
    ("plan", "facts"),
    [
        (of_rows(computed=True), Facts(KEY, members="v_members")),
        (of_rows(), Facts({"v_members": TableFacts(("c", "d"))}, members="v_members")),
        (of_rows(replace(MEMBERS, table="others")), Facts(KEY, members="v_members")),
        (of_rows(), Facts(KEY)),
    ],
    ids=["computed above", "several members", "other tables", "no members"],
)
def test_other_plans_stay(plan: Node, facts: Facts) -> None:
    assert keep_first_groups_of_members(plan, facts) == plan
