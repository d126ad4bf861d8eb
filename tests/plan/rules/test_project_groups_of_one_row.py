"""project_groups_of_one_row: before and after."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everview.plan.expressions import Ref, sql
from everview.plan.facts import Facts, TableFacts
from everview.plan.nodes import Aggregate, Call, Join, Node, Project, Source
from everview.plan.rules.project_groups_of_one_row import project_groups_of_one_row
from everview.schema import Column
from tests.plan.trees import tree

ID, NAME = Column("id", pa.int64(), False), Column("name", pa.string())
X, F = Column("x", pa.decimal128(12, 2)), Column("f", pa.float64())
SOURCE = Source((ID, NAME, X, F), "t", ("id", "name", "x", "f"))
FACTS = Facts({"t": TableFacts(("id",)), "u": TableFacts(("id", "f"))})


def aggregate(input_: Node, groups: tuple[str, ...], *calls: tuple[Call, pa.DataType]) -> Aggregate:
    made = [Column(f"call_{i}", arrow) for i, (_, arrow) in enumerate(calls)]
    columns = (*map(input_.column, groups), *made)
    return Aggregate(columns, input_, groups, tuple(call for call, _ in calls))


def test_groups_that_contain_a_key_are_rows() -> None:
    before = aggregate(
        SOURCE,
        ("name", "id"),
        (Call("count", None), pa.int64()),
        (Call("count", "x"), pa.int64()),
        (Call("sum", "x", True), pa.decimal128(22, 2)),
        (Call("avg", "x"), pa.decimal128(16, 6)),
        (Call("sum", "f"), pa.float64()),
        (Call("max", "f"), pa.float64()),
    )
    assert project_groups_of_one_row(before, FACTS) == Project(
        before.columns,
        SOURCE,
        (
            tree("{name}"),
            tree("{id}"),
            tree("CAST(1 AS BIGINT)"),
            tree("CAST(CASE WHEN {x} IS NOT NULL THEN 1 ELSE 0 END AS BIGINT)"),
            tree("CAST({x} AS DECIMAL(22,2))"),
            tree("CAST({x} AS DECIMAL(16,6))"),
            sql("CASE WHEN CAST({0} AS DOUBLE) = 0 THEN 0D ELSE CAST({0} AS DOUBLE) END", Ref("f")),
            tree("{f}"),
        ),
    )


def test_distinct_rows_with_a_key_are_rows() -> None:
    before = aggregate(SOURCE, ("id", "x"))
    after = Project((ID, X), SOURCE, (Ref("id"), Ref("x")))
    assert project_groups_of_one_row(before, FACTS) == after


@pytest.mark.parametrize(
    "before",
    [
        aggregate(SOURCE, ("name",)),
        aggregate(SOURCE, (), (Call("count", None), pa.int64())),
        aggregate(SOURCE, ("id", "f")),
        aggregate(SOURCE, ("id",), (Call("var_samp", "f"), pa.float64())),
        aggregate(Source((ID,), "v", ("id",)), ("id",)),
        aggregate(Source((ID,), "u", ("id",)), ("id",)),
    ],
    ids=["no key", "all rows", "floats", "a variance", "a view", "part of a key"],
)
def test_other_aggregates_stay(before: Node) -> None:
    assert project_groups_of_one_row(before, FACTS) == before


def test_an_average_that_might_not_fit_stays() -> None:
    wide = Source((ID, Column("y", pa.decimal128(38, 10))), "t", ("id", "y"))
    before = aggregate(wide, ("id",), (Call("avg", "y"), pa.decimal128(38, 14)))
    assert project_groups_of_one_row(before, FACTS) == before


@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_a_key_of_which_a_join_makes_several_rows_is_none(how: str) -> None:
    other = Source((Column("id_2", pa.int64(), False), Column("n", pa.int32())), "t", ("id", "n"))
    columns = (*SOURCE.columns, *other.columns)
    many = Join(columns, SOURCE, other, how, ("name",), ("n",), (False,), replicated=False)
    one = Join(columns, SOURCE, other, how, ("id",), ("id_2",), (False,), replicated=False)
    assert project_groups_of_one_row(aggregate(many, ("id",)), FACTS) == aggregate(many, ("id",))
    found = project_groups_of_one_row(aggregate(one, ("id",)), FACTS)
    assert isinstance(found, Project) == (how != "full")  # where NULL is the id of several rows
    both = project_groups_of_one_row(aggregate(many, ("id", "id_2")), FACTS)
    assert isinstance(both, Project)
