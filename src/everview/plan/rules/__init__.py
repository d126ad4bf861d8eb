"""Rules that make a plan cheaper and leave its rows as they are, in the order of their use."""

from everview.plan.facts import Facts
from everview.plan.nodes import Node
from everview.plan.rules.add_up_cells_for_members import add_up_cells_for_members
from everview.plan.rules.add_up_cells_for_values_of_members import (
    add_up_cells_for_values_of_members,
)
from everview.plan.rules.count_no_unique_matches import count_no_unique_matches
from everview.plan.rules.drop_distinct_of_unique_values import drop_distinct_of_unique_values
from everview.plan.rules.drop_joins_with_members import drop_joins_with_members
from everview.plan.rules.drop_unused_left_joins import drop_unused_left_joins
from everview.plan.rules.fold_what_is_empty import fold_what_is_empty
from everview.plan.rules.keep_first_groups_of_members import keep_first_groups_of_members
from everview.plan.rules.keep_less_of_growing_inputs import keep_less_of_growing_inputs
from everview.plan.rules.keep_needed_columns import keep_needed_columns
from everview.plan.rules.match_rows_with_members import match_rows_with_members
from everview.plan.rules.order_joins import order_joins
from everview.plan.rules.project_groups_of_one_row import project_groups_of_one_row
from everview.plan.rules.push_conditions_to_sources import push_conditions_to_sources
from everview.plan.rules.replicate_small_side import replicate_small_side
from everview.plan.rules.take_first_rows_of_groups import take_first_rows_of_groups

RULES = (
    fold_what_is_empty,
    project_groups_of_one_row,
    drop_distinct_of_unique_values,
    drop_unused_left_joins,
    count_no_unique_matches,
    push_conditions_to_sources,
    take_first_rows_of_groups,
    add_up_cells_for_members,
    add_up_cells_for_values_of_members,
    drop_joins_with_members,
    keep_needed_columns,
    match_rows_with_members,
    keep_first_groups_of_members,
    order_joins,
    replicate_small_side,
    keep_less_of_growing_inputs,
)


def improve(plan: Node, facts: Facts) -> Node:
    for rule in RULES:
        plan = rule(plan, facts)
    return plan


__all__ = ["RULES", "improve"]
