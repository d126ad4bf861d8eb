"""keep_less_of_growing_inputs: before and after."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from everview.plan.facts import Facts, TableFacts
from everview.plan.nodes import Aggregate, Call, Filter, Join, Node, Order, Source, TopK, Union
from everview.plan.rules.keep_less_of_growing_inputs import keep_less_of_growing_inputs
from everview.schema import Column
from tests.plan.trees import tree

A, B = Column("a", pa.int64()), Column("b", pa.int64())
LOG, BOOK = Source((A,), "log", ("a",)), Source((B,), "book", ("b",))
OTHER = Source((B,), "log", ("b",))
FACTS = Facts({"log": TableFacts(("a",), append_only=True), "book": TableFacts(("b",))})


def first(input_: Node) -> TopK:
    return TopK(input_.columns, input_, (Order("a", False, True),), 3)


def most(input_: Node, function: str = "max") -> Aggregate:
    return Aggregate((Column("call_0", pa.int64()),), input_, (), (Call(function, "a"),))


def join(right: Node, how: str) -> Join:
    columns = (A, B) if how in ("inner", "left") else (A,)
    return Join(columns, LOG, right, how, ("a",), ("b",), (False,), replicated=False)


@pytest.mark.parametrize(
    "growing",
    [
        LOG,
        Filter((A,), LOG, tree("{a} > 1")),
        Union((A,), (LOG, LOG)),
        join(OTHER, "inner"),
        join(OTHER, "semi"),
    ],
    ids=["table", "filter", "union", "inner join", "semi join"],
)
def test_of_append_only_tables_less_is_kept(growing: Node) -> None:
    for before in (first(growing), most(growing)):
        after = replace(before, growing=True)
        assert keep_less_of_growing_inputs(before, FACTS) == after


@pytest.mark.parametrize(
    "changing",
    [
        replace(LOG, table="book"),
        replace(LOG, table="a view"),
        Union((A,), (LOG, replace(LOG, table="book"))),
        join(BOOK, "inner"),
        join(BOOK, "semi"),
        join(OTHER, "left"),
        join(OTHER, "anti"),
        Aggregate((A,), LOG, ("a",), ()),
        first(LOG),
    ],
    ids=[
        *("table", "view", "union", "inner join", "semi join", "left join", "anti join"),
        *("distinct", "first rows"),
    ],
)
def test_where_rows_may_go_all_are_kept(changing: Node) -> None:
    for before in (first(changing), most(changing)):
        found = keep_less_of_growing_inputs(before, FACTS)
        assert isinstance(found, TopK | Aggregate)
        assert not found.growing


def test_sums_are_as_they_are_anywhere() -> None:
    assert keep_less_of_growing_inputs(most(LOG, "sum"), FACTS) == most(LOG, "sum")
