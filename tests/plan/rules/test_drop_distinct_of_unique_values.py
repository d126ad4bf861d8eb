"""drop_distinct_of_unique_values: before and after."""

from __future__ import annotations

import pyarrow as pa

from everview.plan.facts import Facts, TableFacts
from everview.plan.nodes import Aggregate, Call, Node, Source
from everview.plan.rules.drop_distinct_of_unique_values import drop_distinct_of_unique_values
from everview.schema import Column

A, B, C = Column("a", pa.int64(), False), Column("b", pa.int64(), False), Column("c", pa.int64())
SOURCE = Source((A, B, C), "t", ("a", "b", "c"))
FACTS = Facts({"t": TableFacts(("a", "b"))})


def aggregate(groups: tuple[str, ...], *calls: Call, input_: Node = SOURCE) -> Aggregate:
    made = tuple(Column(f"call_{i}", pa.int64()) for i in range(len(calls)))
    return Aggregate((*map(input_.column, groups), *made), input_, groups, calls)


def test_values_that_are_a_key_within_their_group_are_distinct() -> None:
    before = aggregate(("a",), Call("count", "b", True), Call("sum", "b", True))
    after = aggregate(("a",), Call("count", None), Call("sum", "b"))
    assert drop_distinct_of_unique_values(before, FACTS) == after


def test_values_that_may_be_null_are_still_counted_by_value() -> None:
    inner = aggregate(("c",), Call("count", None))
    before = aggregate((), Call("count", "c", True), input_=inner)
    after = aggregate((), Call("count", "c"), input_=inner)
    assert drop_distinct_of_unique_values(before, Facts()) == after


def test_values_that_may_come_twice_stay_distinct() -> None:
    for groups in [("c",), ()]:
        before = aggregate(groups, Call("count", "b", True), Call("sum", "b", True))
        assert drop_distinct_of_unique_values(before, FACTS) == before
