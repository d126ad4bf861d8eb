"""Which columns tell a view's rows apart: its groups, or the key of its table, if it shows them."""

from __future__ import annotations

from collections.abc import Callable

from everview.plan.nodes import Aggregate, Filter, Node, Project, Source


def view_key(plan: Node, key_of_table: Callable[[str], tuple[str, ...]]) -> tuple[str, ...]:
    """Names of view columns that are unique together; all of them if none are known to be."""
    names = {column.name: column.name for column in plan.columns}
    node = plan
    while isinstance(node, Project | Filter):
        if isinstance(node, Project):
            made = {
                column.name: text.strip("`")
                for column, text in zip(node.columns, node.expressions, strict=True)
            }
            below = {column.name for column in node.input.columns}
            names = {shown: made[name] for shown, name in names.items() if made[name] in below}
        node = node.input
    unique = _unique(node, key_of_table)
    shown_by = {name: shown for shown, name in reversed(names.items())}
    if unique is not None and all(name in shown_by for name in unique):
        return tuple(shown_by[name] for name in unique)
    return tuple(column.name for column in plan.columns)


def _unique(node: Node, key_of_table: Callable[[str], tuple[str, ...]]) -> tuple[str, ...] | None:
    """Columns of a node that are unique together, if any are known to be."""
    if isinstance(node, Aggregate):
        return node.groups
    if isinstance(node, Source):
        named = {read: column.name for read, column in zip(node.read, node.columns, strict=True)}
        key = key_of_table(node.table)
        return tuple(named[name] for name in key) if set(key) <= set(named) else None
    return None
