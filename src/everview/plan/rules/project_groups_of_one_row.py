"""An aggregate whose groups have one row each, since they contain a key of its input, keeps no
state: its results are computed from the row."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from everview.plan.facts import Facts
from everview.plan.keys import unique_key
from everview.plan.nodes import Aggregate, Call, Node, Project
from everview.schema import has_floats, quoted


def project_groups_of_one_row(plan: Node, facts: Facts) -> Node:
    plan = plan.with_inputs(partial(project_groups_of_one_row, facts=facts))
    if not isinstance(plan, Aggregate) or not plan.groups:
        return plan
    key = unique_key(plan.input, facts.key_of)
    groups = [plan.input.column(name) for name in plan.groups]
    # of equal floats an aggregate shows one: -0.0 as 0.0
    if key is None or not set(key) <= set(plan.groups) or any(has_floats(g.type) for g in groups):
        return plan
    outputs = plan.columns[len(groups) :]
    made = [_of_one(plan, call, c.type) for call, c in zip(plan.calls, outputs, strict=True)]
    texts = [text for text in made if text is not None]
    if len(texts) < len(made):
        return plan
    return Project(plan.columns, plan.input, (*map(quoted, plan.groups), *texts))


def _of_one(node: Aggregate, call: Call, arrow: pa.DataType) -> str | None:
    """What a call gives for one row; None if there is no text for it."""
    if call.argument is None:
        return "CAST(1 AS BIGINT)"
    words = call.definition.of_one_row(node.input.column(call.argument).type, arrow)
    return None if words is None else words.format(quoted(call.argument))
