"""Expressions as the engine of a session is asked them."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from everview.plan.expressions import Tree, on_sail, on_spark

_OF_SAIL: WeakSet[Any] = WeakSet()


def is_of_sail(session: Any) -> None:
    """Note that the engine behind a session is Sail."""
    _OF_SAIL.add(session)


def asked(session: Any, tree: Tree) -> str:
    """SQL for the engine of a session. Raises `UnsupportedSql` if it has none."""
    return on_sail(tree) if session in _OF_SAIL else on_spark(tree)
