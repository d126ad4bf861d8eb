"""fold_what_is_empty: before and after."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from everview.plan.expressions import Lit, Ref, boolean, null
from everview.plan.facts import Facts
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
    Recompute,
    Replace,
    Source,
    Threshold,
    TopK,
    Touched,
    Union,
)
from everview.plan.rules.fold_what_is_empty import fold_what_is_empty
from everview.schema import Column
from tests.plan.trees import tree

A, B, C = Column("a", pa.int64()), Column("b", pa.int64()), Column("c", pa.string())
N = Column("n", pa.int64())
LEFT, RIGHT = Source((A, B), "t", ("a", "b")), Source((C,), "u", ("c",))
NEVER = Filter(LEFT.columns, LEFT, boolean(False))
NEVER_RIGHT = Filter(RIGHT.columns, RIGHT, null("BOOLEAN"))


def nothing(*columns: Column) -> Constant:
    return Constant(columns, ())


def fold(plan: Node) -> Node:
    return fold_what_is_empty(plan, Facts())


def join(how: str, left: Node, right: Node) -> Join:
    columns = (A, B) if how in ("semi", "anti") else (A, B, C)
    if how == "existence":
        columns = (A, B, Column("exists", pa.bool_()))
    return Join(columns, left, right, how, (), (), (), replicated=True)


def touched(below: Node) -> Replace:
    rows = Touched(below.columns, below, ("a",))
    made = Recompute((A, N), rows, (tree("max({b})"),), rows_stay=False)
    return Replace((A, N), made, ("a",), always=False)


@pytest.mark.parametrize(
    "before",
    [
        NEVER,
        replace(NEVER, condition=null("BOOLEAN")),
        Filter(LEFT.columns, NEVER, tree("{a} > 1")),
        Project((N,), NEVER, (tree("{a} + 1"),)),
        Generate((A, N), NEVER, ("a",), tree("explode(array({b}))")),
        Aggregate((A, N), NEVER, ("a",), (Call("count", None),)),
        TopK((A, B), LEFT, (Order("a", False, True),), 0),
        TopK((A, B), NEVER, (), 3),
        Threshold((A, B), NEVER, Constant((N,), ((Lit("1", "BIGINT"),),)), "a", ">"),
        touched(NEVER),
        Union((A, B), (NEVER, NEVER)),
        join("inner", LEFT, NEVER_RIGHT),
        join("semi", LEFT, NEVER_RIGHT),
        *(join(how, NEVER, RIGHT) for how in ("inner", "left", "single", "semi", "anti")),
        join("existence", NEVER, RIGHT),
        join("full", NEVER, NEVER_RIGHT),
    ],
    ids=lambda node: node.label()[:30],
)
def test_what_can_have_no_rows_is_a_constant_without_rows(before: Node) -> None:
    assert fold(before) == nothing(*before.columns)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Union((A, B), (NEVER, LEFT)), LEFT),
        (Union((A, B), (LEFT, NEVER, LEFT)), Union((A, B), (LEFT, LEFT))),
        (join("anti", LEFT, NEVER_RIGHT), LEFT),
        (
            join("left", LEFT, NEVER_RIGHT),
            Project((A, B, C), LEFT, (Ref("a"), Ref("b"), null("STRING"))),
        ),
        (
            join("full", NEVER, RIGHT),
            Project((A, B, C), RIGHT, (null("BIGINT"), null("BIGINT"), Ref("c"))),
        ),
        (
            join("existence", LEFT, NEVER_RIGHT),
            Project(
                (A, B, Column("exists", pa.bool_())), LEFT, (Ref("a"), Ref("b"), boolean(False))
            ),
        ),
    ],
    ids=["union of one", "union of two", "anti", "left", "full", "existence"],
)
def test_what_is_left_is_the_other_input(before: Node, after: Node) -> None:
    assert fold(before) == after


@pytest.mark.parametrize(
    "before",
    [
        Filter(LEFT.columns, LEFT, tree("{a} > 1 OR false")),
        Aggregate((N,), nothing(A), (), (Call("count", None),)),
        TopK((A, B), LEFT, (), 1),
        join("full", LEFT, RIGHT),
        touched(LEFT),
    ],
    ids=["a condition that may hold", "one row of nothing", "limit 1", "join", "touched"],
)
def test_what_may_have_rows_stays(before: Node) -> None:
    assert fold(before) == before
