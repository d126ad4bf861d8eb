"""Catalyst's joins as joins by equal keys, with their other conditions as filters."""

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


def join(translation: Translation, plan: Any) -> Node:
    how = JOINS.get(kind(plan.joinType()))
    if how is None:
        raise UnsupportedSql(f"a view with a {plan.joinType().sql()} join can't be maintained")
    flipped = kind(plan.joinType()) == "RightOuter$"
    plans = (plan.right(), plan.left()) if flipped else (plan.left(), plan.right())
    left, right = translation.node(plans[0]), translation.node(plans[1])
    if how == "inner" and _is_one_row(left) and not _is_one_row(right):
        plans, left, right = plans[::-1], right, left
    condition = plan.condition()
    conditions = list(conjuncts(condition.get())) if condition.isDefined() else []
    equality = _null_aware(conditions) if how in ("anti", "existence") else None
    if equality is not None:
        return _null_aware_join(translation, plan, (left, right), equality, how)
    pairs, rest = _equalities(conditions, plans)
    keyed_left, left_keys = translation.computed(
        left, [left_key for left_key, _, _ in pairs], "key"
    )
    keyed_right, right_keys = translation.computed(
        right, [right_key for _, right_key, _ in pairs], "key"
    )
    build_join = partial(
        Join,
        left=keyed_left,
        right=keyed_right,
        left_keys=left_keys,
        right_keys=right_keys,
        null_safe=tuple(safe for _, _, safe in pairs),
        replicated=not pairs and (how != "full" or bool(rest)),
    )
    if how in ("semi", "anti") and not rest:
        return only(build_join(keyed_left.columns, how=how), left)
    if how == "existence" and not rest:
        return _marked(translation, plan, build_join, left)
    columns = _side_by_side(translation, keyed_left, keyed_right, plans[1])
    of_left, of_right = columns[: len(keyed_left.columns)], columns[len(keyed_left.columns) :]
    if how in ("left", "single", "full") and not rest:
        of_left = _nullable(of_left) if how == "full" else of_left
        return build_join((*of_left, *_nullable(of_right)), how=how)
    paired = translation.filtered(build_join(columns, how="inner"), rest)
    if how == "inner":
        return paired
    if how == "single":
        raise UnsupportedSql(
            "a scalar subquery whose condition is more than equalities can't be maintained unless "
            "it aggregates; write min(...) or max(...) of its column"
        )
    right_names = tuple(column.name for column in of_right[: len(right.columns)])
    return _by_matches(translation, plan, (left, right), paired, right_names, how)


def _is_one_row(node: Node) -> bool:
    while isinstance(node, Project):
        node = node.input
    return isinstance(node, Aggregate) and not node.groups


def _marked(translation: Translation, plan: Any, build_join: partial[Join], left: Node) -> Node:
    """Rows of the left, with a flag for whether they have a match."""
    keyed = build_join.keywords["left"]
    flag = translation.expressions.typed("", plan.joinType().exists())
    flag = replace(flag, name=unused("exists", keyed.names()))
    translation.expressions.names[plan.joinType().exists().exprId().id()] = flag.name
    existence = build_join((*keyed.columns, flag), how="existence")
    columns = (*left.columns, flag)
    return project(existence, columns, tuple(Ref(column.name) for column in columns))


def _by_matches(
    translation: Translation,
    plan: Any,
    sides: tuple[Node, Node],
    paired: Node,
    right_names: tuple[str, ...],
    how: str,
) -> Node:
    """A join with more conditions than equal keys, from its pairs, in which the columns of the
    right have the names `right_names`.

    A row has a match if it is among the pairs, whole.
    """
    left, right = sides
    names = tuple(left.names())
    if how == "existence":
        return _marked(translation, plan, _matching(left, paired, names), left)
    if how in ("semi", "anti"):
        return _matching(left, paired, names)(left.columns, how=how)
    columns = tuple(
        column if column.name in names and how == "left" else replace(column, nullable=True)
        for column in paired.columns
    )
    unmatched = _matching(left, paired, names)(left.columns, how="anti")
    parts = [paired, _padded(columns, unmatched, names, names)]
    if how == "full":
        unmatched = _matching(right, paired, right_names)(right.columns, how="anti")
        parts.append(_padded(columns, unmatched, right_names, tuple(right.names())))
    return Union(columns, tuple(parts))


def _matching(side: Node, paired: Node, names: tuple[str, ...]) -> partial[Join]:
    """A join of a side with the pairs, in which its columns have these names."""
    matched = project(paired, tuple(map(paired.column, names)), tuple(map(Ref, names)))
    return partial(
        Join,
        left=side,
        right=matched,
        left_keys=tuple(side.names()),
        right_keys=names,
        null_safe=(True,) * len(names),
        replicated=False,
    )


