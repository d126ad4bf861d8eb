"""Conditions as boxes: comparisons that all hold, added up with signs.

A condition of comparisons, AND, OR, NOT and IN is true for a row if the signs of the boxes that
have the row add up to 1; for all other rows they add up to 0. So `a OR b` is box a, and box b, less
box `a AND b`. What is unknown because of NULL is not true, and in no box.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import combinations
from typing import Protocol, Self, TypeVar

from everview.plan.expressions import Apply, Tree, operation, places

MOST_PARTS = 4  # that OR connects; so many have up to 15 boxes
COMPARISONS = ("=", "<", "<=", ">", ">=")
FORMS = {f"{{0}} {sign} {{1}}": sign for sign in COMPARISONS}
_OPPOSITES = {"=": ("<", ">"), "<": (">=",), "<=": (">",), ">": ("<=",), ">=": ("<",)}


class Comparison(Protocol):
    """A comparison that a row satisfies or not. Equal ones are the same in sets."""

    def excludes(self, other: Self) -> bool:
        """Whether no row satisfies both."""


C = TypeVar("C", bound=Comparison)
Part = frozenset[C]


class NoBoxes(Exception):
    """A condition has parts that can't be boxes, or too many."""


def boxes(
    conditions: Sequence[Tree], compare: Callable[[Tree], C | None]
) -> list[tuple[int, list[C]]] | None:
    """The boxes of rows for which all conditions are true, with their signs; None if there are
    none or too many. `compare` says what a part without AND, OR, NOT and IN compares."""

    def compared(tree: Tree) -> C:
        comparison = compare(tree)
        if comparison is None:
            raise NoBoxes
        return comparison

    def parts_of(tree: Tree, negated: bool) -> list[Part[C]]:
        form, below = operation(tree), tree.parts()
        if form == "NOT {0}":
            return parts_of(below[0], not negated)
        if len(below) > 1 and form in (places(len(below), w) for w in (" AND ", " OR ")):
            of_each = [parts_of(part, negated) for part in below]
            return any_of(of_each) if (" OR " in form) != negated else all_of(of_each)
        if len(below) > 1 and form == f"{{0}} IN ({places(len(below) - 1, first=1)})":
            equal = [Apply("({0} = {1})", (below[0], item)) for item in below[1:]]
            of_each = [parts_of(part, negated) for part in equal]
            return all_of(of_each) if negated else any_of(of_each)
        trees: list[Tree] = [Apply("(NOT {0})", (tree,)) if negated else tree]
        if negated and (sign := FORMS.get(form)):
            trees = [Apply(f"({{0}} {other} {{1}})", below) for other in _OPPOSITES[sign]]
        return [frozenset({compared(part)}) for part in trees]

    try:
        parts = all_of([parts_of(condition, False) for condition in conditions])
    except NoBoxes:
        return None
    return list(_signed(parts))


def any_of(of_each: Iterable[Sequence[Part[C]]]) -> list[Part[C]]:
    return _checked(part for parts in of_each for part in parts)


def all_of(of_each: Iterable[Sequence[Part[C]]]) -> list[Part[C]]:
    def both(one: list[Part[C]], other: Sequence[Part[C]]) -> list[Part[C]]:
        return _checked(first | second for first in one for second in other)

    everything: list[Part[C]] = [frozenset()]
    return reduce(both, of_each, everything)


def _checked(parts: Iterable[Part[C]]) -> list[Part[C]]:
    """The distinct parts, without those that no row satisfies or that another one contains."""
    distinct = list(dict.fromkeys(part for part in parts if not _is_empty(part)))
    needed = [part for part in distinct if not any(other < part for other in distinct)]
    if len(needed) > MOST_PARTS:
        raise NoBoxes
    return needed


def _is_empty(part: Part[C]) -> bool:
    return any(one.excludes(other) for one, other in combinations(part, 2))


def _signed(parts: Sequence[Part[C]]) -> Iterator[tuple[int, list[C]]]:
    """The boxes of all parts, less those of two of them, and so on: equal boxes are one."""
    signs: dict[Part[C], int] = {}
    for size in range(1, len(parts) + 1):
        for chosen in combinations(parts, size):
            box = frozenset[C]().union(*chosen)
            if not _is_empty(box):
                signs[box] = signs.get(box, 0) + (1 if size % 2 else -1)
    for box, sign in signs.items():
        if sign:
            yield sign, sorted(box, key=str)
