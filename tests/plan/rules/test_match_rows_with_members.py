"""match_rows_with_members: before and after."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everview.plan.expressions import Ref, Tree, all_of, sql
from everview.plan.facts import Facts
from everview.plan.nodes import Aggregate, Bound, Filter, Join, Matches, Node, Project, Source
from everview.plan.rules.match_rows_with_members import match_rows_with_members
from everview.schema import Column

C, R = Column("c", pa.int32()), Column("r", pa.string())
ID, X, REGION = Column("id", pa.int64()), Column("x", pa.int32()), Column("region", pa.string())
MEMBERS = Source((C, R), "v_members", ("c", "r"))
ROWS = Source((ID, X, REGION), "t", ("id", "x", "region"))
FACTS = Facts(members="v_members")
MORE, NOT_IN = sql("({0} > {1})", Ref("x"), Ref("c")), sql("({0} <> {1})", Ref("region"), Ref("r"))
COLUMNS = (*MEMBERS.columns, *ROWS.columns)


def before(*conditions: Tree, members: Node = MEMBERS, how: str = "inner") -> Filter:
    node: Node = Join(COLUMNS, members, ROWS, how, (), (), (), False)
    return Filter(COLUMNS, node, all_of(conditions))


def matches(plan: Node) -> list[Matches]:
    return [node for node in plan.walk() if isinstance(node, Matches)]


def test_rows_are_matched_by_comparisons_and_the_rest_is_asked_above() -> None:
    after = match_rows_with_members(before(MORE, NOT_IN), FACTS)
    rows = Project(ROWS.columns, ROWS, tuple(map(Ref, ROWS.names())))
    members = Project(MEMBERS.columns, MEMBERS, tuple(map(Ref, MEMBERS.names())))
    columns = (*ROWS.columns, *MEMBERS.columns)
    node: Node = Matches(columns, rows, members, (Bound(0, "x", ">", "c"),))
    node = Filter(columns, node, NOT_IN)
    assert after == Project(COLUMNS, node, tuple(Ref(column.name) for column in COLUMNS))


def test_expressions_that_are_compared_become_columns() -> None:
    both = sql("({0} = {1})", Ref("region"), Ref("r"))
    twice = sql("CAST({0} AS BIGINT)", sql("({0} + {1})", Ref("x"), Ref("x")))
    larger = sql("({0} < {1})", sql("CAST({0} AS BIGINT)", Ref("c")), twice)
    (node,) = matches(match_rows_with_members(before(both, larger), FACTS))
    assert node.bounds == (Bound(0, "region", "=", "r"), Bound(0, "attribute", ">", "bound"))
    assert node.names() == ["id", "x", "region", "attribute", "c", "r", "bound"]


def test_the_distinct_values_of_members_are_members_too() -> None:
    values = Aggregate((C, R), MEMBERS, ("c", "r"), ())
    assert len(matches(match_rows_with_members(before(MORE, members=values), FACTS))) == 1


@pytest.mark.parametrize(
    "plan",
    [
        before(NOT_IN),
        before(sql("({0} OR {1})", MORE, NOT_IN)),
        before(MORE, how="left"),
        before(MORE, members=Source((C, R), "others", ("c", "r"))),
        before(sql("({0} > {1})", sql("({0} / {1})", Ref("x"), Ref("x")), Ref("c"))),
        before(sql("({0} > {1})", Ref("x"), Ref("x"))),
    ],
    ids=["no order", "either", "left join", "other tables", "may fail", "of rows alone"],
)
def test_other_plans_stay(plan: Node) -> None:
    assert match_rows_with_members(plan, FACTS) == plan


def test_views_without_parameters_stay() -> None:
    assert match_rows_with_members(before(MORE), Facts()) == before(MORE)
