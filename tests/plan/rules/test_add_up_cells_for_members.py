"""add_up_cells_for_members: before and after."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everview.plan.expressions import Ref, Tree, sql
from everview.plan.facts import Facts
from everview.plan.nodes import (
    Aggregate,
    Bound,
    ByMember,
    Call,
    CellSum,
    Filter,
    Join,
    Node,
    Project,
    Source,
)
from everview.plan.nodes.members import ROWS
from everview.plan.rules.add_up_cells_for_members import add_up_cells_for_members
from everview.schema import Column

D, R, DAY = Column("d", pa.date32()), Column("r", pa.string()), Column("day", pa.date32())
G, X, REGION = Column("g", pa.string()), Column("x", pa.int64()), Column("region", pa.string())
MEMBERS = Source((D, R), "v_members", ("d", "r"))
ROWS_ = Source((G, X, DAY, REGION), "t", ("g", "x", "day", "region"))
FACTS = Facts(members="v_members")
SINCE, IN = sql("({0} >= {1})", Ref("day"), Ref("d")), sql("({0} = {1})", Ref("region"), Ref("r"))
COUNT, TOTAL = Column("call_0", pa.int64(), False), Column("call_1", pa.int64())


def before(*conditions: Tree, calls: tuple[Call, ...] = (Call("count", None), Call("sum", "x")),
           groups: tuple[Column, ...] = (G, D, R)) -> Aggregate:  # fmt: skip
    """What Catalyst makes of a query over members: a join, a filter, and groups by member."""
    columns = MEMBERS.columns + ROWS_.columns
    node: Node = Join(columns, MEMBERS, ROWS_, "inner", (), (), (), False)
    for condition in conditions:
        node = Filter(columns, node, condition)
    shown = tuple(dict.fromkeys((*groups, X)))
    node = Project(shown, node, tuple(Ref(column.name) for column in shown))
    names = tuple(column.name for column in groups)
    return Aggregate((*groups, COUNT, TOTAL)[: len(groups) + len(calls)], node, names, calls)


def test_rows_are_added_up_to_cells_and_cells_for_members() -> None:
    after = add_up_cells_for_members(before(SINCE, IN), FACTS)
    keys = (G, DAY, REGION)
    rows = Project((*keys, X), ROWS_, tuple(map(Ref, ("g", "day", "region", "x"))))
    sums = (
        Column("cell_rows", pa.int64(), False),
        Column("cell_count_0", pa.int64(), False),
        Column("cell_sum_0", pa.decimal128(38, 0)),
    )
    calls = (Call("count", None), Call("count", "x"), Call("sum", "x"))
    cells = Aggregate((*keys, *sums), rows, ("g", "day", "region"), calls)
    by_member = ByMember(
        (D, R, G, COUNT, TOTAL),
        cells,
        Project((D, R), MEMBERS, (Ref("d"), Ref("r"))),
        ("d", "r"),
        ("g",),
        (1,),
        (Bound(0, "day", ">=", "d"), Bound(0, "region", "=", "r")),
        (Call("count", None), Call("sum", "x")),
        (X,),
        (
            CellSum(None, ROWS, "cell_rows"),
            CellSum("x", "count", "cell_count_0"),
            CellSum("x", "sum", "cell_sum_0"),
        ),
        each=False,
    )
    shown = (G, D, R, COUNT, TOTAL)
    assert after == Project(shown, by_member, tuple(Ref(column.name) for column in shown))


def test_a_comparison_that_begins_with_the_member_is_turned() -> None:
    turned = sql("({0} < {1})", Ref("d"), Ref("day"))
    after = add_up_cells_for_members(before(turned, IN), FACTS)
    (node,) = [node for node in after.walk() if isinstance(node, ByMember)]
    assert Bound(0, "day", ">", "d") in node.bounds


def test_expressions_that_are_compared_have_columns_with_names_that_are_free() -> None:
    later = sql("CAST({0} AS DATE)", sql("date_add({0}, 3)", Ref("d")))
    earlier = sql("CAST({0} AS DATE)", sql("date_sub({0}, 3)", Ref("day")))
    both = [sql("({0} < {1})", earlier, later), sql("({0} < {1})", Ref("day"), later)]
    after = add_up_cells_for_members(before(*both), FACTS)
    (node,) = [node for node in after.walk() if isinstance(node, ByMember)]
    assert {*node.bounds} == {Bound(0, "day", "<", "bound"), Bound(0, "attribute", "<", "bound")}
    assert node.members.names() == ["d", "r", "bound"]


def test_parts_that_or_connects_are_boxes_less_what_they_share() -> None:
    after = add_up_cells_for_members(before(sql("({0} OR {1})", SINCE, IN)), FACTS)
    (node,) = [node for node in after.walk() if isinstance(node, ByMember)]
    shared = {Bound(2, "day", ">=", "d"), Bound(2, "region", "=", "r")}
    assert node.signs == (1, 1, -1)
    assert {*node.bounds} == {Bound(0, "day", ">=", "d"), Bound(1, "region", "=", "r"), *shared}
    assert "day >= d, region = r, less day >= d AND region = r" in node.label()


def test_conditions_of_members_alone_are_compared_with_true() -> None:
    of_member = sql("({0} > {1})", Ref("r"), Ref("d"))
    after = add_up_cells_for_members(before(SINCE, of_member), FACTS)
    (node,) = [node for node in after.walk() if isinstance(node, ByMember)]
    assert Bound(0, "attribute", "=", "bound") in node.bounds


def test_a_column_may_be_a_group_and_compared_and_added_up() -> None:
    more = sql("({0} > {1})", Ref("x"), sql("CAST({0} AS BIGINT)", Ref("r")))
    after = add_up_cells_for_members(before(more, groups=(X, D, R)), FACTS)
    (node,) = [node for node in after.walk() if isinstance(node, ByMember)]
    assert node.cells.names() == ["x", "cell_rows", "cell_count_0", "cell_sum_0"]


def test_conditions_of_rows_alone_stay_below() -> None:
    alone = sql("({0} > {1})", Ref("x"), Ref("x"))
    after = add_up_cells_for_members(before(SINCE, alone), FACTS)
    assert [node.condition for node in after.walk() if isinstance(node, Filter)] == [alone]


@pytest.mark.parametrize(
    "plan",
    [
        before(IN),
        before(sql("({0} OR {1})", SINCE, sql("({0} > {1})", Ref("x"), Ref("x")), SINCE)),
        before(SINCE, sql("({0} > {1})", sql("abs({0})", Ref("x")), sql("length({0})", Ref("r")))),
        before(SINCE, calls=(Call("min", "x"),)),
        before(SINCE, calls=(Call("sum", "x", distinct=True),)),
        before(SINCE, groups=(G, D)),
        before(SINCE, groups=(D, R), calls=(Call("sum", "d"),)),
        before(SINCE, IN, sql("({0} > {1})", sql("({0} / {1})", Ref("x"), Ref("x")), Ref("d"))),
    ],
    ids=["equal values alone", "another form", "no type", "least",
         "distinct", "not by member", "of a member's value", "may fail for rows of no member"],
)  # fmt: skip
def test_other_plans_stay(plan: Node) -> None:
    assert add_up_cells_for_members(plan, FACTS) == plan


def test_views_without_parameters_or_that_share_selections_only_stay() -> None:
    selection = Facts(members="v_members", adds_up=False)
    for facts in (Facts(), selection):
        assert add_up_cells_for_members(before(SINCE), facts) == before(SINCE)
