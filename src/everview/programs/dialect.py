"""Expressions as SQL for the engine of a session."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from everview.plan.expressions import Tree, on_sail, on_spark

_SAIL_SESSIONS: WeakSet[Any] = WeakSet()


def mark_as_sail(session: Any) -> None:
    """Note that the engine behind a session is Sail."""
    _SAIL_SESSIONS.add(session)


def sql_for(session: Any, tree: Tree) -> str:
    """SQL for the engine of a session. Raises `UnsupportedSql` if it has none."""
    return on_sail(tree) if session in _SAIL_SESSIONS else on_spark(tree)
