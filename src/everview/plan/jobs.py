"""Which operators are run ahead of others, in jobs of their own.

A plan is a graph, but an engine runs a tree: it runs a node once for each node that reads it, and
the inputs of that node as often again. An operator that runs ahead runs once, and the nodes that
read it read its stored output.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

from everview.plan.nodes import Constant, Node

# In an epoch of few rows, another job takes as long as this many more Python functions in one job.
WORTH_A_JOB = 5
MOST_TOGETHER = 300  # Python functions in one job: an engine has all of them running at once
_MOST_FOR_ONE = (math.inf, *(MOST_TOGETHER >> halved for halved in range(1, 8)))


T = TypeVar("T")


@dataclass(frozen=True)
class Jobs:
    """Operators to run ahead, job after job; then the plans that run together in each last job, by
    their places. `largest` is the number of Python functions of the largest job."""

    ahead: list[list[Node]]
    last: list[list[int]]
    largest: int


def jobs(
    plans: Iterable[Node],
    worth: int = WORTH_A_JOB,
    changed: Collection[str] | None = None,
    stored: Collection[str] = (),
) -> Jobs:
    """In which jobs to run plans. Only the tables in `changed` have rows; None means that all
    tables and constants have. `stored` are identities of nodes whose rows are stored already."""
    roots = list(plans)
    for most in _MOST_FOR_ONE:
        graph = _Graph(roots, worth, most, changed, stored)
        together: dict[int, list[tuple[int, Node]]] = {}
        for node in graph.ahead:
            together.setdefault(graph.levels[node], []).append((graph.sizes[node], node))
        ahead = [part for level in sorted(together) for part in _parted(together[level])]
        last = _parted([(graph.size(plan) + 1, at) for at, plan in enumerate(roots)])
        largest = max([*map(_size_of, ahead), *map(_size_of, last)], default=0)
        if largest <= MOST_TOGETHER:
            break
    return Jobs(list(map(_of_parts, ahead)), list(map(_of_parts, last)), largest)


def size_in_one_job(plan: Node) -> int:
    """How many Python functions it takes to run a plan in one job."""
    return _Graph([plan], math.inf, math.inf, None, ()).sizes[plan]


class _Graph:
    """The nodes of plans, their sizes and those to run ahead."""

    def __init__(
        self,
        roots: list[Node],
        worth: float,
        most: float,
        changed: Collection[str] | None,
        stored: Collection[str],
    ) -> None:
        self._worth, self._most, self._changed, self._stored = worth, most, changed, stored
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
            fresh = [node for node in root.walk(self._is_stored) if node not in self._reads]
            self.nodes += fresh
            self._reads |= dict.fromkeys(fresh, 0)
        for root in roots:
            self._reads[root] += 1
        for node in reversed(self.nodes):
            times = 1 if node.is_operator else self._reads[node]
            for below_node in self._inputs(node):
                self._reads[below_node] += times

    def _is_stored(self, node: Node) -> bool:
        return node.identity in self._stored

    def _inputs(self, node: Node) -> tuple[Node, ...]:
        return () if self._is_stored(node) else node.inputs()

    def _add(self, node: Node) -> None:
        below = [below_node for below_node in self._inputs(node) if self.sizes[below_node]]
        after = [self.levels[below_node] + (below_node in self.ahead) for below_node in below]
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
        if self._is_stored(node):
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
    for size, item in sized:
        if size > room and parts[-1]:
            parts.append([])
            room = MOST_TOGETHER
        parts[-1].append((size, item))
        room -= size
    return parts if parts[-1] else []


def _size_of(part: list[tuple[int, T]]) -> int:
    return sum(size for size, _ in part)


def _of_parts(part: list[tuple[int, T]]) -> list[T]:
    return [item for _, item in part]
