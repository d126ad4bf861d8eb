"""A plan as a person reads it: a tree, the view on top, with what runs where."""

from __future__ import annotations

from everview.plan.nodes import Aggregate, Node, Source


def explain(plan: Node) -> str:
    lines = ["view: rows kept by key, as (epoch, new, previous)"]
    lines += _tree(plan, "")
    return "\n".join(lines)


def _tree(node: Node, indent: str) -> list[str]:
    lines = [f"{indent}└─ {node.label()}   [{_where(node)}]"]
    for one in node.inputs():
        lines += _tree(one, indent + "   ")
    return lines


def _where(node: Node) -> str:
    if isinstance(node, Source):
        return "change log"
    if isinstance(node, Aggregate):
        keys = ", ".join(node.groups) or "one shard"
        return f"operator with state, by {keys}; incremental"
    return "engine; stateless"
