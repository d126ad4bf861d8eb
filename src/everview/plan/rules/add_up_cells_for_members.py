"""Add up rows once for all members of a family, where members take their rows by comparisons.

The rows of `WHERE day >= :since GROUP BY customer` are joined with members by a comparison, and
added up by member: each row once for each member that has it. Instead the rows are added up by
(customer, day) into cells, and a member adds up the cells that it has. Aggregates of counts and of
exact sums can do so, and comparisons that AND, OR, NOT and IN connect; the expressions of rows must
not fail for rows that no member has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from everview.functions.count import COUNT
from everview.functions.sum import SUM
from everview.plan.boxes import boxes
from everview.plan.expressions import (
    Apply,
    Ref,
    Tree,
    all_of,
    column_of,
    conjuncts,
    substituted,
)
from everview.plan.facts import Facts
from everview.plan.members import Columns, Comparison, Sides, members_of
from everview.plan.nodes import (
    Aggregate,
    Bound,
    ByMember,
    Call,
    CellSum,
    Filter,
    Join,
    Node,
    Project,
)
from everview.plan.nodes.members import ROWS
from everview.schema import Column


def add_up_cells_for_members(plan: Node, facts: Facts) -> Node:
    if facts.members is None or not facts.adds_up:
        return plan
    table = facts.members
    plan = plan.with_inputs(partial(add_up_cells_for_members, facts=facts))
    if not isinstance(plan, Aggregate):
        return plan
    join = JoinedMembers.below(plan, lambda node: members_of(node, table) is not None)
    return plan if join is None else join.by_member() or plan


def _adds_up(call: Call) -> bool:
    """Whether the state of a function is a count and an exact sum."""
    return (
        not call.keeps_values
        and call.other is None
        and set(call.definition.state()) <= {COUNT, SUM}
    )


@dataclass(frozen=True)
class JoinedMembers:
    """An aggregate over the join of members with rows; its trees and conditions are over the
    columns of the join."""

    aggregate: Aggregate
    trees: Mapping[str, Tree]  # of the columns of the aggregate's input
    conditions: Sequence[Tree]
    sides: Sides

    @classmethod
    def below(
        cls, aggregate: Aggregate, is_of_members: Callable[[Node], bool]
    ) -> JoinedMembers | None:
        """What an aggregate adds up, if it is a join of members with rows."""
        node = aggregate.input
        trees: dict[str, Tree] = {name: Ref(name) for name in node.names()}
        conditions: list[Tree] = []
        while isinstance(node, Filter | Project):
            if isinstance(node, Filter):
                conditions += conjuncts(node.condition)
            else:
                below = dict(zip(node.names(), node.expressions, strict=True))
                trees = {name: substituted(tree, below) for name, tree in trees.items()}
                conditions = [substituted(tree, below) for tree in conditions]
            node = node.input
        if not isinstance(node, Join) or node.how != "inner":
            return None
        new_names = node.right_names()
        for one, other, safe in zip(node.left_keys, node.right_keys, node.null_safe, strict=True):
            form = "({0} <=> {1})" if safe else "({0} = {1})"
            conditions.append(Apply(form, (Ref(one), Ref(new_names[other]))))
        if not (is_of_members(node.left) or is_of_members(node.right)):
            return None
        return cls(aggregate, trees, conditions, Sides.of(node, is_of_members(node.left)))

    def by_member(self) -> Node | None:
        """The same rows from cells; None if that can't be, or is no better."""
        aggregate, sides = self.aggregate, self.sides
        by = [name for name in aggregate.groups if sides.is_of_members(self.trees[name])]
        groups = [name for name in aggregate.groups if name not in by]
        arguments = list(dict.fromkeys(c.argument for c in aggregate.calls if c.argument))
        others = [tree for tree in self.conditions if sides.is_of_rows(tree)]
        compared = [tree for tree in self.conditions if tree not in others]
        of_rows = [*others, *(self.trees[name] for name in (*groups, *arguments))]
        is_by_member = {column_of(self.trees[name]) for name in by} == set(sides.of_members)
        if not is_by_member or not all(map(sides.is_of_rows, of_rows)):
            return None
        if not all(_adds_up(call) and _is_exact(aggregate, call) for call in aggregate.calls):
            return None
        found = boxes(compared, sides.compared)
        if not found or (all(one.sign == "=" for one in found[0][1]) and len(found) == 1):
            return None  # a join by equal values finds the members of a row at once
        of_cells = [one.row for _, box in found for one in box] + of_rows[len(others) :]
        if not all(map(sides.is_sure, of_cells)):
            return None  # it would be computed for rows that no member has, too
        return self._built(by, groups, arguments, found, others)

    def _built(
        self,
        by: Sequence[str],
        groups: Sequence[str],
        arguments: Sequence[str],
        boxes_of_each: Sequence[tuple[int, Sequence[Comparison]]],
        others: Sequence[Tree],
    ) -> Node:
        aggregate = self.aggregate
        rows, members = Columns(aggregate.names()), Columns(aggregate.names())
        for name in groups:
            rows.add(aggregate.column(name), self.trees[name])
        for name in by:
            members.add(aggregate.column(name), self.trees[name])
        bounds = tuple(
            Bound(
                box,
                rows.named("attribute", one.type, one.row),
                one.sign,
                members.named("bound", one.type, one.member),
            )
            for box, (_, comparisons) in enumerate(boxes_of_each)
            for one in comparisons
        )
        keys = tuple(rows.columns)
        values = {
            name: Column(rows.named("argument", column.type, self.trees[name]), column.type)
            for name in arguments
            for column in [aggregate.input.column(name)]
        }
        input_node = self.sides.rows
        if others:
            below: dict[str, Tree] = {name: Ref(old) for name, old in self.sides.of_rows.items()}
            condition = all_of([substituted(tree, below) for tree in others])
            input_node = Filter(input_node.columns, input_node, condition)
        calls = tuple(
            replace(call, argument=values[call.argument].name if call.argument else None)
            for call in aggregate.calls
        )
        cell_sums = _sums(calls, tuple(values.values()))
        cells = Aggregate(
            (*keys, *(column for _, column, _ in cell_sums)),
            rows.over(input_node, self.sides.of_rows),
            tuple(column.name for column in keys),
            tuple(call for _, _, call in cell_sums),
        )
        result = ByMember(
            (*map(aggregate.column, (*by, *groups)), *aggregate.columns[len(aggregate.groups) :]),
            cells,
            members.over(self.sides.members, self.sides.of_members),
            tuple(by),
            tuple(groups),
            tuple(sign for sign, _ in boxes_of_each),
            bounds,
            calls,
            tuple(values.values()),
            tuple(one for one, _, _ in cell_sums),
            each=False,
        )
        return Project(aggregate.columns, result, tuple(map(Ref, aggregate.names())))


def _is_exact(aggregate: Aggregate, call: Call) -> bool:
    """Whether what a call adds up are whole numbers or decimals."""
    if call.argument is None or SUM not in call.definition.state():
        return True
    type_ = aggregate.input.column(call.argument).type
    return bool(pa.types.is_integer(type_) or pa.types.is_decimal(type_))


def _sums(calls: Sequence[Call], arguments: Sequence[Column]) -> list[tuple[CellSum, Column, Call]]:
    """The sums of cells that calls need, with their columns, and the calls that make them."""
    sums = [(CellSum(None, ROWS, "cell_rows"), Column("cell_rows", pa.int64(), False))]
    own = [Call("count", None)]
    for place, argument in enumerate(arguments):
        of_argument = [call for call in calls if call.argument == argument.name]
        states = {state for call in of_argument for state in call.definition.state()}
        for state in sorted(states, key=lambda state: state.place):
            name, is_sum = f"cell_{state.name}_{place}", state == SUM
            column = Column(name, state.type(argument.type), is_sum)
            sums.append((CellSum(argument.name, state.name, name), column))
            own.append(Call("sum" if is_sum else "count", argument.name))
    return [(one, column, call) for (one, column), call in zip(sums, own, strict=True)]
