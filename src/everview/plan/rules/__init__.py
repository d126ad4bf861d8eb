"""Rules that make a plan cheaper and leave its rows as they are; applied in this order."""

from everview.plan.facts import Facts
from everview.plan.nodes import Node
from everview.plan.rules.keep_needed_columns import keep_needed_columns
from everview.plan.rules.order_joins import order_joins
from everview.plan.rules.replicate_small_side import replicate_small_side

RULES = (keep_needed_columns, order_joins, replicate_small_side)


def improve(plan: Node, facts: Facts) -> Node:
    for rule in RULES:
        plan = rule(plan, facts)
    return plan


__all__ = ["RULES", "improve"]
