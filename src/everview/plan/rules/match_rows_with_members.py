"""Find the members of a row by the place of its values among those that members compare.

The rows of `WHERE amount > :least` are joined with all members of a family, and the condition is
asked for each pair. Rows and members that are matched by their comparisons make no other pairs.
What is no comparison of rows with members is asked above.
"""

from __future__ import annotations

from functools import partial

from everview.plan.expressions import Ref, Tree, all_of, conjuncts
from everview.plan.facts import Facts
from everview.plan.members import Columns, Comparison, Sides, members_of, values_of
from everview.plan.nodes import Bound, Filter, Join, Matches, Node, Project


def match_rows_with_members(plan: Node, facts: Facts) -> Node:
    if facts.members is None:
        return plan
    if isinstance(plan, Filter):
        conditions: list[Tree] = []
        node: Node = plan
        while isinstance(node, Filter):
            conditions += conjuncts(node.condition)
            node = node.input
        if isinstance(node, Join) and (matched := _matched(node, conditions, facts.members)):
            return matched.with_inputs(partial(match_rows_with_members, facts=facts))
    return plan.with_inputs(partial(match_rows_with_members, facts=facts))


def _matched(join: Join, conditions: list[Tree], table: str) -> Node | None:
    """The rows of a join for which conditions hold; None if it is not one by comparisons."""
    if join.how != "inner" or join.left_keys:
        return None
    for members_left in (True, False):
        members = join.left if members_left else join.right
        if members_of(members, table) is None and values_of(members, table) is None:
            continue
        sides = Sides.of(join, members_left)
        compared = {tree: one for tree in conditions if (one := _compares(sides, tree))}
        if compared:
            others = [tree for tree in conditions if tree not in compared]
            return _built(join, sides, list(compared.values()), others)
    return None


def _compares(sides: Sides, tree: Tree) -> Comparison | None:
    """A condition as a comparison of rows with members that can be computed for all rows."""
    if sides.is_of_rows(tree) or sides.is_of_members(tree):
        return None
    one = sides.compared(tree)
    return one if one is not None and sides.is_sure(one.row) else None


def _built(join: Join, sides: Sides, compared: list[Comparison], others: list[Tree]) -> Node:
    rows, members = Columns(join.names()), Columns(join.names())
    for columns, names in ((rows, sides.of_rows), (members, sides.of_members)):
        for name in names:
            columns.add(join.column(name), Ref(name))
    bounds = [
        Bound(0, rows.named("attribute", one.type, one.row), one.sign,
              members.named("bound", one.type, one.member))
        for one in compared
    ]  # fmt: skip
    node: Node = Matches(
        (*rows.columns, *members.columns),
        rows.over(sides.rows, sides.of_rows),
        members.over(sides.members, sides.of_members),
        tuple(bounds),
    )
    if others:
        node = Filter(node.columns, node, all_of(others))
    return Project(join.columns, node, tuple(map(Ref, join.names())))
