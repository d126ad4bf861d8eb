"""Rows of which some columns are rounded, and so compared with a tolerance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

Row = tuple[Any, ...]


def by_exact(rows: Iterable[Row], rounded: Collection[int]) -> defaultdict[Row, list[Row]]:
    """The rounded values of rows by their exact ones, in an order that has NULLs first."""
    found: defaultdict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        exact = tuple(value for at, value in enumerate(row) if at not in rounded)
        found[exact].append(tuple(row[at] for at in rounded))
    for values in found.values():
        values.sort(key=lambda row: [(value is not None, value or 0) for value in row])
    return found
