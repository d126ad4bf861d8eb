"""Rows, state and work that plans are expected to have, against what they would have."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from everview.plan.cost import DEFAULTS, Rates, cost_of, estimated
from everview.plan.estimates import Estimates
from everview.plan.expressions import Ref
from everview.plan.flows import Flows
from everview.plan.nodes import Aggregate, Call, Filter, Join, Node, Project, Source, TopK
from everview.plan.states import state_of
from everview.schema import Column
from tests.plan.samples import Tables, numbers
from tests.plan.trees import tree

ROWS = 50_000
LINES = numbers(ROWS, part=1_000, kind=7)
PARTS = numbers(1_000, owner=20)


def source(table: str, *names: str) -> Source:
    columns = tuple(Column(f"{table}_{name}", pa.int64()) for name in names)
    return Source(columns, table, names)


def filtered(node: Node, condition: str) -> Filter:
    return Filter(node.columns, node, tree(condition))


def joined(left: Node, right: Node, how: str, one: str, other: str) -> Join:
    shown = right.columns if how in ("inner", "left", "full") else ()
    return Join((*left.columns, *shown), left, right, how, (one,), (other,), (False,), False)


LINE = source("lines", "id", "part", "kind")
PART = source("parts", "id", "owner")
PAIRS = joined(LINE, PART, "inner", "lines_part", "parts_id")


@pytest.fixture(params=[1, 10], ids=["all rows sampled", "a tenth"])
def estimates(request: pytest.FixtureRequest) -> Estimates:
    return Estimates(Tables(step=request.param, lines=LINES, parts=PARTS))


def test_filters_are_measured(estimates: Estimates) -> None:
    few = filtered(LINE, "{lines_kind} < 2")
    assert estimates.of(few).rows == pytest.approx(ROWS * 2 / 7, rel=0.05)
    assert estimates.of(filtered(few, "{lines_part} < 100")).rows == pytest.approx(
        ROWS * 2 / 70, rel=0.3
    )


@pytest.mark.parametrize("turned", [False, True])
def test_a_join_by_a_tables_key_is_measured_with_what_is_filtered_on_both_sides(
    estimates: Estimates, turned: bool
) -> None:
    few = filtered(PART, "{parts_id} < 100")
    plan = joined(LINE, few, "inner", "lines_part", "parts_id")
    if turned:
        plan = joined(few, LINE, "inner", "parts_id", "lines_part")
    assert estimates.of(plan).rows == pytest.approx(ROWS / 10, rel=0.1)
    # lines of which the part is below 100 have such parts, whatever the shares of both
    alike = filtered(LINE, "{lines_part} < 100")
    plan = joined(alike, few, "inner", "lines_part", "parts_id")
    assert estimates.of(plan).rows == pytest.approx(ROWS / 10, rel=0.1)


def test_other_joins_are_thought_to_be_independent(estimates: Estimates) -> None:
    twice = Source(tuple(replace(c, name=f"{c.name}_2") for c in LINE.columns), "lines", LINE.read)
    pairs = joined(LINE, twice, "inner", "lines_part", "lines_part_2")
    assert estimates.of(pairs).rows == pytest.approx(ROWS * ROWS / 1_000, rel=0.1)
    few = filtered(PART, "{parts_owner} < 5")
    semi = joined(PART, filtered(twice, "{lines_part_2} < 250"), "semi", "parts_id", "lines_part_2")
    assert estimates.of(semi).rows == pytest.approx(250, rel=0.1)
    anti = replace(semi, how="anti")
    assert estimates.of(anti).rows == pytest.approx(750, rel=0.1)
    assert estimates.of(joined(few, LINE, "left", "parts_id", "lines_part")).rows >= 250


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_join_without_keys_is_of_all_pairs(estimates: Estimates, how: str) -> None:
    every = Join((*LINE.columns, *PART.columns), LINE, PART, how, (), (), (), True)
    assert estimates.of(every).rows == pytest.approx(ROWS * 1_000, rel=0.05)
    again = Source((Column("parts_again", pa.int64()),), "parts", ("id",))
    above = joined(every, again, "inner", "parts_id", "parts_again")
    assert estimates.of(above).rows == pytest.approx(ROWS * 1_000, rel=0.1)


def test_groups_and_first_rows_are_counted(estimates: Estimates) -> None:
    columns = (PAIRS.column("parts_owner"), Column("call_0", pa.int64()))
    groups = Aggregate(columns, PAIRS, ("parts_owner",), (Call("count", None),))
    assert estimates.of(groups).rows == pytest.approx(20, rel=0.1)
    assert estimates.of(TopK(groups.columns, groups, (), 5)).rows == 5


def test_groups_of_rows_that_are_not_expected_are_counted(estimates: Estimates) -> None:
    again = Source(tuple(replace(c, name=f"{c.name}_2") for c in PART.columns), "parts", PART.read)
    none = joined(PART, again, "anti", "parts_owner", "parts_owner_2")
    assert estimates.of(none).rows == 0
    groups = Aggregate((none.columns[1],), none, ("parts_owner",), ())
    assert estimates.of(groups).rows <= 1


def test_calls_of_two_aggregates_may_have_one_name(estimates: Estimates) -> None:
    call = Column("call_0", pa.int64())
    key = LINE.columns[0]
    inner = Aggregate((key, call), LINE, (key.name,), (Call("count", None),))
    keys = Project((key,), inner, (Ref(key.name),))
    outer = Aggregate((key, call), keys, (key.name,), (Call("count", None),))
    assert estimates.of(outer).rows == pytest.approx(ROWS, rel=0.05)


def test_state_is_the_rows_of_both_sides_of_a_join(estimates: Estimates) -> None:
    size = state_of(PAIRS, estimates, shards=2)
    assert size.items == pytest.approx(ROWS + 1_000, rel=0.05)
    assert size.bytes > ROWS * 2 * 8
    copied = state_of(replace(PAIRS, replicated=True), estimates, shards=2)
    assert copied.items == pytest.approx(ROWS + 2_000, rel=0.05)


def test_a_change_costs_its_rows_and_those_that_match(estimates: Estimates) -> None:
    of_lines = Flows(estimates, "lines", 100, 2.0).of(PAIRS)
    assert (of_lines.rows_in, of_lines.writes) == (200, 200)
    assert of_lines.rows == pytest.approx(200, rel=0.05)
    assert of_lines.reads == pytest.approx(100, rel=0.1)
    of_parts = Flows(estimates, "parts", 100, 1.0).of(PAIRS)
    assert of_parts.rows == pytest.approx(5_000, rel=0.05)
    assert of_parts.reads == pytest.approx(5_000, rel=0.1)


def test_what_is_shared_takes_no_time_more(estimates: Estimates) -> None:
    cost = cost_of(PAIRS, ("lines_id",), estimates, {}, shards=2)
    rates = Rates({"lines": 0.75, "parts": 0.25}, 0)
    alone = estimated(cost, DEFAULTS["spark"], rates, [])
    shared = estimated(cost, DEFAULTS["spark"], rates, [PAIRS.identity])
    assert shared["new_state"]["rows"] == pytest.approx(ROWS, rel=0.01)
    assert alone["new_state"] == alone["state"]
    for table in rates.shares:
        ours, more = shared["per_1000_changes"][table], alone["per_1000_changes"][table]
        assert ours["seconds"] < more["seconds"]
        assert ours["reads"] < more["reads"]
    assert 0 < alone["recompute"]["changes"] < shared["recompute"]["changes"]
