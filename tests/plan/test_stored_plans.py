"""Plans that databases have stored stay what they are, with every kind of node.

stored_plans.json is never written anew: a view whose plan is read otherwise has lost its state.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from everview.explain.plan import as_text, explain
from everview.plan.cost import cost_of
from everview.plan.estimates import Estimates
from everview.plan.keys import view_key
from everview.plan.nodes import Node
from everview.plan.nodes.base import _KINDS
from tests.plan.samples import Tables, numbers

PLANS: dict[str, Any] = json.loads(Path(__file__).with_name("stored_plans.json").read_text())
EACH = pytest.mark.parametrize("stored", PLANS.values(), ids=list(PLANS))


class Formulas(Tables):
    """Tables whose rows nobody computes on."""

    def compute(self, node: Node, below: Node, rows: pa.Table) -> pa.Table | None:
        return rows if node is below else None


TABLES = Formulas(lines=numbers(5000, part=100, kind=7), parts=numbers(100, owner=20))


def test_there_is_a_plan_with_each_kind_of_node() -> None:
    stored = {node["kind"] for one in PLANS.values() for node in one["plan"]}
    ours = {kind for kind, node in _KINDS.items() if node.__module__.startswith("everview.")}
    assert stored == ours


@EACH
def test_a_stored_plan_keeps_its_text_and_its_identity(stored: dict[str, Any]) -> None:
    plan = Node.from_json(stored["plan"])
    assert plan.text == json.dumps(stored["plan"], sort_keys=True)
    assert plan.identity == stored["identity"]


@EACH
def test_a_stored_plan_is_explained_as_it_was(stored: dict[str, Any]) -> None:
    plan = Node.from_json(stored["plan"])
    key = view_key(plan, lambda table: ("id",))
    assert list(key) == stored["key"]
    assert as_text(explain(plan, key)).split("\n") == stored["explained"]


@EACH
def test_a_stored_plan_is_expected_to_keep_and_do_what_it_was(stored: dict[str, Any]) -> None:
    plan = Node.from_json(stored["plan"])
    cost = cost_of(plan, tuple(stored["key"]), Estimates(TABLES), {}, shards=4)
    sizes = {name: [size.items, size.bytes] for name, size in cost.sizes.items()}
    assert sizes == {name: pytest.approx(size) for name, size in stored["state"].items()}
    for table, flows in stored["work"].items():
        found = {
            name: [flow.rows, flow.changes, flow.rows_in, flow.reads, flow.writes]
            for name, flow in cost.flows[table].items()
        }
        assert found == {name: pytest.approx(flow) for name, flow in flows.items()}
