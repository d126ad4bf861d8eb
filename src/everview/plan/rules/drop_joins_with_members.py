"""Drops joins of what is added up for each member with the members again: it has rows of those that
there are, and of no others. Where each member has one row, even over nothing, a left join changes
nothing either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from everview.plan.expressions import Ref, Tree, column_of
from everview.plan.facts import Facts
from everview.plan.members import members_of
from everview.plan.nodes import ByMember, Filter, Join, Node, Project, TopKByGroup


def drop_joins_with_members(plan: Node, facts: Facts) -> Node:
    if facts.members is None:
        return plan
    plan = plan.with_inputs(partial(drop_joins_with_members, facts=facts))
    if not isinstance(plan, Join) or plan.how not in ("inner", "left"):
        return plan
    for members, rows, keys, other_keys in (
        (plan.left, plan.right, plan.left_keys, plan.right_keys),
        (plan.right, plan.left, plan.right_keys, plan.left_keys),
    ):
        of_members = members_of(members, facts.members)
        if of_members is None or (plan.how == "left" and members is not plan.left):
            continue
        pairs = {of_members[key]: other for key, other in zip(keys, other_keys, strict=True)}
        needs_each = plan.how == "left"
        if _has_rows_of_members(rows, pairs, facts.members, needs_each):
            rows = _of_each(rows) if needs_each else rows
            return _without_join(plan, rows, members is plan.left, of_members, pairs)
    return plan


def _has_rows_of_members(node: Node, pairs: dict[str, str], table: str, needs_each: bool) -> bool:
    """Whether a node's rows are of members, and one could be of each if it `needs_each`; `pairs`
    has for each column of the members the one of the node that must be equal."""
    while not isinstance(node, ByMember):
        if isinstance(node, Project):
            below = dict(zip(node.names(), map(column_of, node.expressions), strict=True))
            new = {member: below[name] for member, name in pairs.items()}
            if not all(new.values()):
                return False
            pairs = {member: name for member, name in new.items() if name}
        elif not isinstance(node, Filter | TopKByGroup) or needs_each:
            return False
        node = node.inputs()[0]
    if needs_each and node.groups:
        return False
    members = node.members
    assert isinstance(members, Project)
    names = members_of(members.input, table) or {}
    trees = dict(zip(members.names(), map(column_of, members.expressions), strict=True))
    by = {names[old]: name for name in node.by if (old := trees[name]) is not None}
    return bool(by) and by == pairs and set(by) == set(names.values())


def _of_each(node: Node) -> Node:
    """The same rows, and one for each member that had none."""
    return replace(node, each=True) if isinstance(node, ByMember) else node.with_inputs(_of_each)


def _without_join(
    join: Join,
    rows: Node,
    members_left: bool,
    of_members: Mapping[str, str],
    pairs: Mapping[str, str],
) -> Node:
    """The rows of the join from those of its other side."""
    left = {name: name for name in join.left.names()}
    right = {new: old for old, new in join.right_names().items()}
    trees: list[Tree] = []
    for name in join.names():
        is_left = name in left
        old = left[name] if is_left else right[name]
        trees.append(Ref(pairs[of_members[old]] if is_left == members_left else old))
    return Project(join.columns, rows, tuple(trees))
