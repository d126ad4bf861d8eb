"""take_first_rows_of_groups: before and after."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everview.delta import WEIGHT
from everview.plan.expressions import Lit, Ref, Tree, all_of, cast, sql
from everview.plan.facts import Facts
from everview.plan.nodes import (
    Filter,
    Node,
    Order,
    Project,
    Recompute,
    Replace,
    Source,
    TopKByGroup,
    Touched,
)
from everview.plan.rules.take_first_rows_of_groups import take_first_rows_of_groups
from everview.schema import Column

G, X = Column("g", pa.string()), Column("x", pa.int32())
NUMBER = Column("window", pa.int32(), False)
ROWS = Source((G, X), "t", ("g", "x"))
FACTS = Facts(members="v_members")
BY_X = (sql("{0} DESC NULLS LAST", Ref("x")), sql("{0}", Ref("g")), sql("{0}", Ref("x")))


def number(sign: str, value: int) -> Tree:
    return sql(f"({{0}} {sign} {{1}})", Ref("window"), Lit(str(value), "INT"))


def before(
    *conditions: Tree, items: tuple[Tree, ...] = BY_X, function: str = "row_number()",
    shown: tuple[Column, ...] = (X, G), groups: tuple[str, ...] = ("g",),
) -> Project:  # fmt: skip
    touched = Touched(ROWS.columns, ROWS, groups)
    by = sql("ORDER BY " + ", ".join(f"{{{i}}}" for i in range(len(items))), *items)
    over = sql("OVER ({0} {1})", sql("PARTITION BY {0}, {1}", Ref("g"), Ref(WEIGHT)), by)
    numbers = cast(sql("{0} {1}", sql(function), over), "INT")
    columns = (*ROWS.columns, NUMBER)
    replaced = Replace(columns, Recompute(columns, touched, (numbers,), True), groups, False)
    node: Node = Filter(columns, replaced, all_of(conditions))
    return Project(shown, node, tuple(Ref(column.name) for column in shown))


def test_the_first_numbers_are_the_first_rows() -> None:
    first = TopKByGroup(ROWS.columns, ROWS, ("g",), (Order("x", True, False),), 3, 0)
    after = Project((X, G), first, (Ref("x"), Ref("g")))
    assert take_first_rows_of_groups(before(number("<=", 3)), FACTS) == after


@pytest.mark.parametrize(
    ("conditions", "limit", "offset"),
    [
        ((number(">", 5), number("<=", 15)), 10, 5),
        ((number("=", 1),), 1, 0),
        ((number("<=", 4), number("<=", 3)), 3, 0),
    ],
)
def test_rows_after_an_offset(conditions: tuple[Tree, ...], limit: int, offset: int) -> None:
    after = take_first_rows_of_groups(before(*conditions), FACTS)
    (node,) = [node for node in after.walk() if isinstance(node, TopKByGroup)]
    assert (node.limit, node.offset) == (limit, offset)


def test_without_an_order_any_rows_are_the_first() -> None:
    after = take_first_rows_of_groups(before(number("<=", 3), items=BY_X[1:]), FACTS)
    (node,) = [node for node in after.walk() if isinstance(node, TopKByGroup)]
    assert node.order == ()


@pytest.mark.parametrize(
    "plan",
    [
        before(number("<=", 3), function="rank()"),
        before(number("<=", 3), shown=(X, NUMBER)),
        before(number(">", 3)),
        before(number("<", 3)),
        before(number("=", 2)),
        before(number("<=", 3), number(">", 3)),
        before(number("<=", 3), sql("({0} > {1})", Ref("x"), Lit("1", "INT"))),
        before(number("<=", 3), items=(sql("{0} ASC NULLS FIRST", sql("(- {0})", Ref("x"))),)),
        before(number("<=", 3), groups=()),
    ],
    ids=["ranks", "numbers shown", "no end", "another end", "the second", "none", "of rows",
         "an expression", "no groups"],
)  # fmt: skip
def test_other_plans_stay(plan: Node) -> None:
    assert take_first_rows_of_groups(plan, FACTS) == plan


def test_views_without_parameters_stay() -> None:
    plan = before(number("<=", 3))
    assert take_first_rows_of_groups(plan, Facts()) == plan
