"""Read, move and keep in state only the columns that some node above uses."""

from __future__ import annotations

from dataclasses import replace

from everview.plan.expressions import Ref, column_of, columns_of
from everview.plan.facts import Facts
from everview.plan.nodes import (
    Aggregate,
    Constant,
    Filter,
    Generate,
    Join,
    Node,
    Project,
    Recompute,
    Replace,
    Source,
    Touched,
    Union,
)


def keep_needed_columns(plan: Node, facts: Facts) -> Node:
    return _kept(plan, set(plan.names()))


def _kept(node: Node, needed: set[str]) -> Node:
    """The node with the columns needed; a filter may have others too."""
    if isinstance(node, Source):
        kept = [i for i, name in enumerate(node.names()) if name in needed] or [0]
        columns = tuple(node.columns[i] for i in kept)
        return replace(node, columns=columns, read=tuple(node.read[i] for i in kept))
    if isinstance(node, Constant):
        return node
    if isinstance(node, Generate):
        return _of_generate(node, needed)
    if isinstance(node, Replace):
        return _of_replace(node, needed)
    if isinstance(node, Filter):
        below = _kept(node.input, needed | columns_of(node.condition))
        return replace(node, input=below, columns=below.columns)
    if isinstance(node, Project):
        return _of_project(node, needed)
    if isinstance(node, Union):
        names = [name for name in node.names() if name in needed] or node.names()[:1]
        parts = tuple(_exactly(part, names) for part in node.parts)
        return replace(node, parts=parts, columns=tuple(map(node.column, names)))
    if isinstance(node, Join):
        return _of_join(node, needed)
    taken = iter([node.required_columns(needed)])  # of the first input; of others all columns are

    def narrowed(below: Node) -> Node:
        names = next(taken, None)
        return _exactly(below, below.names() if names is None else _wanted(below, names))

    found = node.with_inputs(narrowed)
    return replace(found, columns=found.inputs()[0].columns) if node.passes_rows else found


def _of_project(node: Project, needed: set[str]) -> Node:
    made = list(zip(node.expressions, node.columns, strict=True))
    kept = [(tree, column) for tree, column in made if column.name in needed]
    trees, columns = tuple(tree for tree, _ in kept), tuple(column for _, column in kept)
    below = _kept(node.input, columns_of(*trees))
    plain = [column_of(tree) for tree in trees]
    if plain == below.names() == [column.name for column in columns]:
        return below
    return replace(node, input=below, expressions=trees, columns=columns)


def _of_generate(node: Generate, needed: set[str]) -> Node:
    kept = tuple(name for name in node.kept if name in needed)
    below = _kept(node.input, {*kept, *columns_of(node.generator)})
    columns = (*map(node.column, kept), *node.columns[len(node.kept) :])
    return replace(node, input=below, kept=kept, columns=columns)


def _of_replace(node: Replace, needed: set[str]) -> Node:
    """What is recomputed and not needed is not computed; groups are needed in any case. If nothing
    is, there are the rows of windows, and the groups of aggregates, all the same."""
    computed = node.input
    assert isinstance(computed, Recompute)  # plans that are refreshed in full have no rules
    fixed = computed.input.columns if computed.rows_stay else map(node.column, node.groups)
    names = [column.name for column in fixed]
    made = list(zip(computed.expressions, node.names()[len(names) :], strict=True))
    kept = [(tree, name) for tree, name in made if name in needed] or made[: not names]
    trees = tuple(tree for tree, _ in kept)
    wanted = {*node.groups, *columns_of(*trees)}
    if computed.rows_stay:
        wanted |= needed
    touched = computed.input
    if computed.rows_stay and not kept:
        return _kept(touched.input, needed)
    below = _exactly(touched.input, _wanted(touched.input, wanted))
    if not kept:
        return Aggregate(tuple(map(node.column, names)), below, node.groups, ())
    touched = Touched(below.columns, below, touched.groups)
    stay = touched.names() if computed.rows_stay else list(node.groups)
    columns = tuple(map(node.column, [*stay, *(name for _, name in kept)]))
    computed = Recompute(columns, touched, trees, computed.rows_stay)
    return replace(node, input=computed, columns=columns)


def _of_join(node: Join, needed: set[str]) -> Node:
    names = node.names()
    given = () if node.how == "existence" else names[len(node.left.columns) :]
    shown = dict(zip(node.right.names(), given, strict=False))
    of_left = {name for name in node.left.names() if name in needed} | set(node.left_keys)
    of_right = {n for n, name in shown.items() if name in needed} | set(node.right_keys)
    left = _exactly(node.left, _wanted(node.left, of_left))
    right = _exactly(node.right, _wanted(node.right, of_right))
    columns = [node.column(name) for name in left.names()]
    if node.how == "existence":
        columns.append(node.columns[-1])
    elif node.how not in ("semi", "anti"):
        columns += [node.column(shown[name]) for name in right.names()]
    return replace(node, left=left, right=right, columns=tuple(columns))


def _wanted(node: Node, names: set[str]) -> list[str]:
    """The names in the node's order; its first column if none, since a row needs one."""
    return [name for name in node.names() if name in names] or node.names()[:1]


def _exactly(node: Node, names: list[str]) -> Node:
    """What an operator or a union is given: these columns and no others."""
    kept = _kept(node, set(names))
    if kept.names() == names:
        return kept
    columns = tuple(kept.column(name) for name in names)
    return Project(columns, kept, tuple(map(Ref, names)))
