"""keep_needed_columns: before and after."""

from __future__ import annotations

import pyarrow as pa

from everview.plan.facts import Facts
from everview.plan.nodes import Aggregate, Call, Filter, Project, Source
from everview.plan.rules import improve
from everview.plan.rules.keep_needed_columns import keep_needed_columns
from everview.schema import Column

A, B, C = (Column(f"{name}_{i}", pa.int64()) for i, name in enumerate("abc"))
N = Column("call_0", pa.int64(), False)


def test_a_source_reads_what_filters_and_projections_name() -> None:
    source = Source((A, B, C), "t", ("a", "b", "c"))
    before = Project((A,), Filter((A, B, C), source, "c_2 > 1"), ("a_0",))
    narrow = Source((A, C), "t", ("a", "c"))
    assert keep_needed_columns(before, Facts()) == Project(
        (A,), Filter((A, C), narrow, "c_2 > 1"), ("a_0",)
    )


def test_a_source_of_which_nothing_is_named_reads_one_column_to_count_its_rows() -> None:
    source = Source((A, B), "t", ("a", "b"))
    given = Project((), source, ())
    before = Aggregate((N,), given, (), (Call("count", None),))
    after = Aggregate((N,), Project((), Source((A,), "t", ("a",)), ()), (), before.calls)
    assert improve(before, Facts()) == after
