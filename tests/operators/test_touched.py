"""What is recomputed by touched group equals recomputation of everything, in any batching.

The engine stands between the two operators: here it is a function in Python.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings

from everview.delta import WEIGHT, weighted
from everview.operators.base import MemoryState
from everview.operators.touched import ReplaceOperator, TouchedOperator
from everview.plan.expressions import Written
from everview.plan.nodes import Recompute, Replace, Touched
from everview.schema import Column
from tests.operators.histories import (
    COLUMNS,
    ROWS,
    SOURCE,
    STEPS,
    History,
    Row,
    batched,
    counted,
    delta_of,
    gone,
    histories,
    plain,
    prefixes,
)

NUMBERED = Column("number", pa.int64())


def nodes(groups: tuple[str, ...], rows_stay: bool) -> Replace:
    touched = Touched(COLUMNS, SOURCE, groups)
    fixed = COLUMNS if rows_stay else tuple(c for c in COLUMNS if c.name in groups)
    columns = (*fixed, NUMBERED)
    computed = Recompute(columns, touched, (Written("..."),), rows_stay)
    return Replace(columns, computed, groups, always=not groups and not rows_stay)


def computed(node: Replace, rows: list[Row]) -> list[Row]:
    """Rows with their number in their group; or groups with how many values n has."""
    places = [i for i, c in enumerate(COLUMNS) if c.name in node.groups]
    by: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        by[plain(row[i] for i in places)].append(row)
    if node.input.rows_stay:
        return [(*row, n) for some in by.values() for n, row in enumerate(sorted(some, key=repr))]
    found = [
        (*(some[0][i] for i in places), sum(row[3] is not None for row in some))
        for some in by.values()
    ]
    return found or ([(0,)] if node.always else [])


def engine(node: Replace, delta: pa.Table) -> pa.Table:
    """What the engine makes of the rows of touched groups: those of each weight by themselves."""
    rows = delta.to_pylist()
    parts = []
    for weight in (0, 1):
        some = [tuple(r.values())[:-1] for r in rows if r[WEIGHT] == weight]
        found = computed(node, some) if some else []
        arrays = [
            pa.array([row[i] for row in found], column.type)
            for i, column in enumerate(node.columns)
        ]
        parts.append(weighted(pa.Table.from_arrays(arrays, node.names()), weight))
    return pa.concat_tables(parts)


def check(groups: tuple[str, ...], rows_stay: bool, history: History, step: int) -> None:
    node = nodes(groups, rows_stay)
    keep, replace = TouchedOperator(node.input.input), ReplaceOperator(node)
    states = MemoryState(), MemoryState()
    view: Counter[Row] = Counter()

    def run(changes: History) -> None:
        given = keep.apply([delta_of(changes)], states[0])
        view.update(counted(replace.apply([engine(node, given)], states[1])))

    if node.always:
        run([((None, None, None, None), 0)])
    for changes, rows in zip(batched(history, step), prefixes(history, step), strict=True):
        run(changes)
        assert +view == Counter(map(plain, computed(node, rows)))
        assert all(count >= 0 for count in view.values())
    run(gone(history))
    assert +view == Counter(map(plain, computed(node, [])))
    assert len(states[0]) == 0
    assert len(states[1]) == node.always


@pytest.mark.parametrize("rows_stay", [True, False])
@pytest.mark.parametrize("groups", [("g",), ("g", "h"), ()])
@settings(max_examples=40)
@given(history=histories(ROWS), step=STEPS)
@example(history=[(("a", 1, None, 7), 2), (("a", 1, None, 7), -2)], step=1000)
def test_recomputing_touched_groups_equals_recomputing_all(
    groups: tuple[str, ...], rows_stay: bool, history: History, step: int
) -> None:
    check(groups, rows_stay, history, step)


def test_only_what_differs_is_given() -> None:
    node = nodes(("g",), True)
    keep, replace = TouchedOperator(node.input.input), ReplaceOperator(node)
    states = MemoryState(), MemoryState()
    rows: History = [((g, 1, None, n), 1) for g in "ab" for n in range(3)]
    replace.apply([engine(node, keep.apply([delta_of(rows)], states[0]))], states[1])
    given = keep.apply([delta_of([(("a", 1, None, 9), 1)])], states[0])
    assert counted(given) == Counter(
        {("a", None, None, None): 0, **{("a", 1, None, n): 1 for n in (0, 1, 2, 9)}}
    ), "the rows of the touched group, and no others"
    last = replace.apply([engine(node, given)], states[1])
    assert counted(last) == Counter({("a", 1, None, 9, 3): 1})
