"""Which groups may be among the first of which members, for many members at once.

A cell of a group counts for a member if it is in one of the member's boxes. Members come in an
order in which those with boxes close to each other are neighbours; so many neighbours together have
a box around all of theirs. What the cells of a group may add up to in that box is compared first
with what a group needs at least to be among the first of any of them. What is left is added up for
each member alone. So a group costs little for the members of which it is far from the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from everview.codec.buffers import Ints
from everview.operators.boxes import Boxes

TOGETHER = 64  # members
MOST = 1 << 21  # pairs of cells and members, or of cells and neighbours, that are looked at at once
LEAST = np.iinfo(np.int64).min  # what a group has whose score is not known, or NULL
_BOOTSTRAP = 256  # groups that are looked at first, and twice as many each time after


@dataclass(frozen=True)
class Scored:
    """The cells of groups, those of a group one after the other: `begins[g]` is the first of group
    g, and the last item is their number. `places` has for each sign the coordinates of cells.

    A group has the score `fixed`, or the sum of the `parts` of its cells in a member's boxes, LEAST
    if their `counts` add up to 0. `rows` says how many rows each cell has.
    """

    begins: Ints
    places: Sequence[Sequence[Ints]]
    rows: Ints
    fixed: Ints | None
    parts: Ints | None
    counts: Ints | None

    def __len__(self) -> int:
        return len(self.begins) - 1


@dataclass(frozen=True)
class Pairs:
    """Groups and members, by number, with the scores of the groups for the members."""

    groups: Ints
    members: Ints
    scores: Ints

    def take(self, chosen: np.ndarray) -> Pairs:
        return Pairs(self.groups[chosen], self.members[chosen], self.scores[chosen])


def contenders(
    cells: Scored, boxes: Sequence[tuple[int, Boxes]], floors: Ints, most: int | None
) -> Pairs:
    """Pairs of a group that has rows for a member, and a score of at least the member's floor.
    With `most`, pairs that so many others of the member exceed may be left out."""
    neighbours = _Neighbours(boxes, floors)
    found = Pairs(*(np.zeros(0, np.int64) for _ in range(3)))
    for groups in _portions(cells, most is not None):
        pairs = list(neighbours.pairs(cells, groups))
        if not pairs:
            continue
        found = _joined([found, *pairs])
        if most is not None and len(found.groups) > most:
            found, floors = _best(found, neighbours.floors, most)
            neighbours.raise_floors(floors)
    return found


def _portions(cells: Scored, best_first: bool) -> Iterator[Ints]:
    """All groups, a few first; with `best_first`, those with the highest sums of parts, so that
    floors rise early."""
    order = np.arange(len(cells))
    if best_first and len(cells) > _BOOTSTRAP:
        if cells.fixed is not None:
            order = np.argsort(-cells.fixed.astype(np.float64), kind="stable")
        else:
            assert cells.parts is not None
            highest = np.add.reduceat(np.maximum(cells.parts, 0), cells.begins[:-1])
            order = np.argsort(-highest, kind="stable")
    start, size = 0, _BOOTSTRAP if best_first else len(order)
    while start < len(order):
        yield order[start : start + size]
        start, size = start + size, 4 * size


def _joined(parts: Sequence[Pairs]) -> Pairs:
    columns = zip(*((part.groups, part.members, part.scores) for part in parts), strict=True)
    return Pairs(*map(np.concatenate, columns))


def _best(pairs: Pairs, floors: Ints, most: int) -> tuple[Pairs, Ints]:
    """Of each member the pairs with the highest scores, ties included, and its new floor."""
    order = np.lexsort((~pairs.scores, pairs.members))  # the highest first
    members, scores = pairs.members[order], pairs.scores[order]
    begins = np.searchsorted(members, np.arange(len(floors)))
    last = begins + most - 1
    has = last < np.searchsorted(members, np.arange(len(floors)), "right")
    floors = floors.copy()
    floors[has] = np.maximum(floors[has], scores[last[has]])
    return pairs.take(pairs.scores >= floors[pairs.members]), floors


class _Neighbours:
    """Members, some neighbours together."""

    def __init__(self, boxes: Sequence[tuple[int, Boxes]], floors: Ints) -> None:
        self._boxes = boxes
        self._width = min(TOGETHER, max(1, int(np.sqrt(len(floors)))))
        self._starts = np.arange(0, len(floors), self._width)
        self._around = [
            (
                sign,
                Boxes(
                    [np.minimum.reduceat(low, self._starts) for low in box.lows],
                    [np.maximum.reduceat(high, self._starts) for high in box.highs],
                ),
            )
            for sign, box in boxes
        ]
        self.raise_floors(floors)

    def raise_floors(self, floors: Ints) -> None:
        self.floors = floors
        self._least = np.minimum.reduceat(floors, self._starts)

    def pairs(self, cells: Scored, groups: Ints) -> Iterator[Pairs]:
        """The pairs of some groups with members."""
        sizes = np.diff(cells.begins)[groups] * len(self._starts)
        for some in _in_parts(sizes):
            chosen = groups[some]
            group, around = self._may_have(cells, chosen)
            own_sizes = np.diff(cells.begins)[group] * self._width
            for part in _in_parts(own_sizes):
                yield self._pairs(cells, group[part], around[part])

    def _may_have(self, cells: Scored, groups: Ints) -> tuple[Ints, Ints]:
        """Groups with those of the neighbours of which one may have it among the first."""
        row, begins = _cells_of(cells, groups)
        any_cell = np.zeros((len(groups), len(self._starts)), np.bool_)
        bound = np.zeros(any_cell.shape, np.int64)
        for number, (sign, box) in enumerate(self._around):
            inside = np.ones((len(row), len(self._starts)), np.bool_)
            sides = zip(cells.places[number], box.lows, box.highs, strict=True)
            for places, low, high in sides:
                of_cells = places[row][:, None]
                inside &= (of_cells >= low) & (of_cells < high)
            any_cell |= np.logical_or.reduceat(inside, begins)
            if cells.parts is not None:
                most = np.maximum(sign * cells.parts[row], 0)
                bound += np.add.reduceat(inside * most[:, None], begins)
        if cells.fixed is not None:
            bound = np.broadcast_to(cells.fixed[groups][:, None], bound.shape)
        group, around = np.nonzero(any_cell & (bound >= self._least))
        return groups[group], around

    def _pairs(self, cells: Scored, groups: Ints, around: Ints) -> Pairs:
        """The pairs of groups with neighbours of theirs, each added up for the member alone."""
        row, begins = _cells_of(cells, groups)
        sizes = np.diff(cells.begins)[groups]
        members = self._starts[around][:, None] + np.arange(self._width)
        is_there = members < len(self.floors)
        members = np.minimum(members, len(self.floors) - 1)
        of_rows = np.repeat(members, sizes, axis=0)
        totals: dict[str, np.ndarray] = {}
        for number, (sign, box) in enumerate(self._boxes):
            inside = np.ones(of_rows.shape, np.bool_)
            sides = zip(cells.places[number], box.lows, box.highs, strict=True)
            for places, low, high in sides:
                of_cells = places[row][:, None]
                inside &= (of_cells >= low[of_rows]) & (of_cells < high[of_rows])
            for name in ("rows", "parts", "counts"):
                values = getattr(cells, name)
                if values is not None:
                    added = np.add.reduceat(inside * (sign * values[row])[:, None], begins)
                    totals[name] = totals.get(name, 0) + added
        if cells.fixed is not None:
            scores = np.broadcast_to(cells.fixed[groups][:, None], members.shape)
        else:
            scores = totals["parts"]
        if "counts" in totals:
            scores = np.where(totals["counts"] > 0, scores, LEAST)
        chosen = is_there & (totals["rows"] > 0) & (scores >= self.floors[members])
        place, column = np.nonzero(chosen)
        return Pairs(groups[place], members[place, column], scores[place, column])


def in_boxes(
    cells: Scored, boxes: Sequence[tuple[int, Boxes]], pairs: Pairs, values: np.ndarray
) -> np.ndarray:
    """The sums of values of cells for some pairs."""
    row, begins = _cells_of(cells, pairs.groups)
    member = np.repeat(pairs.members, np.diff(cells.begins)[pairs.groups])
    signs = np.zeros(len(row), np.int64)
    for number, (sign, box) in enumerate(boxes):
        inside = np.ones(len(row), np.bool_)
        for places, low, high in zip(cells.places[number], box.lows, box.highs, strict=True):
            inside &= (places[row] >= low[member]) & (places[row] < high[member])
        signs += sign * inside
    if not len(begins):
        return values[:0]
    added: np.ndarray = np.add.reduceat(values[row] * signs, begins)
    return added


def near_each_other(boxes: Boxes) -> Ints:
    """An order of boxes in which those close to each other are neighbours: halves by the dimension
    in which they differ most, and halves of these."""
    sides = np.array([*boxes.lows, *boxes.highs])
    order = np.arange(len(boxes))
    parts = [order]
    while parts and max(map(len, parts)) > TOGETHER // 2:
        halves = []
        for part in parts:
            spread = sides[:, part].max(axis=1) - sides[:, part].min(axis=1)
            side = sides[int(np.argmax(spread))]
            ordered = part[np.argsort(side[part], kind="stable")]
            halves += [ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]]
        parts = halves
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _cells_of(cells: Scored, groups: Ints) -> tuple[Ints, Ints]:
    """The cells of some groups, and where those of each begin."""
    sizes = np.diff(cells.begins)[groups]
    begins = np.cumsum(sizes) - sizes
    first = np.repeat(cells.begins[:-1][groups] - begins, sizes)
    return np.arange(int(sizes.sum())) + first, begins


def _in_parts(sizes: Ints) -> Iterator[Ints]:
    """The places of sizes, in parts that have not too much together."""
    if len(sizes):
        parts = (np.cumsum(sizes) - sizes) // MOST
        yield from np.split(np.arange(len(sizes)), np.flatnonzero(np.diff(parts)) + 1)
