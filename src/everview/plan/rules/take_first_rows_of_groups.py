"""Take the first rows of groups where rows are numbered by group and the first numbers chosen.

Spark makes `ORDER BY amount DESC LIMIT 3` of each member of a family a row_number() over the rows
of the member, and takes the numbers up to 3. An operator that keeps rows in order has the first of
them at once; numbers are computed anew for all rows of a group.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from everview.plan.expressions import Apply, Lit, Ref, Tree, columns_of, conjuncts, operation
from everview.plan.facts import Facts
from everview.plan.nodes import Filter, Node, Order, Project, Recompute, Replace, TopKByGroup

_ITEM = re.compile(r"\{0\} (ASC|DESC) NULLS (FIRST|LAST)")
_NUMBERED = ("CAST({0} AS INT)", "{0} {1}", "row_number()")


def take_first_rows_of_groups(plan: Node, facts: Facts) -> Node:
    if facts.members is None:
        return plan
    plan = plan.with_inputs(partial(take_first_rows_of_groups, facts=facts))
    if not (isinstance(plan, Project) and isinstance(plan.input, Filter)):
        return plan
    replaced = plan.input.input
    if not (isinstance(replaced, Replace) and isinstance(replaced.input, Recompute)):
        return plan
    computed = replaced.input
    number = replaced.names()[-1]
    if number in columns_of(*plan.expressions) or len(computed.expressions) != 1:
        return plan
    order = _order(computed.expressions[0])
    ends = _ends(conjuncts(plan.input.condition), number)
    if order is None or ends is None or not replaced.groups:
        return plan
    after, upto = ends
    rows = computed.input.input
    first = TopKByGroup(rows.columns, rows, replaced.groups, order, upto - after, after)
    return Project(plan.columns, first, plan.expressions)


def _order(tree: Tree) -> tuple[Order, ...] | None:
    """The order in which an expression numbers rows; None if it is another, or by no columns. Items
    without a direction are what comes last, for rows that tie."""
    forms = list[str]()
    node = tree
    while isinstance(node, Apply) and len(forms) < len(_NUMBERED) - 1:
        forms.append(node.form)
        over, node = node, node.parts()[0]
    if not isinstance(node, Apply) or (*forms, node.form) != _NUMBERED:
        return None
    orders = []
    for clause in over.parts()[1].parts():
        if not (isinstance(clause, Apply) and clause.form.startswith("ORDER BY ")):
            continue
        for item in clause.parts():
            way = _ITEM.fullmatch(item.form) if isinstance(item, Apply) else None
            if way is None:
                break
            column = item.parts()[0]
            if not isinstance(column, Ref):
                return None
            orders.append(Order(column.name, way[1] == "DESC", way[2] == "FIRST"))
    return tuple(orders)


def _ends(conditions: Sequence[Tree], number: str) -> tuple[int, int] | None:
    """After which number, and up to which, rows are taken; None if conditions say something else.
    Numbers begin with 1."""
    after, upto = 0, None
    for tree in conditions:
        parts = tree.parts()
        sign = operation(tree)
        if len(parts) != 2 or parts[0] != Ref(number) or not isinstance(parts[1], Lit):
            return None
        if not parts[1].text.isdigit():
            return None
        value = int(parts[1].text)
        if sign == "{0} > {1}":
            after = max(after, value)
        elif sign == "{0} <= {1}" or (sign == "{0} = {1}" and value == 1):
            upto = value if upto is None else min(upto, value)
        else:
            return None
    return None if upto is None or upto <= after else (after, upto)
