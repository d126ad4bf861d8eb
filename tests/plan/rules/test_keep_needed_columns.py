"""keep_needed_columns: before and after."""

from __future__ import annotations

import pyarrow as pa

from everview.plan.expressions import Ref
from everview.plan.facts import Facts
from everview.plan.nodes import (
    Aggregate,
    Call,
    Filter,
    Project,
    Recompute,
    Replace,
    Source,
    Touched,
)
from everview.plan.rules import improve
from everview.plan.rules.keep_needed_columns import keep_needed_columns
from everview.schema import Column
from tests.plan.trees import tree

A, B, C = (Column(f"{name}_{i}", pa.int64()) for i, name in enumerate("abc"))
N = Column("call_0", pa.int64(), False)


def test_a_source_reads_what_filters_and_projections_name() -> None:
    source = Source((A, B, C), "t", ("a", "b", "c"))
    before = Project((A,), Filter((A, B, C), source, tree("{c_2} > 1")), (Ref("a_0"),))
    narrow = Source((A, C), "t", ("a", "c"))
    assert keep_needed_columns(before, Facts()) == Project(
        (A,), Filter((A, C), narrow, tree("{c_2} > 1")), (Ref("a_0"),)
    )


def test_a_source_of_which_nothing_is_named_reads_one_column_to_count_its_rows() -> None:
    source = Source((A, B), "t", ("a", "b"))
    given = Project((), source, ())
    before = Aggregate((N,), given, (), (Call("count", None),))
    after = Aggregate((N,), Project((), Source((A,), "t", ("a",)), ()), (), before.calls)
    assert improve(before, Facts()) == after


def test_windows_of_which_nothing_is_needed_are_their_rows() -> None:
    source = Source((A, B), "t", ("a", "b"))
    touched = Touched((A, B), source, ("a_0",))
    ranked = Recompute(
        (A, B, N), touched, (tree("rank() OVER (PARTITION BY {a_0} ORDER BY {b_1})"),), True
    )
    before = Project((B,), Replace((A, B, N), ranked, ("a_0",), always=False), (Ref("b_1"),))
    assert keep_needed_columns(before, Facts()) == Source((B,), "t", ("b",))


def test_recomputed_aggregates_of_which_nothing_is_needed_are_their_groups() -> None:
    source = Source((A, B), "t", ("a", "b"))
    made = Recompute((A, N), Touched((A, B), source, ("a_0",)), (tree("bit_xor({b_1})"),), False)
    before = Project((A,), Replace((A, N), made, ("a_0",), always=False), (Ref("a_0"),))
    after = Aggregate((A,), Source((A,), "t", ("a",)), ("a_0",), ())
    assert keep_needed_columns(before, Facts()) == after
