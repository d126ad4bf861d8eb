"""Catalyst's joins as joins by equal keys, with what else they ask for as filters."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from everview.errors import UnsupportedSql
from everview.plan.expressions import Ref, Tree, null, sql
from everview.plan.nodes import Aggregate, Call, Filter, Join, Node, Project, Union
from everview.schema import Column, sql_name
from everview.spark.trees import children_of, conjuncts, kind, numbers
from everview.sql.catalyst.building import only, project, unused

if TYPE_CHECKING:
    from everview.sql.catalyst.translation import Translation

JOINS = {
    "Inner$": "inner",
    "Cross$": "inner",
    "LeftOuter$": "left",
    "RightOuter$": "left",
    "FullOuter$": "full",
    "LeftSingle$": "single",
    "LeftSemi$": "semi",
    "LeftAnti$": "anti",
    "ExistenceJoin": "existence",
}


def join(given: Translation, plan: Any) -> Node:
    how = JOINS.get(kind(plan.joinType()))
    if how is None:
        raise UnsupportedSql(f"a view with a {plan.joinType().sql()} join can't be maintained")
    flipped = kind(plan.joinType()) == "RightOuter$"
    plans = (plan.right(), plan.left()) if flipped else (plan.left(), plan.right())
    left, right = given.node(plans[0]), given.node(plans[1])
    if how == "inner" and _is_one_row(left) and not _is_one_row(right):
        plans, left, right = plans[::-1], right, left
    condition = plan.condition()
    conditions = list(conjuncts(condition.get())) if condition.isDefined() else []
    equality = _null_aware(conditions) if how in ("anti", "existence") else None
    if equality is not None:
        return _null_aware_join(given, plan, (left, right), equality, how)
    pairs, rest = _equalities(conditions, plans)
    keyed_left, left_keys = given.computed(left, [one for one, _, _ in pairs], "key")
    keyed_right, right_keys = given.computed(right, [other for _, other, _ in pairs], "key")
    made = partial(
        Join,
        left=keyed_left,
        right=keyed_right,
        left_keys=left_keys,
        right_keys=right_keys,
        null_safe=tuple(safe for _, _, safe in pairs),
        replicated=not pairs and (how != "full" or bool(rest)),
    )
    if how in ("semi", "anti") and not rest:
        return only(made(keyed_left.columns, how=how), left)
    if how == "existence" and not rest:
        return _marked(given, plan, made, left)
    columns = _side_by_side(given, keyed_left, keyed_right, plans[1])
    of_left, of_right = columns[: len(keyed_left.columns)], columns[len(keyed_left.columns) :]
    if how in ("left", "single", "full") and not rest:
        of_left = _nullable(of_left) if how == "full" else of_left
        return made((*of_left, *_nullable(of_right)), how=how)
    paired = given.filtered(made(columns, how="inner"), rest)
    if how == "inner":
        return paired
    if how == "single":
        raise UnsupportedSql(
            "a scalar subquery whose condition is more than equalities can't be maintained unless "
            "it aggregates; write min(...) or max(...) of its column"
        )
    shown = tuple(column.name for column in of_right[: len(right.columns)])
    return _by_matches(given, plan, (left, right), paired, shown, how)


def _is_one_row(node: Node) -> bool:
    while isinstance(node, Project):
        node = node.input
    return isinstance(node, Aggregate) and not node.groups


def _marked(given: Translation, plan: Any, made: partial[Join], left: Node) -> Node:
    """Rows of the left with whether they have a match."""
    keyed = made.keywords["left"]
    flag = given.expressions.typed("", plan.joinType().exists())
    flag = replace(flag, name=unused("exists", keyed.names()))
    given.expressions.names[plan.joinType().exists().exprId().id()] = flag.name
    found = made((*keyed.columns, flag), how="existence")
    columns = (*left.columns, flag)
    return project(found, columns, tuple(Ref(column.name) for column in columns))


def _by_matches(
    given: Translation,
    plan: Any,
    sides: tuple[Node, Node],
    paired: Node,
    shown: tuple[str, ...],
    how: str,
) -> Node:
    """A join with more conditions than equal keys, from its pairs, which show the columns of the
    right by these names.

    A row has a match if it is among the pairs, whole.
    """
    left, right = sides
    names = tuple(left.names())
    if how == "existence":
        return _marked(given, plan, _matching(left, paired, names), left)
    if how in ("semi", "anti"):
        return _matching(left, paired, names)(left.columns, how=how)
    columns = tuple(
        column if column.name in names and how == "left" else replace(column, nullable=True)
        for column in paired.columns
    )
    alone = _matching(left, paired, names)(left.columns, how="anti")
    parts = [paired, _padded(columns, alone, names, names)]
    if how == "full":
        alone = _matching(right, paired, shown)(right.columns, how="anti")
        parts.append(_padded(columns, alone, shown, tuple(right.names())))
    return Union(columns, tuple(parts))


def _matching(side: Node, paired: Node, shown: tuple[str, ...]) -> partial[Join]:
    """A join of a side with the pairs, which show its columns by these names."""
    matched = project(paired, tuple(map(paired.column, shown)), tuple(map(Ref, shown)))
    return partial(
        Join,
        left=side,
        right=matched,
        left_keys=tuple(side.names()),
        right_keys=shown,
        null_safe=(True,) * len(shown),
        replicated=False,
    )


def _padded(
    columns: tuple[Column, ...], node: Node, shown: tuple[str, ...], names: tuple[str, ...]
) -> Node:
    """Rows of one side, with NULL for the columns of the other."""
    own = dict(zip(shown, names, strict=True))
    trees: tuple[Tree, ...] = tuple(
        Ref(own[column.name]) if column.name in own else null(sql_name(column.type))
        for column in columns
    )
    return Project(columns, node, trees)


def _null_aware_join(
    given: Translation, plan: Any, sides: tuple[Node, Node], equality: Any, how: str
) -> Node:
    """NOT IN: nothing if the right has a NULL, and left NULLs only if the right is empty."""
    left, right = sides
    pairs, _ = _equalities([equality], (plan.left(), plan.right()))
    if not pairs:
        raise UnsupportedSql("this NOT IN can't be maintained; write NOT EXISTS with an equality")
    ((key, other, _),) = pairs
    keyed, (name,) = given.computed(left, [key], "key")
    keyed_right, (of_right,) = given.computed(right, [other], "key")
    counted = Aggregate(
        (Column("call_0", pa.int64(), False), Column("call_1", pa.int64(), False)),
        project(keyed_right, (keyed_right.column(of_right),), (Ref(of_right),)),
        (),
        (Call("count", None), Call("count", of_right)),
    )
    flags = (Column("empty", pa.bool_(), False), Column("whole", pa.bool_(), False))
    counts = Ref("call_0"), Ref("call_1")
    facts = Project(flags, counted, (sql("{0} = 0", counts[0]), sql("{0} = {1}", *counts)))
    made = partial(
        Join,
        left=keyed,
        right=keyed_right,
        left_keys=(name,),
        right_keys=(of_right,),
        null_safe=(False,),
        replicated=False,
    )
    if how == "anti":
        found: Node = made(keyed.columns, how="anti")
    else:
        found = _marked(given, plan, made, keyed)
    shown = tuple(
        replace(flag, name=unused(flag.name, found.names()), nullable=True) for flag in flags
    )
    joined = Join((*found.columns, *shown), found, facts, "single", (), (), (), True)
    out = sql("{0} OR ({1} AND {2} IS NOT NULL)", *(Ref(flag.name) for flag in shown), Ref(name))
    if how == "anti":
        return only(Filter(joined.columns, joined, out), left)
    flag = found.columns[-1]
    columns = (*left.columns, flag)
    trees = (*map(Ref, left.names()), sql("{0} OR NOT ({1})", Ref(flag.name), out))
    return Project(columns, joined, trees)


def _null_aware(conditions: list[Any]) -> Any | None:
    """The equality of a NOT IN whose sides may be NULL: (a = b) OR isnull(a = b)."""
    if len(conditions) != 1 or kind(conditions[0]) != "Or":
        return None
    one, other = children_of(conditions[0])
    unknown = kind(one) == "EqualTo" and kind(other) == "IsNull"
    return one if unknown and other.child().semanticEquals(one) else None


def _equalities(
    conditions: list[Any], plans: tuple[Any, Any]
) -> tuple[list[tuple[Any, Any, bool]], list[Any]]:
    """Pairs of equal expressions of the two sides, NULL-safe or not; and what else is asked."""
    left, right = (numbers(plan.output()) for plan in plans)
    pairs, rest = [], []
    for condition in conditions:
        if kind(condition) in ("EqualTo", "EqualNullSafe"):
            one, other = children_of(condition)
            if numbers(one.references()) <= right and numbers(other.references()) <= left:
                one, other = other, one
            used = numbers(one.references()), numbers(other.references())
            if all(used) and used[0] <= left and used[1] <= right:
                pairs.append((one, other, kind(condition) == "EqualNullSafe"))
                continue
        rest.append(condition)
    return pairs, rest


def _side_by_side(given: Translation, left: Node, right: Node, plan: Any) -> tuple[Column, ...]:
    """The columns of both sides; those of the right get other names where both have one."""
    taken = [*left.names()]
    columns = []
    for column in right.columns:
        columns.append(replace(column, name=unused(column.name, taken)))
        taken.append(columns[-1].name)
    renamed = dict(zip(right.names(), columns, strict=True))
    names = given.expressions.names
    for number in numbers(plan.output()):
        names[number] = renamed[names[number]].name
    return (*left.columns, *columns)


def _nullable(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    return tuple(replace(column, nullable=True) for column in columns)
