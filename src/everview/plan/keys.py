"""Which columns tell the rows of a view, or of any node, apart: as far as groups, tables' keys and
joins by them say."""

from __future__ import annotations

from everview.plan.nodes import Node
from everview.plan.nodes.base import Key, KeyOfTable


def view_key(plan: Node, key_of_table: KeyOfTable) -> tuple[str, ...]:
    """Names of view columns that are unique together; all of them if none are known to be."""
    found = unique_key(plan, key_of_table)
    return tuple(plan.names()) if found is None else found


def unique_key(node: Node, key_of_table: KeyOfTable) -> Key:
    """Columns of a node that are unique together, if any are known to be; NULL is one value."""
    found: dict[str, Key] = {}
    for one in node.walk():
        keys = [found[below.identity] for below in one.inputs()]
        found[one.identity] = one.unique_key(keys, key_of_table)
    return found[node.identity]
