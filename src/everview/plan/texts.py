"""What the texts of expressions say, without an engine."""

from __future__ import annotations

import re


def words(text: str) -> set[str]:
    """Every word of an expression: the columns it names are among them."""
    return set(re.findall(r"\w+", text))
