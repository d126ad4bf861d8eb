"""Replaces an aggregate whose groups have one row each, since they contain a key of its input, by a
projection, which needs no state."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from everview.plan.expressions import Ref, Tree, sql
from everview.plan.facts import Facts
from everview.plan.keys import unique_key
from everview.plan.nodes import Aggregate, Call, Node, Project
from everview.schema import has_floats


def project_groups_of_one_row(plan: Node, facts: Facts) -> Node:
    plan = plan.with_inputs(partial(project_groups_of_one_row, facts=facts))
    if not isinstance(plan, Aggregate) or not plan.groups:
        return plan
    key = unique_key(plan.input, facts.key_of)
    groups = [plan.input.column(name) for name in plan.groups]
    # an aggregate has one value for equal floats: 0.0 for -0.0
    if key is None or not set(key) <= set(plan.groups) or any(has_floats(g.type) for g in groups):
        return plan
    outputs = plan.columns[len(groups) :]
    results = [_of_one(plan, call, c.type) for call, c in zip(plan.calls, outputs, strict=True)]
    trees = [tree for tree in results if tree is not None]
    if len(trees) < len(results):
        return plan
    return Project(plan.columns, plan.input, (*map(Ref, plan.groups), *trees))


def _of_one(node: Aggregate, call: Call, arrow: pa.DataType) -> Tree | None:
    """The result of a call for one row; None if SQL can't say it."""
    if call.argument is None:
        return sql("CAST(1 AS BIGINT)")
    value = Ref(call.argument)
    words = call.definition.of_one_row(node.input.column(call.argument).type, arrow)
    if words is None:
        return None
    return value if words == "{0}" else sql(words, value)
