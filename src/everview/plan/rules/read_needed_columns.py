"""Read from a table's log only the columns that some node above uses."""

from __future__ import annotations

from dataclasses import replace

from everview.plan.nodes import Aggregate, Filter, Node, Project, Source


def read_needed_columns(plan: Node) -> Node:
    """A column is used if its name, which is unique in the plan, occurs in any text of the plan."""
    return _narrowed(plan, " ".join(text for node in plan.walk() for text in _texts(node)))


def _texts(node: Node) -> tuple[str, ...]:
    if isinstance(node, Filter):
        return (node.condition,)
    return node.expressions if isinstance(node, Project) else ()


def _narrowed(node: Node, used: str) -> Node:
    if isinstance(node, Source):
        kept = [i for i, column in enumerate(node.columns) if column.name in used] or [0]
        return replace(
            node,
            columns=tuple(node.columns[i] for i in kept),
            read=tuple(node.read[i] for i in kept),
        )
    if isinstance(node, Filter):
        below = _narrowed(node.input, used)
        return replace(node, input=below, columns=below.columns)
    if isinstance(node, Project | Aggregate):
        return replace(node, input=_narrowed(node.input, used))
    return node
