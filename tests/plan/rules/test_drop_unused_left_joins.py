"""drop_unused_left_joins: before and after."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everview.plan.expressions import Ref
from everview.plan.facts import Facts, TableFacts
from everview.plan.nodes import Filter, Join, Node, Project, Source
from everview.plan.rules.drop_unused_left_joins import drop_unused_left_joins
from everview.schema import Column
from tests.plan.trees import tree

A, B = Column("a", pa.int64(), False), Column("b", pa.int64())
ID, NAME = Column("id", pa.int64()), Column("name", pa.string())
LEFT = Source((A, B), "fact", ("a", "b"))
RIGHT = Source((ID, NAME), "dim", ("id", "name"))
FACTS = Facts({"dim": TableFacts(("id",))})


def join(left: Node = LEFT, how: str = "left", by: str = "id") -> Join:
    given = left.columns[:2]
    return Join((*given, ID, NAME), left, RIGHT, how, ("b",), (by,), (False,), replicated=False)


def test_a_side_that_nothing_uses_is_not_joined() -> None:
    for below in (join(), join(join())):
        assert drop_unused_left_joins(Project((A,), below, (Ref("a"),)), FACTS) == Project(
            (A,), LEFT, (Ref("a"),)
        )


def test_neither_is_one_under_filters_that_do_not_use_it() -> None:
    before = Project((A,), Filter(join().columns, join(), tree("{b} > 1")), (tree("{a} + 1"),))
    after = Project((A,), Filter(LEFT.columns, LEFT, tree("{b} > 1")), (tree("{a} + 1"),))
    assert drop_unused_left_joins(before, FACTS) == after


@pytest.mark.parametrize(
    "before",
    [
        Project((A,), join(), (tree("length({name})"),)),
        Project((A,), Filter(join().columns, join(), tree("{name} IS NULL")), (Ref("a"),)),
        Project((A,), join(how="inner"), (Ref("a"),)),
        Project((A,), join(how="single"), (Ref("a"),)),
        Project((A,), join(by="name"), (Ref("a"),)),
        Project((A,), join(), (Ref("id"),)),
    ],
    ids=["used", "filtered by", "inner", "single", "several matches", "key used"],
)
def test_other_joins_stay(before: Node) -> None:
    assert drop_unused_left_joins(before, FACTS) == before
