"""Sums over boxes: of points with some coordinates, those that lie in each of many boxes.

A coordinate is a rank among all values of a column and all bounds of boxes on it, so that every
type with an order is the same here. Points that no box tells apart are one, and so are bounds that
no point tells apart. What is left is a grid; its prefix sums give the sum over any box by two looks
in each dimension, however many points it has. Boxes for which the grid would be too large are
divided, each half with the points that its boxes can reach.

Numbers are exact: they are whole, and added up in parts of few bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import Ints
from everview.schema import has_floats

MOST_CELLS = 1 << 22  # of a grid, or of sums that are computed at once
_BITS = 26  # of a part: 2**27 such parts have a sum that a double has exactly


@dataclass(frozen=True)
class Points:
    """`coordinates[d]` has the places of points in dimension d, `groups` the number of each one's
    group, `values` some whole numbers of each: of 64 bits, or Python's."""

    coordinates: Sequence[Ints]
    groups: Ints
    values: Sequence[np.ndarray]

    def __len__(self) -> int:
        return len(self.groups)

    def take(self, chosen: np.ndarray) -> Points:
        return Points(
            [places[chosen] for places in self.coordinates],
            self.groups[chosen],
            [values[chosen] for values in self.values],
        )


@dataclass(frozen=True)
class Boxes:
    """In dimension d, box i has the places from `lows[d][i]` to before `highs[d][i]`."""

    lows: Sequence[Ints]
    highs: Sequence[Ints]

    def __len__(self) -> int:
        return len(self.lows[0])

    def take(self, chosen: np.ndarray) -> Boxes:
        return Boxes([low[chosen] for low in self.lows], [high[chosen] for high in self.highs])


@dataclass(frozen=True)
class Sums:
    """For some pairs of a box and a group, the sums of each of the points' values."""

    boxes: Ints
    groups: Ints
    values: Sequence[np.ndarray]


def sums_in_boxes(points: Points, boxes: Boxes) -> Iterator[Sums]:
    """The sums of the points of each group in each box, in parts; pairs of a box and a group in
    which all sums are 0 may be left out."""
    parts = [_parts(values) for values in points.values]
    flat = Points(points.coordinates, points.groups, [part for some in parts for part in some])
    sizes = [len(some) for some in parts]
    for chosen, groups, grids in _divided(flat, boxes, np.arange(len(boxes))):
        found = np.zeros((len(chosen), len(groups)), np.bool_)
        for grid in grids:
            found |= grid != 0
        box, group = np.nonzero(found)
        rest = iter([grid[box, group] for grid in grids])
        values = [_joined([next(rest) for _ in range(size)]) for size in sizes]
        yield Sums(chosen[box], groups[group], values)


def _divided(
    points: Points, boxes: Boxes, chosen: Ints
) -> Iterator[tuple[Ints, Ints, list[np.ndarray]]]:
    """The sums of some boxes, by box and group: the numbers of both, and an array for each value.
    Boxes are divided until their grid is small enough."""
    remaining = [(points, chosen)]
    while remaining:
        points, chosen = remaining.pop()
        some = boxes.take(chosen)
        points = _within(points, some)
        if not len(points):
            continue
        cuts = [
            _cuts(places, low, high)
            for places, low, high in zip(points.coordinates, some.lows, some.highs, strict=True)
        ]
        groups, numbers = np.unique(points.groups, return_inverse=True)
        cells = float(np.prod([len(cut) + 1.0 for cut in cuts])) * len(groups)
        if len(chosen) > 1 and max(cells, float(len(chosen) * len(groups))) > MOST_CELLS:
            remaining += [(points, half) for half in _halves(some, chosen)]
            continue
        yield chosen, groups, _summed(points, numbers, len(groups), some, cuts)


def _within(points: Points, boxes: Boxes) -> Points:
    """The points that some of the boxes may have."""
    inside = np.ones(len(points), np.bool_)
    for places, low, high in zip(points.coordinates, boxes.lows, boxes.highs, strict=True):
        inside &= (places >= low.min()) & (places < high.max())
    return points if inside.all() else points.take(inside)


def _cuts(places: Ints, low: Ints, high: Ints) -> Ints:
    """Ascending places between which no point and no bound tells one point from another: the bounds
    or the points, whichever are fewer."""
    bounds = np.unique(np.concatenate([low, high]))
    if len(bounds) <= len(places) // 2:
        return bounds
    present = np.unique(places)
    return bounds if len(bounds) <= len(present) else present


