"""add_up_cells_for_values_of_members: before and after."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from everview.plan.expressions import Ref, sql
from everview.plan.facts import Facts
from everview.plan.nodes import Aggregate, Bound, ByMember, Call, Filter, Join, Node, Project
from everview.plan.rules.add_up_cells_for_values_of_members import (
    add_up_cells_for_values_of_members,
)
from everview.plan.rules.drop_joins_with_members import drop_joins_with_members
from everview.schema import Column
from tests.plan.rules.test_add_up_cells_for_members import FACTS, MEMBERS, REGION, ROWS_, D, G

TOTAL = Column("call_0", pa.int64())
DAYS = Aggregate((D,), MEMBERS, ("d",), ())
SINCE = sql("({0} >= {1})", Ref("day"), Ref("d"))
MANY = sql("({0} > 5)", Ref("call_0"))


def rows(groups: tuple[Column, ...], values: Node = DAYS, function: str = "sum") -> Aggregate:
    """Rows of the values of members that only comparisons need, added up by these as well."""
    columns = (*values.columns, *ROWS_.columns)
    join = Join(columns, values, ROWS_, "inner", (), (), (), False)
    names = tuple(column.name for column in groups)
    calls = (Call(function, "x"),)
    return Aggregate((*groups, TOTAL), Filter(columns, join, SINCE), names, calls)


def joined(node: Node, how: str = "inner", keys: tuple[str, ...] = ("d", "region")) -> Join:
    right = tuple(replace(column, name=f"{column.name}_2") for column in node.columns)
    safe = (True, False)[: len(keys)]
    return Join((*MEMBERS.columns, *right), MEMBERS, node, how, ("d", "r")[: len(keys)], keys,
                safe, False)  # fmt: skip


def cells(plan: Node) -> ByMember:
    (node,) = [node for node in plan.walk() if isinstance(node, ByMember)]
    return node


def test_rows_are_added_up_for_whole_members() -> None:
    before = joined(rows((G, REGION, D)))
    after = add_up_cells_for_values_of_members(before, FACTS)
    assert after.columns == before.columns
    node = cells(after)
    assert node.cells.names()[:3] == ["g", "day", "region"]
    assert {*node.bounds} == {Bound(0, "day", ">=", "_d"), Bound(0, "region", "=", "_r")}
    assert (node.by, node.groups) == (("_d", "_r"), ("g",))
    assert not any(isinstance(one, Join) for one in drop_joins_with_members(after, FACTS).walk())


def test_members_may_be_on_the_right() -> None:
    node = rows((G, REGION, D))
    right = tuple(replace(column, name=f"m_{column.name}") for column in MEMBERS.columns)
    before = Join((*node.columns, *right), node, MEMBERS, "inner", ("d", "region"), ("d", "r"),
                  (True, False), False)  # fmt: skip
    after = add_up_cells_for_values_of_members(before, FACTS)
    assert after.columns == before.columns
    assert cells(after).groups == ("g",)
    assert not any(isinstance(one, Join) for one in drop_joins_with_members(after, FACTS).walk())


def test_a_row_for_each_member_stays_one() -> None:
    before = joined(rows((REGION, D)), "left")
    after = drop_joins_with_members(add_up_cells_for_values_of_members(before, FACTS), FACTS)
    assert cells(after).each
    assert not any(isinstance(one, Join) for one in after.walk())


def test_conditions_of_sums_stay_above() -> None:
    node = rows((G, REGION, D))
    before = joined(Filter(node.columns, node, MANY))
    after = drop_joins_with_members(add_up_cells_for_values_of_members(before, FACTS), FACTS)
    assert [one.condition for one in after.walk() if isinstance(one, Filter)] == [MANY]
    assert cells(after)


@pytest.mark.parametrize(
    "plan",
    [
        joined(rows((G, REGION, D)), "full"),
        joined(rows((G, REGION, D), function="min")),
        joined(rows((G, REGION, D), values=replace(DAYS, calls=(Call("count", None),)))),
        joined(rows((G, REGION, D)), keys=("g", "region")),
        joined(Project((D, REGION, TOTAL), rows((G, REGION, D)),
                       (sql("date_add({0}, 1)", Ref("d")), Ref("region"), Ref("call_0")))),
    ],
    ids=["full", "least", "not values", "other columns", "computed"],
)  # fmt: skip
def test_other_joins_stay(plan: Node) -> None:
    assert add_up_cells_for_values_of_members(plan, FACTS) == plan


def test_views_without_parameters_stay() -> None:
    before = joined(rows((G, REGION, D)))
    assert add_up_cells_for_values_of_members(before, Facts()) == before
