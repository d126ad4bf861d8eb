"""Drops DISTINCT if no group has a value of the argument twice: without it, an aggregate need not
store the values."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from everview.plan.facts import Facts
from everview.plan.keys import unique_key
from everview.plan.nodes import Aggregate, Call, Node


def drop_distinct_of_unique_values(plan: Node, facts: Facts) -> Node:
    plan = plan.with_inputs(partial(drop_distinct_of_unique_values, facts=facts))
    if not isinstance(plan, Aggregate):
        return plan
    key = unique_key(plan.input, facts.key_of)
    if key is None:
        return plan
    return replace(plan, calls=tuple(_plain(plan, call, set(key)) for call in plan.calls))


def _plain(node: Aggregate, call: Call, key: set[str]) -> Call:
    if not call.distinct or call.argument is None or not key <= {*node.groups, call.argument}:
        return call
    if call.definition.counts and not node.input.column(call.argument).nullable:
        return Call(call.function, None)
    return replace(call, distinct=False)