def _halves(boxes: Boxes, chosen: Ints) -> tuple[Ints, Ints]:
    """Two halves of the boxes, by the dimension in which a half reaches the smallest part of what
    all of them reach."""
    sides = list(zip(boxes.lows, boxes.highs, strict=True))
    parts = [(high - low).max() / max(high.max() - low.min(), 1) for low, high in sides]
    low, high = sides[int(np.argmin(parts))]
    order = chosen[np.argsort(low + high, kind="stable")]
    return order[: len(order) // 2], order[len(order) // 2 :]


def _summed(
    points: Points, numbers: Ints, groups: int, boxes: Boxes, cuts: Sequence[Ints]
) -> list[np.ndarray]:
    """The sums of each value, by box and group, from the prefix sums of a grid."""
    shape = [groups, *(len(cut) + 1 for cut in cuts)]
    places = [
        np.searchsorted(cut, coordinate, "right")
        for cut, coordinate in zip(cuts, points.coordinates, strict=True)
    ]
    flat = np.ravel_multi_index([numbers, *places], shape)
    first = [np.searchsorted(cut, low, "left") for cut, low in zip(cuts, boxes.lows, strict=True)]
    last = [np.searchsorted(cut, high, "left") for cut, high in zip(cuts, boxes.highs, strict=True)]
    results = []
    for values in points.values:
        grid = np.bincount(flat, values, int(np.prod(shape))).reshape(shape)
        for axis in range(1, len(shape)):
            np.cumsum(grid, axis=axis, out=grid)
        results.append(_differences(grid, first, last))
    return results


def _differences(grid: np.ndarray, first: Sequence[Ints], last: Sequence[Ints]) -> np.ndarray:
    """The sums between two corners, from prefix sums that include their own place."""
    flat = grid.reshape(len(grid), -1)
    total = np.zeros((len(first[0]), len(grid)))
    for ends in product((0, 1), repeat=len(first)):
        corner = tuple((first, last)[end][d] for d, end in enumerate(ends))
        sign = -1 if (len(ends) - sum(ends)) % 2 else 1
        total += sign * flat[:, np.ravel_multi_index(corner, grid.shape[1:])].T
    return total


def _parts(values: np.ndarray) -> list[np.ndarray]:
    """Whole numbers as parts of few bits, the lowest first; only the last one may be negative."""
    parts = []
    while len(values) and max(abs(int(values.max())), abs(int(values.min()))) >= 1 << _BITS:
        parts.append((values & ((1 << _BITS) - 1)).astype(np.float64))
        values = values >> _BITS
    return [*parts, values.astype(np.float64)]


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Numbers from the sums of their parts: of 64 bits, if all fit."""
    sizes = [
        float(np.abs(part).max(initial=0)) * 2.0 ** (_BITS * i) for i, part in enumerate(parts)
    ]
    kind = np.int64 if sum(sizes) < 2.0**62 else object
    whole = np.zeros(len(parts[0]), kind)
    for part in reversed(parts):
        whole = whole * (1 << _BITS) + part.astype(np.int64).astype(kind)
    return whole


def ranked(arrays: Sequence[pa.Array]) -> list[Ints]:
    """The rank of each value of several arrays of one type among all of them; -1 for NULL. Equal
    values have one rank, -0.0 and 0.0 too, and NaN is the greatest."""
    encoded = pa.concat_arrays(arrays).dictionary_encode()
    values = encoded.dictionary
    order = pc.array_sort_indices(values).to_numpy()
    ordered = values.take(pa.array(order))
    differs = pc.not_equal(ordered[1:], ordered[:-1])
    if has_floats(values.type):
        both = pc.and_(pc.is_nan(ordered[1:]), pc.is_nan(ordered[:-1]))
        differs = pc.and_(differs, pc.invert(both))
    of_values = np.zeros(len(values) + 1, np.int64)
    of_values[order[1:]] = np.cumsum(differs.to_numpy(zero_copy_only=False))
    of_values[-1] = -1  # of NULL
    ranks = of_values[encoded.indices.fill_null(len(values)).to_numpy()]
    ends = np.cumsum([0, *map(len, arrays)])
    return [ranks[start:end] for start, end in pairwise(ends)]
