"""If no row ever goes, since all tables below are append-only, aggregates store only the least or
greatest values, and ORDER BY with LIMIT only the first rows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from everview.plan.facts import Facts
from everview.plan.nodes import Aggregate, Node, Source, TopK


def keep_less_of_growing_inputs(plan: Node, facts: Facts) -> Node:
    plan = plan.with_inputs(partial(keep_less_of_growing_inputs, facts=facts))
    if isinstance(plan, TopK) or (isinstance(plan, Aggregate) and _can_keep_less(plan)):
        return replace(plan, growing=_grows(plan.input, facts))
    return plan


def _can_keep_less(node: Aggregate) -> bool:
    return any(call.definition.over_growing for call in node.calls)


def _grows(node: Node, facts: Facts) -> bool:
    if isinstance(node, Source):
        return facts.is_append_only(node.table)
    return node.only_grows() and all(_grows(input_node, facts) for input_node in node.inputs())
