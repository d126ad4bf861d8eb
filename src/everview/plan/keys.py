"""Which columns of a view, or of any node, are unique together: known from groups, tables' keys and
joins by them."""

from __future__ import annotations

from everview.plan.nodes import Node
from everview.plan.nodes.base import Key, KeyOfTable


def view_key(plan: Node, key_of_table: KeyOfTable) -> tuple[str, ...]:
    """Names of view columns that are unique together; all columns if none are known to be."""
    key = unique_key(plan, key_of_table)
    return tuple(plan.names()) if key is None else key


def unique_key(node: Node, key_of_table: KeyOfTable) -> Key:
    """Columns of a node that are unique together, if any are known to be; NULL is one value."""
    known: dict[str, Key] = {}
    for current in node.walk():
        keys = [known[below.identity] for below in current.inputs()]
        known[current.identity] = current.unique_key(keys, key_of_table)
    return known[node.identity]
