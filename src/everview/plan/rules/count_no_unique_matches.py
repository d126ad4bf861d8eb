"""A left join whose right side has one match at most stores no counts of matches."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from everview.plan.facts import Facts
from everview.plan.keys import unique_key
from everview.plan.nodes import Join, Node


def count_no_unique_matches(plan: Node, facts: Facts) -> Node:
    plan = plan.with_inputs(partial(count_no_unique_matches, facts=facts))
    if not isinstance(plan, Join) or plan.how != "left":
        return plan
    key = unique_key(plan.right, facts.key_of)
    return replace(plan, unique=key is not None and set(key) <= set(plan.right_keys))
