"""Rules that make a plan cheaper and leave its rows as they are; applied in this order."""

from everview.plan.nodes import Node
from everview.plan.rules.keep_needed_columns import keep_needed_columns

RULES = (keep_needed_columns,)


def improve(plan: Node) -> Node:
    for rule in RULES:
        plan = rule(plan)
    return plan


__all__ = ["RULES", "improve"]
