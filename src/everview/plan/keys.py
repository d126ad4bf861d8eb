"""Which columns tell the rows of a view, or of any node, apart: as far as groups, tables' keys and
joins by them say."""

from __future__ import annotations

from collections.abc import Callable

from everview.plan.expressions import column_of
from everview.plan.nodes import (
    Aggregate,
    Filter,
    Join,
    Node,
    Project,
    Recompute,
    Replace,
    Source,
    Threshold,
    TopK,
    Touched,
)

Key = tuple[str, ...] | None
KeyOfTable = Callable[[str], Key]


def view_key(plan: Node, key_of_table: KeyOfTable) -> tuple[str, ...]:
    """Names of view columns that are unique together; all of them if none are known to be."""
    found = unique_key(plan, key_of_table)
    return tuple(plan.names()) if found is None else found


def unique_key(node: Node, key_of_table: KeyOfTable) -> Key:
    """Columns of a node that are unique together, if any are known to be; NULL is one value."""
    found: dict[str, Key] = {}
    for one in node.walk():
        found[one.identity] = _unique_key(one, key_of_table, lambda below: found[below.identity])
    return found[node.identity]


def _unique_key(node: Node, key_of_table: KeyOfTable, key_of: Callable[[Node], Key]) -> Key:
    if isinstance(node, Aggregate):
        return node.groups
    if isinstance(node, Recompute) and not node.rows_stay:
        return node.input.groups
    if isinstance(node, Filter | Threshold | TopK | Touched | Recompute | Replace):
        return key_of(node.input)
    if isinstance(node, Source):
        named = {read: column.name for read, column in zip(node.read, node.columns, strict=True)}
        return _renamed(key_of_table(node.table), named)
    if isinstance(node, Project):
        made = zip(map(column_of, node.expressions), node.names(), strict=True)
        shown = {old: name for old, name in reversed(list(made)) if old is not None}
        return _renamed(key_of(node.input), shown)
    return _of_join(node, key_of(node.left), key_of(node.right)) if isinstance(node, Join) else None


def _of_join(node: Join, left: Key, right: Key) -> Key:
    if node.how in ("semi", "anti", "existence", "single"):
        return left
    if node.how != "full" and right is not None and set(right) <= set(node.right_keys):
        return left
    if node.how == "full" and not (_present(node.left, left) and _present(node.right, right)):
        return None
    shown = dict(zip(node.right.names(), node.names()[len(node.left.columns) :], strict=True))
    renamed = _renamed(right, shown)
    if node.how == "inner" and left is not None and set(left) <= set(node.left_keys):
        return renamed
    return None if left is None or renamed is None else (*left, *renamed)


def _present(node: Node, key: Key) -> bool:
    """Whether a key has columns, none of which may be NULL: a full join has NULLs for rows without
    a match."""
    return bool(key) and not any(node.column(name).nullable for name in key or ())


def _renamed(key: Key, shown: dict[str, str]) -> Key:
    if key is None or not all(name in shown for name in key):
        return None
    return tuple(shown[name] for name in key)
