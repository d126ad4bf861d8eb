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
    return _narrowed(plan, set(plan.names()))


def _narrowed(node: Node, needed: set[str]) -> Node:
    """The node with only the needed columns; a filter may have others too."""
    if isinstance(node, Source):
        places = [i for i, name in enumerate(node.names()) if name in needed] or [0]
        columns = tuple(node.columns[i] for i in places)
        return replace(node, columns=columns, read=tuple(node.read[i] for i in places))
    if isinstance(node, Constant):
        return node
    if isinstance(node, Generate):
        return _of_generate(node, needed)
    if isinstance(node, Replace):
        return _of_replace(node, needed)
    if isinstance(node, Filter):
        below = _narrowed(node.input, needed | columns_of(node.condition))
        return replace(node, input=below, columns=below.columns)
    if isinstance(node, Project):
        return _of_project(node, needed)
    if isinstance(node, Union):
        names = [name for name in node.names() if name in needed] or node.names()[:1]
        parts = tuple(_exactly(part, names) for part in node.parts)
        return replace(node, parts=parts, columns=tuple(map(node.column, names)))
    if isinstance(node, Join):
        return _of_join(node, needed)
    required = iter([node.required_columns(needed)])  # of the first input; others keep all columns

    def narrowed(below: Node) -> Node:
        names = next(required, None)
        return _exactly(below, below.names() if names is None else _in_node_order(below, names))

    result = node.with_inputs(narrowed)
    return replace(result, columns=result.inputs()[0].columns) if node.passes_rows else result


def _of_project(node: Project, needed: set[str]) -> Node:
    pairs = list(zip(node.expressions, node.columns, strict=True))
    needed_pairs = [(tree, column) for tree, column in pairs if column.name in needed]
    trees = tuple(tree for tree, _ in needed_pairs)
    columns = tuple(column for _, column in needed_pairs)
    below = _narrowed(node.input, columns_of(*trees))
    plain = [column_of(tree) for tree in trees]
    if plain == below.names() == [column.name for column in columns]:
        return below
    return replace(node, input=below, expressions=trees, columns=columns)


def _of_generate(node: Generate, needed: set[str]) -> Node:
    passed = tuple(name for name in node.kept if name in needed)
    below = _narrowed(node.input, {*passed, *columns_of(node.generator)})
    columns = (*map(node.column, passed), *node.columns[len(node.kept) :])
    return replace(node, input=below, kept=passed, columns=columns)


def _of_replace(node: Replace, needed: set[str]) -> Node:
    """Leave out the expressions that are not needed. Groups are always needed. If no expression is,
    the rows of windows and the groups of aggregates remain."""
    computed = node.input
    assert isinstance(computed, Recompute)  # plans that are refreshed in full have no rules
    fixed = computed.input.columns if computed.rows_stay else map(node.column, node.groups)
    names = [column.name for column in fixed]
    pairs = list(zip(computed.expressions, node.names()[len(names) :], strict=True))
    needed_pairs = [(tree, name) for tree, name in pairs if name in needed] or pairs[: not names]
    trees = tuple(tree for tree, _ in needed_pairs)
    required = {*node.groups, *columns_of(*trees)}
    if computed.rows_stay:
        required |= needed
    touched = computed.input
    if computed.rows_stay and not needed_pairs:
        return _narrowed(touched.input, needed)
    below = _exactly(touched.input, _in_node_order(touched.input, required))
    if not needed_pairs:
        return Aggregate(tuple(map(node.column, names)), below, node.groups, ())
    touched = Touched(below.columns, below, touched.groups)
    stay = touched.names() if computed.rows_stay else list(node.groups)
    columns = tuple(map(node.column, [*stay, *(name for _, name in needed_pairs)]))
    computed = Recompute(columns, touched, trees, computed.rows_stay)
    return replace(node, input=computed, columns=columns)


def _of_join(node: Join, needed: set[str]) -> Node:
    names = node.names()
    right_names = () if node.how == "existence" else names[len(node.left.columns) :]
    names_in_join = dict(zip(node.right.names(), right_names, strict=False))
    of_left = {name for name in node.left.names() if name in needed} | set(node.left_keys)
    of_right = {n for n, name in names_in_join.items() if name in needed} | set(node.right_keys)
    left = _exactly(node.left, _in_node_order(node.left, of_left))
    right = _exactly(node.right, _in_node_order(node.right, of_right))
    columns = [node.column(name) for name in left.names()]
    if node.how == "existence":
        columns.append(node.columns[-1])
    elif node.how not in ("semi", "anti"):
        columns += [node.column(names_in_join[name]) for name in right.names()]
    return replace(node, left=left, right=right, columns=tuple(columns))


def _in_node_order(node: Node, names: set[str]) -> list[str]:
    """The names in the node's order; if there are none, its first column, since a row needs one."""
    return [name for name in node.names() if name in names] or node.names()[:1]


def _exactly(node: Node, names: list[str]) -> Node:
    """The node with exactly these columns, as operators and unions need it."""
    narrowed = _narrowed(node, set(names))
    if narrowed.names() == names:
        return narrowed
    columns = tuple(narrowed.column(name) for name in names)
    return Project(columns, narrowed, tuple(map(Ref, names)))
