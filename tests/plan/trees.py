"""Expressions for tests, short to write."""

from __future__ import annotations

import re

from everview.plan.expressions import Apply, Lit, Ref, Tree

_PART = re.compile(r"\{(\w+)\}|\[(.*?) ([A-Z]+(?:\(\d+,\d+\))?)\]")


def tree(text: str) -> Tree:
    """SQL with columns in braces, and with literals and their types in brackets:
    `({a} > [1 INT])`."""
    found: dict[Tree, int] = {}

    def place(part: re.Match[str]) -> str:
        one: Tree = Ref(part[1]) if part[1] else Lit(part[2], part[3])
        return f"{{{found.setdefault(one, len(found))}}}"

    form = _PART.sub(place, text)
    return next(iter(found)) if form == "{0}" else Apply(form, tuple(found))
