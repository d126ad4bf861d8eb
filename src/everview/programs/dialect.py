"""Texts of expressions as the engine of a session is asked them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from weakref import WeakSet

from everview.plan.dialects import checked_on_sail, on_spark

_OF_SAIL: WeakSet[Any] = WeakSet()
_for_sail = lru_cache(4096)(checked_on_sail)


def is_of_sail(session: Any) -> None:
    """Note that the engine behind a session is Sail."""
    _OF_SAIL.add(session)


def asked(session: Any, text: str) -> str:
    """The text for the engine of a session. Raises `UnsupportedSql` if it has none."""
    return _for_sail(text) if session in _OF_SAIL else on_spark(text)
