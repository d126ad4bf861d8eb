"""Which operators are run ahead of others, in jobs of their own.

A plan is a graph, but an engine runs a tree: what two nodes read it runs twice, and what that reads
twice, four times. An operator that is run ahead is run once, and who reads it reads what it gave.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

from everview.plan.nodes import Constant, Node

# An epoch is for few rows: a job more takes as long as so many Python functions in one.
WORTH_A_JOB = 5
MOST_TOGETHER = 300  # Python functions in one job: an engine has all of them running at once
_MOST_FOR_ONE = (math.inf, *(MOST_TOGETHER >> halved for halved in range(1, 8)))


T = TypeVar("T")


@dataclass(frozen=True)
class Jobs:
    """Operators to run ahead, job after job; then those of the plans that are together in a job,
    by their places. `largest` is how many Python functions there are in one job at most."""

    ahead: list[list[Node]]
    last: list[list[int]]
    largest: int


def jobs(
    plans: Iterable[Node],
    worth: int = WORTH_A_JOB,
    changed: Collection[str] | None = None,
    given: Collection[str] = (),
) -> Jobs:
    """In which jobs to run plans. Only tables that `changed` give rows; None means that all do, and
    constants. `given` are nodes that are read from elsewhere, by identity."""
    roots = list(plans)
    for most in _MOST_FOR_ONE:
        found = _Found(roots, worth, most, changed, given)
        together: dict[int, list[tuple[int, Node]]] = {}
        for node in found.ahead:
            together.setdefault(found.levels[node], []).append((found.sizes[node], node))
        ahead = [part for level in sorted(together) for part in _parted(together[level])]
        last = _parted([(found.size(plan) + 1, at) for at, plan in enumerate(roots)])
        largest = max([*map(_size_of, ahead), *map(_size_of, last)], default=0)
        if largest <= MOST_TOGETHER:
            break
    return Jobs(list(map(_of_parts, ahead)), list(map(_of_parts, last)), largest)


def size_alone(plan: Node) -> int:
    """How many Python functions it takes to run a plan in one job."""
    return _Found([plan], math.inf, math.inf, None, ()).sizes[plan]


class _Found:
    """What is known of nodes whose inputs are known."""

    def __init__(
        self,
        roots: list[Node],
        worth: float,
        most: float,
        changed: Collection[str] | None,
        given: Collection[str],
    ) -> None:
        self._worth, self._most, self._changed, self._given = worth, most, changed, given
        self.nodes: list[Node] = []  # inputs first
        self._reads: dict[Node, int] = {}  # how many operators and views read it
        self.sizes: dict[Node, int] = {}  # Python functions that it takes to run it
        self.levels: dict[Node, int] = {}  # how many jobs come before
        self.ahead: dict[Node, None] = {}
        self._read(roots)
        for node in self.nodes:
            self._add(node)

    def _read(self, roots: list[Node]) -> None:
        for root in roots:
            fresh = [node for node in root.walk(self._is_given) if node not in self._reads]
            self.nodes += fresh
            self._reads |= dict.fromkeys(fresh, 0)
        for root in roots:
            self._reads[root] += 1
        for node in reversed(self.nodes):
            times = 1 if node.is_operator else self._reads[node]
            for one in self._inputs(node):
                self._reads[one] += times

    def _is_given(self, node: Node) -> bool:
        return node.identity in self._given

    def _inputs(self, node: Node) -> tuple[Node, ...]:
        return () if self._is_given(node) else node.inputs()

    def _add(self, node: Node) -> None:
        below = [one for one in self._inputs(node) if self.sizes[one]]
        after = [self.levels[one] + (one in self.ahead) for one in below]
        self.levels[node] = max(after, default=0)
        self.sizes[node] = sum(map(self.size, below))
        if self._is_read(node):
            self.sizes[node] = 1
        elif node.is_operator and below:
            self.sizes[node] += 1
            spared = (self._reads[node] - 1) * (self.sizes[node] - 1)
            if spared >= self._worth or self.sizes[node] >= self._most:
                self.ahead[node] = None

    def _is_read(self, node: Node) -> bool:
        """Whether rows of it are read from somewhere."""
        if self._is_given(node):
            return True
        tables = node.own_tables()
        if self._changed is None:
            return bool(tables) or isinstance(node, Constant)
        return not tables.isdisjoint(self._changed)

    def size(self, node: Node) -> int:
        """Of a node for those who read it."""
        return 1 if node in self.ahead else self.sizes[node]


def _parted(sized: list[tuple[int, T]]) -> list[list[tuple[int, T]]]:
    """What is together in one job, in parts that are not too large."""
    parts: list[list[tuple[int, T]]] = [[]]
    room = MOST_TOGETHER
    for size, one in sized:
        if size > room and parts[-1]:
            parts.append([])
            room = MOST_TOGETHER
        parts[-1].append((size, one))
        room -= size
    return parts if parts[-1] else []


def _size_of(part: list[tuple[int, T]]) -> int:
    return sum(size for size, _ in part)


def _of_parts(part: list[tuple[int, T]]) -> list[T]:
    return [one for _, one in part]