def _padded(
    columns: tuple[Column, ...], node: Node, output_names: tuple[str, ...], names: tuple[str, ...]
) -> Node:
    """Rows of one side, with NULL for the columns of the other."""
    names_by_output = dict(zip(output_names, names, strict=True))
    trees: tuple[Tree, ...] = tuple(
        Ref(names_by_output[column.name])
        if column.name in names_by_output
        else null(sql_name(column.type))
        for column in columns
    )
    return Project(columns, node, trees)


def _null_aware_join(
    translation: Translation, plan: Any, sides: tuple[Node, Node], equality: Any, how: str
) -> Node:
    """NOT IN: nothing if the right has a NULL, and left NULLs only if the right is empty."""
    left, right = sides
    pairs, _ = _equalities([equality], (plan.left(), plan.right()))
    if not pairs:
        raise UnsupportedSql("this NOT IN can't be maintained; write NOT EXISTS with an equality")
    ((left_key, right_key, _),) = pairs
    keyed, (name,) = translation.computed(left, [left_key], "key")
    keyed_right, (of_right,) = translation.computed(right, [right_key], "key")
    counted = Aggregate(
        (Column("call_0", pa.int64(), False), Column("call_1", pa.int64(), False)),
        project(keyed_right, (keyed_right.column(of_right),), (Ref(of_right),)),
        (),
        (Call("count", None), Call("count", of_right)),
    )
    flags = (Column("empty", pa.bool_(), False), Column("whole", pa.bool_(), False))
    counts = Ref("call_0"), Ref("call_1")
    facts = Project(flags, counted, (sql("{0} = 0", counts[0]), sql("{0} = {1}", *counts)))
    build_join = partial(
        Join,
        left=keyed,
        right=keyed_right,
        left_keys=(name,),
        right_keys=(of_right,),
        null_safe=(False,),
        replicated=False,
    )
    if how == "anti":
        result: Node = build_join(keyed.columns, how="anti")
    else:
        result = _marked(translation, plan, build_join, keyed)
    flag_columns = tuple(
        replace(flag, name=unused(flag.name, result.names()), nullable=True) for flag in flags
    )
    with_flags = Join((*result.columns, *flag_columns), result, facts, "single", (), (), (), True)
    flag_refs = (Ref(flag.name) for flag in flag_columns)
    out = sql("{0} OR ({1} AND {2} IS NOT NULL)", *flag_refs, Ref(name))
    if how == "anti":
        return only(Filter(with_flags.columns, with_flags, out), left)
    flag = result.columns[-1]
    columns = (*left.columns, flag)
    trees = (*map(Ref, left.names()), sql("{0} OR NOT ({1})", Ref(flag.name), out))
    return Project(columns, with_flags, trees)


def _null_aware(conditions: list[Any]) -> Any | None:
    """The equality of a NOT IN whose sides may be NULL: (a = b) OR isnull(a = b)."""
    if len(conditions) != 1 or kind(conditions[0]) != "Or":
        return None
    equality, is_null = children_of(conditions[0])
    unknown = kind(equality) == "EqualTo" and kind(is_null) == "IsNull"
    return equality if unknown and is_null.child().semanticEquals(equality) else None


def _equalities(
    conditions: list[Any], plans: tuple[Any, Any]
) -> tuple[list[tuple[Any, Any, bool]], list[Any]]:
    """Pairs of equal expressions of the two sides, NULL-safe or not; and the other conditions."""
    left, right = (numbers(plan.output()) for plan in plans)
    pairs, rest = [], []
    for condition in conditions:
        if kind(condition) in ("EqualTo", "EqualNullSafe"):
            first, second = children_of(condition)
            if numbers(first.references()) <= right and numbers(second.references()) <= left:
                first, second = second, first
            used = numbers(first.references()), numbers(second.references())
            if all(used) and used[0] <= left and used[1] <= right:
                pairs.append((first, second, kind(condition) == "EqualNullSafe"))
                continue
        rest.append(condition)
    return pairs, rest


def _side_by_side(
    translation: Translation, left: Node, right: Node, plan: Any
) -> tuple[Column, ...]:
    """The columns of both sides; those of the right get other names if the left has the same."""
    taken = [*left.names()]
    columns = []
    for column in right.columns:
        columns.append(replace(column, name=unused(column.name, taken)))
        taken.append(columns[-1].name)
    renamed = dict(zip(right.names(), columns, strict=True))
    names = translation.expressions.names
    for number in numbers(plan.output()):
        names[number] = renamed[names[number]].name
    return (*left.columns, *columns)


def _nullable(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    return tuple(replace(column, nullable=True) for column in columns)
