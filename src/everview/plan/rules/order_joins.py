"""Choose the order of inner joins by how tables change, so that rows which change often pass few
joins, and the state between joins is small.

Catalyst's order stays unless another one is clearly cheaper, in seconds for the changes and bytes
of state together. Joins of two relations are measured; joins of more are computed from these. Joins
whose state another view has stored already cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations

from everview.plan.expressions import Ref, column_of
from everview.plan.facts import Costs, Facts
from everview.plan.nodes import Join, Node, Project
from everview.plan.rules.keep_needed_columns import keep_needed_columns
from everview.schema import Column

BETTER = 1.3  # times cheaper another order must be
MOST = 8  # relations in a tree of joins; more have too many orders to try
_ITEM = 24  # bytes that a row of state takes beside its columns
Place = tuple[int, str]  # a relation, and a column of it
Tree = int | tuple["Tree", "Tree"]


def order_joins(plan: Node, facts: Facts) -> Node:
    if facts.costs is None:
        return plan
    ordered = _ordered(plan, facts, facts.costs)
    return plan if ordered == plan else keep_needed_columns(ordered, facts)


def _ordered(node: Node, facts: Facts, costs: Costs) -> Node:
    if not _is_tree(node):
        return node.with_inputs(lambda below: _ordered(below, facts, costs))
    joins = _Joins.of(node)
    relations = [_ordered(relation, facts, costs) for relation in joins.relations]
    known = all(
        table in facts.tables for relation in joins.relations for table in relation.tables()
    )
    if known and 2 < len(relations) <= MOST:
        best = _Search(joins, costs).best()
        if best is not None:
            return joins.rebuilt(best, relations)
    replacements = dict(zip(joins.relations, relations, strict=True))
    return _replaced(node, replacements)


def _is_tree(node: Node) -> bool:
    """Whether a node is an inner join by keys, perhaps with its columns chosen and renamed."""
    if isinstance(node, Project):
        plain = all(column_of(tree) in node.input.names() for tree in node.expressions)
        return plain and _is_tree(node.input)
    return (
        isinstance(node, Join)
        and node.how == "inner"
        and bool(node.left_keys)
        and not node.replicated
    )


@dataclass(frozen=True)
class _Edge:
    """Two columns that are equal; with `safe` also if both are NULL."""

    first: Place
    second: Place
    safe: bool

    def joins(self, left: frozenset[int], right: frozenset[int]) -> bool:
        ends = self.first[0], self.second[0]
        return (ends[0] in left and ends[1] in right) or (ends[1] in left and ends[0] in right)


@dataclass(frozen=True)
class _Joins:
    """A tree of inner joins: its relations, the columns that are equal, and the relation and column
    from which each column of the tree comes."""

    top: Node
    relations: list[Node]
    edges: list[_Edge]
    columns: Mapping[str, Place]
    tree: Tree

    @classmethod
    def of(cls, top: Node) -> _Joins:
        relations: list[Node] = []
        edges: list[_Edge] = []

        def flat(node: Node) -> tuple[dict[str, Place], Tree]:
            if not _is_tree(node):
                relations.append(node)
                number = len(relations) - 1
                return {name: (number, name) for name in node.names()}, number
            if isinstance(node, Project):
                below, tree = flat(node.input)
                pairs = zip(node.names(), map(column_of, node.expressions), strict=True)
                return {name: below[old] for name, old in pairs if old is not None}, tree
            assert isinstance(node, Join)
            (left, left_tree), (right, right_tree) = flat(node.left), flat(node.right)
            keys = zip(node.left_keys, node.right_keys, node.null_safe, strict=True)
            edges.extend(
                _Edge(left[left_key], right[right_key], safe) for left_key, right_key, safe in keys
            )
            right_names = node.names()[len(node.left.columns) :]
            own_names = dict(zip(right_names, node.right.names(), strict=True))
            columns = {**left, **{name: right[own] for name, own in own_names.items()}}
            return columns, (left_tree, right_tree)

        columns, tree = flat(top)
        return cls(top, relations, edges, columns, tree)

    def rebuilt(self, tree: Tree, relations: list[Node]) -> Node:
        """The same rows by joins in another order."""
        joined, places = self._built(tree, relations)
        named = {place: name for name, place in places.items()}
        trees = tuple(Ref(named[self.columns[name]]) for name in self.top.names())
        return Project(self.top.columns, joined, trees)

    def _built(self, tree: Tree, relations: list[Node]) -> tuple[Node, dict[str, Place]]:
        if isinstance(tree, int):
            node = relations[tree]
            return node, {name: (tree, name) for name in node.names()}
        (left, left_places), (right, right_places) = (self._built(part, relations) for part in tree)
        renamed = _free_names(right.columns, set(left_places))
        places = {**left_places, **{new: right_places[old.name] for old, new in renamed}}
        columns = (*left.columns, *(replace(old, name=new) for old, new in renamed))
        names = [
            {place: name for name, place in side.items()} for side in (left_places, right_places)
        ]
        keys = list(self._keys(*names))
        return (
            Join(
                columns,
                left,
                right,
                "inner",
                tuple(left_key for left_key, _, _ in keys),
                tuple(right_key for _, right_key, _ in keys),
                tuple(safe for _, _, safe in keys),
                False,
            ),
            places,
        )

    def _keys(
        self, left: Mapping[Place, str], right: Mapping[Place, str]
    ) -> Iterator[tuple[str, str, bool]]:
        for edge in self.edges:
            for left_place, right_place in ((edge.first, edge.second), (edge.second, edge.first)):
                if left_place in left and right_place in right:
                    yield left[left_place], right[right_place], edge.safe


class _Search:
    """The cheapest order, by dynamic programming over sets of relations that are connected."""

    def __init__(self, joins: _Joins, costs: Costs) -> None:
        self._joins = joins
        self._costs = costs
        self._all = frozenset(range(len(joins.relations)))
        self._estimates = [costs.estimates.of(relation) for relation in joins.relations]
        self.rows = cache(self._rows)
        self.best_of = cache(self._best_of)

    def best(self) -> Tree | None:
        """A clearly cheaper order than Catalyst's; None if there is none."""
        best = self.best_of(self._all)
        if best is None or self._score(self._unshared_cost) <= BETTER * best[0]:
            return None
        return best[1]

    @cached_property
    def _units(self) -> tuple[float, float]:
        """Seconds and bytes of Catalyst's order: the units in which a score adds up both."""
        seconds, size = self._total(self._joins.tree, shared=False)
        return max(seconds, 1e-12), max(size, 1.0)

    @cached_property
    def _unshared_cost(self) -> tuple[float, float]:
        """The cost of Catalyst's order without joins whose state other views have stored."""
        return self._total(self._joins.tree, shared=True)

    def _score(self, cost: tuple[float, float]) -> float:
        return cost[0] / self._units[0] + cost[1] / self._units[1]

    def _best_of(self, chosen: frozenset[int]) -> tuple[float, Tree] | None:
        if len(chosen) == 1:
            return 0.0, next(iter(chosen))
        candidates: list[tuple[float, int, Tree]] = []
        for left, right in _halves(chosen):
            if not any(edge.joins(left, right) for edge in self._joins.edges):
                continue
            larger, smaller = self.best_of(left), self.best_of(right)
            if larger is None or smaller is None:
                continue
            if self.rows(left) < self.rows(right):
                larger, smaller = smaller, larger
            score = larger[0] + smaller[0] + self._score(self._join(left, right))
            candidates.append((score, len(candidates), (larger[1], smaller[1])))
        return None if not candidates else (min(candidates)[0], min(candidates)[2])

    def _total(self, tree: Tree, shared: bool) -> tuple[float, float]:
        """Seconds and bytes of all joins of a tree."""
        if isinstance(tree, int):
            return 0.0, 0.0
        parts = [self._total(part, shared) for part in tree]
        left, right = map(_members, tree)
        if not (shared and self._is_stored(left | right)):
            parts.append(self._join(left, right))
        return sum(seconds for seconds, _ in parts), sum(size for _, size in parts)

    def _is_stored(self, members: frozenset[int]) -> bool:
        """Whether another view has stored the state of Catalyst's join of these relations."""
        relations = {self._joins.relations[member] for member in members}
        return any(
            node.identity in self._costs.stored and set(_Joins.of(node).relations) == relations
            for node in self._joins.top.walk()
            if isinstance(node, Join) and _is_tree(node)
        )

    def _join(self, left: frozenset[int], right: frozenset[int]) -> tuple[float, float]:
        """Seconds for the mix of changes, and bytes of state, of the join of two sets."""
        constants, both = self._costs.constants, left | right
        seconds = 0.0
        for side in (left, right):
            for relation in side:
                rows = self._changes[relation] * self.rows(side)
                pairs = self._changes[relation] * self.rows(both)
                seconds += rows * (constants.send + constants.row + constants.write)
                seconds += max(rows, pairs) * constants.read
        return seconds, sum(self.rows(side) * self._width(side) for side in (left, right))

    @cached_property
    def _changes(self) -> list[float]:
        """For each relation, rows of a delta for one of its rows."""
        costs = self._costs
        changes = []
        for relation, estimate in zip(self._joins.relations, self._estimates, strict=True):
            share = sum(
                costs.shares[table]
                * costs.rows_of_change[table]
                / max(costs.estimates.table_rows(table), 1)
                for table in sorted(relation.tables())
            )
            changes.append(share if estimate.rows else 0.0)
        return changes

    def _rows(self, chosen: frozenset[int]) -> float:
        rows = 1.0
        for first in sorted(chosen):
            rows *= max(self._estimates[first].rows, 1e-6)
        for first, second in combinations(sorted(chosen), 2):
            rows *= self._selectivity(first, second)
        return rows

    def _selectivity(self, first: int, second: int) -> float:
        """The share of pairs of two relations for which the columns of their edges are equal."""
        return self._selectivities.get((first, second), 1.0)

    @cached_property
    def _selectivities(self) -> dict[tuple[int, int], float]:
        selectivities = {}
        for first, second in combinations(sorted(self._all), 2):
            if any(e.joins(frozenset({first}), frozenset({second})) for e in self._joins.edges):
                pair, _ = self._joins._built((first, second), self._joins.relations)
                rows = self._estimates[first].rows * self._estimates[second].rows
                selectivities[first, second] = min(
                    1.0, self._costs.estimates.of(pair).rows / max(rows, 1e-6)
                )
        return selectivities

    def _width(self, chosen: frozenset[int]) -> float:
        """Bytes of a row of state: the columns of the output, and those of joins further up."""
        places = {place for place in self._joins.columns.values() if place[0] in chosen}
        for edge in self._joins.edges:
            ends = [place for place in (edge.first, edge.second) if place[0] in chosen]
            places |= set(ends) if len(ends) == 1 else set()
        return _ITEM + sum(
            self._estimates[relation].width([name]) for relation, name in sorted(places)
        )


def _halves(chosen: frozenset[int]) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
    """All ways to split a set in two parts, each once."""
    first, *rest = sorted(chosen)
    for size in range(len(rest)):
        for others in combinations(rest, size):
            left = frozenset({first, *others})
            yield left, chosen - left


def _members(tree: Tree) -> frozenset[int]:
    return frozenset({tree}) if isinstance(tree, int) else _members(tree[0]) | _members(tree[1])


def _free_names(columns: tuple[Column, ...], taken: set[str]) -> list[tuple[Column, str]]:
    """Columns with names that are not taken yet."""
    renamed = []
    for column in columns:
        name, number = column.name, 1
        while name in taken:
            number += 1
            name = f"{column.name}_{number}"
        taken.add(name)
        renamed.append((column, name))
    return renamed


def _replaced(node: Node, replacements: Mapping[Node, Node]) -> Node:
    if node in replacements:
        return replacements[node]
    return node.with_inputs(lambda input_node: _replaced(input_node, replacements))
