"""Sums over boxes equal those of one point and one box after the other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everview.operators import boxes as module
from everview.operators.boxes import Boxes, Points, ranked, sums_in_boxes
from everview.schema import arrow_type
from tests.operators.histories import FEW
from tests.values import order_of

LARGE = 2**62
VALUES = st.integers(-3, 3) | st.integers(-LARGE, LARGE)
Sums = dict[tuple[int, int], tuple[int, ...]]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Points, Boxes]:
    dimensions = draw(st.integers(1, 3))
    most = draw(st.sampled_from([1, 3, 12]))
    point = st.tuples(
        st.tuples(*[st.integers(0, most)] * dimensions),
        st.integers(0, 3),
        st.tuples(VALUES, VALUES),
    )
    box = st.tuples(*[st.tuples(*[st.integers(0, most + 1)] * 2).map(sorted)] * dimensions)
    points, boxes = draw(st.lists(point, max_size=12)), draw(st.lists(box, min_size=1, max_size=8))
    larger = np.array([values[1] * 2**40 for _, _, values in points], object)
    return (
        Points(
            [np.array([at[d] for at, _, _ in points], np.int64) for d in range(dimensions)],
            np.array([group for _, group, _ in points], np.int64),
            [np.array([values[0] for _, _, values in points], np.int64), larger],
        ),
        Boxes(
            [np.array([box[d][0] for box in boxes], np.int64) for d in range(dimensions)],
            [np.array([box[d][1] for box in boxes], np.int64) for d in range(dimensions)],
        ),
    )


def one_by_one(points: Points, boxes: Boxes) -> Sums:
    found: Sums = {}
    for box in range(len(boxes)):
        for point in range(len(points)):
            if all(
                boxes.lows[d][box] <= places[point] < boxes.highs[d][box]
                for d, places in enumerate(points.coordinates)
            ):
                place = box, int(points.groups[point])
                before = found.get(place, (0,) * len(points.values))
                own = [int(values[point]) for values in points.values]
                found[place] = tuple(map(sum, zip(before, own, strict=True)))
    return {place: sums for place, sums in found.items() if any(sums)}


@pytest.mark.parametrize("most", [1, 30, 1 << 22])
@settings(max_examples=150)
@given(case=cases())
def test_sums_are_those_of_each_point(most: int, case: tuple[Points, Boxes]) -> None:
    """Also if boxes are divided until each is alone."""
    points, boxes = case
    found: Sums = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_CELLS", most)
        for part in sums_in_boxes(points, boxes):
            for i, place in enumerate(zip(part.boxes.tolist(), part.groups.tolist(), strict=True)):
                assert place not in found, "each pair comes once"
                found[place] = tuple(int(values[i]) for values in part.values)
    assert found == one_by_one(points, boxes)


@pytest.mark.parametrize("kind", [kind for kind in FEW if kind != "BINARY"])
@given(data=st.data())
def test_ranks_are_in_the_order_of_spark(kind: str, data: st.DataObject) -> None:
    """NaN is the greatest number, whatever its bits, and -0.0 is 0.0."""
    values = st.lists(st.sampled_from([*FEW[kind], None]), max_size=6)
    lists: list[list[Any]] = [data.draw(values), data.draw(values)]
    ranks = ranked([pa.array(some, arrow_type(kind)) for some in lists])
    pairs = [
        pair for some, of in zip(lists, ranks, strict=True) for pair in zip(some, of, strict=True)
    ]
    for one, rank in pairs:
        assert (rank == -1) == (one is None)
        for other, other_rank in pairs:
            if one is not None and other is not None:
                assert (rank < other_rank) == (order_of(one) < order_of(other))
    assert not any(isinstance(one, float) and math.isnan(one) and rank < 0 for one, rank in pairs)
