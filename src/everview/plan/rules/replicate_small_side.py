"""Store a small right side of a join in every shard: then rows of the left stay where they lie, and
need not be shuffled by the join's keys, nor perhaps back again.

A row of the left is in one shard, and every shard has all of the right; so this works for all joins
but full ones, and stays right however large the small side becomes.
"""

from __future__ import annotations

from dataclasses import replace

from everview.plan.distribution import distribution, lies, shards_by
from everview.plan.facts import Costs, Facts
from everview.plan.nodes import Filter, Join, Node, Project, Source

FEW_ROWS = 1_000  # of the right side's table
LARGER = 10  # times as many rows the largest table of the left must have


def replicate_small_side(plan: Node, facts: Facts) -> Node:
    if facts.costs is None:
        return plan
    return _replicated(plan, facts, facts.costs)


def _replicated(node: Node, facts: Facts, costs: Costs) -> Node:
    node = node.with_inputs(lambda input_node: _replicated(input_node, facts, costs))
    if not isinstance(node, Join) or node.how == "full" or node.identity in costs.stored:
        return node
    by = shards_by(node)[0]
    moves = distribution(node.left) is not None and not lies(node.left, by)
    known = all(table in facts.tables for table in node.tables())
    if node.replicated or not node.left_keys or not moves or not known:
        return node
    small = _table(node.right)
    if small is None or costs.estimates.table_rows(small) > FEW_ROWS:
        return node
    large = max(map(costs.estimates.table_rows, node.left.tables()), default=0)
    is_smaller = costs.estimates.table_rows(small) * LARGER <= large
    return replace(node, replicated=True) if is_smaller else node


def _table(node: Node) -> str | None:
    """The table from whose rows a node computes one row each, or none."""
    while isinstance(node, Filter | Project):
        node = node.input
    return node.table if isinstance(node, Source) else None
