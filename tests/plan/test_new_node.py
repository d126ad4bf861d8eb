"""A new node needs its definition, its operator and what makes it: all else asks the node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from everview.explain.plan import as_text, explain
from everview.operators import registry
from everview.operators.base import Operator
from everview.plan.cost import cost_of
from everview.plan.distribution import distribution, shards_by, shuffles
from everview.plan.estimates import Estimates
from everview.plan.expressions import Ref
from everview.plan.facts import Facts, TableFacts
from everview.plan.jobs import jobs
from everview.plan.keys import view_key
from everview.plan.nodes import Aggregate, Call, Node, Project, Source, base
from everview.plan.rules import improve
from everview.programs.workers import operator_of
from everview.schema import Column
from everview.state import State
from tests.operators.histories import counted, delta_of
from tests.plan.samples import Tables, numbers

LINES = Source(tuple(Column(f"l_{n}", pa.int64()) for n in ("id", "part", "kind")), "lines",
               ("id", "part", "kind"))  # fmt: skip
FACTS = Facts({"lines": TableFacts(("id",))})


@dataclass(frozen=True, eq=False, repr=False)
class Twice(Node):
    """Every row of the input, twice."""

    kind = "twice"
    is_operator = True
    input: Node


class TwiceOperator(Operator):
    kind = Twice.kind

    def __init__(self, node: Twice) -> None:
        self._columns = node.columns

    def apply(self, inputs: list[pa.Table], state: State) -> pa.Table:
        return pa.concat_tables(inputs * 2)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The node and its operator, only for these tests."""
    monkeypatch.setitem(base._KINDS, Twice.kind, Twice)
    monkeypatch.setitem(registry.BY_KIND, Twice.kind, TwiceOperator)
    yield
    operator_of.cache_clear()
    base.node_of.cache_clear()


del base._KINDS[Twice.kind]
TWICE = Twice(LINES.columns, LINES)
GROUPS = Aggregate((TWICE.columns[1], Column("call_0", pa.int64())), TWICE, ("l_part",),
                   (Call("sum", "l_kind"),))  # fmt: skip


def test_it_comes_back_from_json_with_its_operator() -> None:
    assert Node.from_json(GROUPS.to_json()) == GROUPS
    operator = operator_of(TWICE.own_text)
    rows = delta_of([((1, 2, 3), 1)], LINES.columns)
    assert counted(operator.apply([rows], None)) == {(1, 2, 3): 2}  # type: ignore[arg-type]
    assert operator.partial_columns is None


def test_rules_leave_it_all_columns_of_its_input() -> None:
    shown = Project((GROUPS.columns[1],), GROUPS, (Ref("call_0"),))
    (twice,) = [node for node in improve(shown, FACTS).walk() if isinstance(node, Twice)]
    assert twice == TWICE


def test_its_rows_are_in_one_shard_and_have_no_key() -> None:
    assert shards_by(TWICE) == ((),)
    assert distribution(TWICE) == ()
    assert shuffles(TWICE)
    assert view_key(TWICE, lambda table: ("id",)) == tuple(TWICE.names())
    assert len(jobs([GROUPS, TWICE]).last) == 1


def test_it_is_explained_and_has_a_cost() -> None:
    text = as_text(explain(GROUPS, ("l_part",)))
    assert "twice" in text
    assert "maintained: incremental" in text
    estimates = Estimates(Tables(lines=numbers(1000, part=100, kind=7)))
    cost = cost_of(GROUPS, ("l_part",), estimates, {}, shards=2)
    assert cost.sizes[TWICE.identity].items == pytest.approx(1000, rel=0.01)
    flow = cost.flows["lines"][TWICE.identity]
    assert (flow.rows_in, flow.reads, flow.writes) == (2000, 2000, 2000)
