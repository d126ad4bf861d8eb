"""Add up cells for members where the rows were joined with some distinct values of the members.

Spark joins rows with members as far as it must: those of `WHERE region = :region AND day >= :since`
with the distinct values of `since`, and the sums with members, by `since` and `region`. Rows that
are added up for whole members do without these pairs of all values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from everview.plan.expressions import Apply, Ref, Tree, all_of, column_of
from everview.plan.facts import Facts
from everview.plan.members import Columns, Sides, members_of, values_of
from everview.plan.nodes import Aggregate, Filter, Join, Node, Project, TopKByGroup
from everview.plan.rules.add_up_cells_for_members import JoinedMembers
from everview.schema import Column


def add_up_cells_for_values_of_members(plan: Node, facts: Facts) -> Node:
    if facts.members is None or not facts.adds_up:
        return plan
    plan = plan.with_inputs(partial(add_up_cells_for_values_of_members, facts=facts))
    if not isinstance(plan, Join) or plan.how not in ("inner", "left"):
        return plan
    for members_left in (True, False):
        members = plan.left if members_left else plan.right
        of_members = members_of(members, facts.members)
        if of_members is None or not (members_left or plan.how == "inner"):
            continue
        keys = (plan.left_keys, plan.right_keys)[:: 1 if members_left else -1]
        pairs = {of_members[key]: other for key, other in zip(*keys, strict=True)}
        rows = plan.right if members_left else plan.left
        below = _Below(facts.members, members, set(plan.names())).node(rows, pairs)
        if below is not None:
            return _joined_again(plan, members_left, of_members, *below)
    return plan


class _Below:
    """The part of a plan that is joined with members: above, what chooses and computes columns,
    then an aggregate. All of it gets the columns of whole members, under names that are free."""

    def __init__(self, table: str, members: Node, taken: set[str]) -> None:
        self._table, self._members = table, members
        own = members_of(members, table) or {}
        self._own_names = {member: name for name, member in own.items()}
        self._names: dict[str, str] = {}  # the columns of members: their names from here on
        for member in self._own_names:
            name = member
            while name in taken:
                name = f"_{name}"
            self._names[member] = name

    def node(self, node: Node, pairs: Mapping[str, str]) -> tuple[Node, Mapping[str, str]] | None:
        """The node with more columns, and which of them has a column of the members; `pairs` says
        which of its columns must equal one of the members."""
        if isinstance(node, Aggregate):
            return self._aggregate(node, pairs)
        if isinstance(node, TopKByGroup):
            return self._first(node, pairs)
        if not isinstance(node, Filter | Project):
            return None
        if isinstance(node, Project):
            below_names = dict(zip(node.names(), map(column_of, node.expressions), strict=True))
            names = {member: below_names[name] for member, name in pairs.items()}
            pairs = {member: name for member, name in names.items() if name}
            if len(pairs) < len(names):
                return None
        below = self.node(node.input, pairs)
        if below is None:
            return None
        input_node, _ = below
        if isinstance(node, Filter):
            return replace(node, input=input_node, columns=input_node.columns), self._names
        more = tuple(map(input_node.column, self._names.values()))
        trees = (*node.expressions, *(Ref(column.name) for column in more))
        columns = (*node.columns, *more)
        return replace(node, input=input_node, columns=columns, expressions=trees), self._names

    def _first(
        self, node: TopKByGroup, pairs: Mapping[str, str]
    ) -> tuple[Node, Mapping[str, str]] | None:
        """The first rows of each member, if all columns of the members tell groups apart."""
        if set(node.groups) != set(pairs.values()) or set(pairs) != set(self._names):
            return None
        below = self.node(node.input, pairs) or self._rows(node.input, pairs)
        if below is None:
            return None
        rows, _ = below
        groups = tuple(self._names.values())
        return replace(node, columns=rows.columns, input=rows, groups=groups), self._names

    def _rows(self, node: Node, pairs: Mapping[str, str]) -> tuple[Node, Mapping[str, str]] | None:
        """Rows that are not added up, joined with whole members."""
        found = self._joined(Aggregate(node.columns, node, (), ()), pairs)
        if found is None:
            return None
        joined, places, conditions = found
        of_rows = joined.sides.of_rows
        if set(places.values()) & set(of_rows):
            return None
        rows, members = Columns(()), Columns(())
        for name, old in of_rows.items():
            rows.add(replace(joined.sides.rows.column(old), name=name), Ref(name))
        for member, name in places.items():
            members.add(replace(self._column_of(member), name=name), Ref(name))
        own_names = {name: self._own_names[member] for member, name in places.items()}
        columns = (*rows.columns, *members.columns)
        sides = rows.over(joined.sides.rows, of_rows), members.over(self._members, own_names)
        join = Join(columns, *sides, "inner", (), (), (), False)
        matched = Filter(columns, join, all_of(conditions))
        more = [replace(self._column_of(member), name=n) for member, n in self._names.items()]
        trees = [joined.trees[name] for name in node.names()]
        trees += [Ref(places[member]) for member in self._names]
        return Project((*node.columns, *more), matched, tuple(trees)), self._names

    def _column_of(self, member: str) -> Column:
        return self._members.column(self._own_names[member])

    def _aggregate(
        self, node: Aggregate, pairs: Mapping[str, str]
    ) -> tuple[Node, Mapping[str, str]] | None:
        found = self._joined(node, pairs)
        if found is None:
            return None
        joined, places, conditions = found
        member_of = {group: member for member, group in pairs.items()}
        result = self._whole(joined, member_of, places, conditions).by_member()
        if result is None:
            return None
        names = [self._names[member_of[n]] if n in member_of else n for n in node.names()]
        more = tuple(map(result.column, self._names.values()))
        trees: tuple[Tree, ...] = (*map(Ref, names), *map(Ref, self._names.values()))
        return Project((*node.columns, *more), result, trees), self._names

    def _joined(
        self, node: Aggregate, pairs: Mapping[str, str]
    ) -> tuple[JoinedMembers, Mapping[str, str], list[Tree]] | None:
        """The join with values of members below a node, the names of the columns of whole members
        in it, and all conditions; None if there is no such join."""
        joined = JoinedMembers.below(node, lambda side: values_of(side, self._table) is not None)
        if joined is None:
            return None
        sides = joined.sides
        values = values_of(sides.members, self._table) or {}
        of_members = {name: values[old] for name, old in sides.of_members.items()}
        # columns of the join: those of the values have names there, the others get theirs
        places = self._names | {member: name for name, member in of_members.items()}
        conditions, compared = list(joined.conditions), set[str]()
        for member, group in pairs.items():
            name = column_of(joined.trees[group])
            if name in of_members:
                compared.add(str(name))
                if of_members[str(name)] != member:
                    return None
            else:
                equal = Apply("({0} = {1})", (joined.trees[group], Ref(places[member])))
                conditions.append(equal)
        return (joined, places, conditions) if compared == set(of_members) else None

    def _whole(
        self,
        joined: JoinedMembers,
        member_of: Mapping[str, str],
        places: Mapping[str, str],
        conditions: Sequence[Tree],
    ) -> JoinedMembers:
        """The join with whole members instead of their values, added up by member; `member_of` has
        the groups that equal a column of the members."""
        node = joined.aggregate
        groups = [name for name in node.groups if name not in member_of]
        of_members = [
            Column(name, self._members.column(self._own_names[member]).type)
            for member, name in self._names.items()
        ]
        columns = (*of_members, *map(node.column, groups), *node.columns[len(node.groups) :])
        names = (*self._names.values(), *groups)
        return JoinedMembers(
            Aggregate(columns, node.input, names, node.calls),
            {**joined.trees, **{self._names[m]: Ref(place) for m, place in places.items()}},
            conditions,
            Sides(
                self._members,
                joined.sides.rows,
                {place: self._own_names[member] for member, place in places.items()},
                joined.sides.of_rows,
            ),
        )


def _joined_again(
    join: Join,
    members_left: bool,
    of_members: Mapping[str, str],
    rows: Node,
    names: Mapping[str, str],
) -> Node:
    """The join of members with rows that have their columns, by all of these."""
    own_keys = tuple(of_members)
    keys = tuple(names[of_members[key]] for key in own_keys)
    safe = (True,) * len(keys)
    more = rows.columns[len(rows.columns) - len(names) :]
    if members_left:
        columns = (*join.columns, *more)
        again = Join(columns, join.left, rows, join.how, own_keys, keys, safe, False)
    else:
        width = len(join.left.columns)
        columns = (*join.columns[:width], *more, *join.columns[width:])
        again = Join(columns, rows, join.right, join.how, keys, own_keys, safe, False)
    return Project(join.columns, again, tuple(map(Ref, join.names())))
