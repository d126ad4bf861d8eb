"""Drops a left join if its right side has one match at most and none of its columns is used."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from everview.plan.expressions import columns_of
from everview.plan.facts import Facts
from everview.plan.keys import unique_key
from everview.plan.nodes import Filter, Join, Node, Project


def drop_unused_left_joins(plan: Node, facts: Facts) -> Node:
    if isinstance(plan, Project):
        used = columns_of(*plan.expressions)
        plan = replace(plan, input=_needed(plan.input, used, facts))
    return plan.with_inputs(partial(drop_unused_left_joins, facts=facts))


def _needed(node: Node, used: set[str], facts: Facts) -> Node:
    """The node without unused left joins; only the columns `used` are needed."""
    if isinstance(node, Filter):
        below = _needed(node.input, used | columns_of(node.condition), facts)
        return replace(node, input=below, columns=below.columns)
    if not isinstance(node, Join) or node.how != "left":
        return node
    key = unique_key(node.right, facts.key_of)
    of_right = node.names()[len(node.left.columns) :]
    if key is None or not set(key) <= set(node.right_keys) or not used.isdisjoint(of_right):
        return node
    return _needed(node.left, used, facts)
