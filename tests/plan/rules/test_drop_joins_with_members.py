"""drop_joins_with_members: before and after."""

from __future__ import annotations

from dataclasses import replace

import pytest

from everview.plan.expressions import Ref, sql
from everview.plan.facts import Facts
from everview.plan.nodes import ByMember, Filter, Join, Node, Project
from everview.plan.rules.add_up_cells_for_members import add_up_cells_for_members
from everview.plan.rules.drop_joins_with_members import drop_joins_with_members
from tests.plan.rules.test_add_up_cells_for_members import (
    COUNT,
    FACTS,
    MEMBERS,
    SINCE,
    D,
    R,
    before,
)

OF_EACH = add_up_cells_for_members(before(SINCE, groups=(D, R)), FACTS)
OF_GROUPS = add_up_cells_for_members(before(SINCE), FACTS)
POSITIVE = sql("({0} > 1)", Ref("call_0"))


def joined(rows: Node, how: str, members: Node = MEMBERS) -> Join:
    """Members with their rows, whose columns have other names then."""
    columns = (*members.columns, *(replace(c, name=f"{c.name}_2") for c in rows.columns))
    keys = ("d", "r")
    return Join(columns, members, rows, how, keys, keys, (True, True), False)


def test_members_without_rows_have_one_as_well() -> None:
    after = drop_joins_with_members(joined(OF_EACH, "left"), FACTS)
    names = ("d", "r", *OF_EACH.names())
    of_each = OF_EACH.with_inputs(lambda node: replace(node, each=True))
    assert after == Project(joined(OF_EACH, "left").columns, of_each, tuple(map(Ref, names)))


@pytest.mark.parametrize("rows", [OF_GROUPS, Filter(OF_GROUPS.columns, OF_GROUPS, POSITIVE)])
def test_rows_are_only_of_members_that_there_are(rows: Node) -> None:
    after = drop_joins_with_members(joined(rows, "inner"), FACTS)
    assert isinstance(after, Project)
    assert after.input == rows


def test_members_may_be_on_the_right() -> None:
    columns = (*OF_GROUPS.columns, *(replace(c, name=f"m_{c.name}") for c in MEMBERS.columns))
    keys = ("d", "r")
    join = Join(columns, OF_GROUPS, MEMBERS, "inner", keys, keys, (False, False), False)
    trees = tuple(map(Ref, (*OF_GROUPS.names(), *keys)))
    assert drop_joins_with_members(join, FACTS) == Project(columns, OF_GROUPS, trees)


FEWER = replace(MEMBERS, table="others")


@pytest.mark.parametrize(
    "join",
    [
        joined(OF_GROUPS, "left"),
        joined(Filter(OF_EACH.columns, OF_EACH, POSITIVE), "left"),
        joined(OF_EACH, "left", FEWER),
        joined(Project((D, R, COUNT), OF_EACH, (Ref("d"), sql("upper({0})", Ref("r")),
                                                Ref("call_0"))), "left"),
        joined(OF_EACH, "full"),
        replace(joined(OF_EACH, "inner"), left_keys=("d",), right_keys=("d",), null_safe=(True,)),
    ],
    ids=["groups", "filtered", "another table", "other values", "full", "one of two columns"],
)  # fmt: skip
def test_other_joins_stay(join: Join) -> None:
    assert drop_joins_with_members(join, FACTS) == join


def test_views_without_parameters_stay() -> None:
    assert drop_joins_with_members(joined(OF_EACH, "left"), Facts()) == joined(OF_EACH, "left")
    assert any(isinstance(node, ByMember) for node in OF_EACH.walk())
