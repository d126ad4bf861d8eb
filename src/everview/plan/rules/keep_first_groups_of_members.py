"""Keep the first groups of each member, and no others, where only these are asked for.

`GROUP BY customer ORDER BY sum(amount) DESC LIMIT 3` of each member needs no totals of all members
and customers: cells are kept by customer, and of each member the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from everview.plan.expressions import Ref, Tree, column_of
from everview.plan.facts import Facts
from everview.plan.members import members_of, values_of
from everview.plan.nodes import (
    Aggregate,
    ByMember,
    FirstByMember,
    Matches,
    Node,
    Order,
    Project,
    TopKByGroup,
)


def keep_first_groups_of_members(plan: Node, facts: Facts) -> Node:
    if facts.members is None:
        return plan
    plan = plan.with_inputs(partial(keep_first_groups_of_members, facts=facts))
    if not isinstance(plan, TopKByGroup):
        return plan
    node, names = plan.input, {name: name for name in plan.names()}
    while isinstance(node, Project):
        below = dict(zip(node.names(), map(column_of, node.expressions), strict=True))
        if not all(below[name] for name in names.values()):
            return plan
        names = {above: str(below[name]) for above, name in names.items()}
        node = node.input
    if isinstance(node, ByMember):
        first = _of_groups(plan, node, names)
    elif isinstance(node, Matches):
        first = _of_rows(plan, node, names, facts)
    else:
        return plan
    if first is None:
        return plan
    trees: tuple[Tree, ...] = tuple(Ref(names[name]) for name in plan.names())
    return Project(plan.columns, first, trees)


def _of_groups(plan: TopKByGroup, node: ByMember, names: Mapping[str, str]) -> Node | None:
    """The first groups that cells are added up to."""
    if node.each or not isinstance(node.cells, Aggregate):
        return None
    if {names[name] for name in plan.groups} != set(node.by):
        return None
    return FirstByMember(
        node.columns,
        node.cells.input,
        node.members,
        node.by,
        node.groups,
        node.signs,
        node.bounds,
        node.calls,
        node.arguments,
        _renamed(plan, names),
        plan.limit,
        plan.offset,
        each_row=False,
    )


def _of_rows(
    plan: TopKByGroup, node: Matches, names: Mapping[str, str], facts: Facts
) -> Node | None:
    """The first rows that members have."""
    by = tuple(dict.fromkeys(names[name] for name in plan.groups))
    rows = tuple(node.rows.names())
    if set(by) & set(rows) or not _tells_members_apart(node.members, by, facts):
        return None
    if any(name not in by and name not in rows for name in names.values()):
        return None
    return FirstByMember(
        (*map(node.members.column, by), *node.rows.columns),
        node.rows,
        node.members,
        by,
        rows,
        (1,),
        node.bounds,
        (),
        (),
        _renamed(plan, names),
        plan.limit,
        plan.offset,
        each_row=True,
    )


def _renamed(plan: TopKByGroup, names: Mapping[str, str]) -> tuple[Order, ...]:
    return tuple(replace(order, column=names[order.column]) for order in plan.order)


def _tells_members_apart(members: Node, by: tuple[str, ...], facts: Facts) -> bool:
    """Whether no two rows of the members have equal values in some columns."""
    if not isinstance(members, Project) or facts.members is None:
        return False
    own = members_of(members.input, facts.members)
    if own is not None and set(own.values()) != set(facts.key_of(facts.members) or ()):
        return False
    if own is None and values_of(members.input, facts.members) is None:
        return False
    trees = dict(zip(members.names(), map(column_of, members.expressions), strict=True))
    return {trees.get(name) for name in by} == set(members.input.names())
