"""The checker itself: planted violations are found, and a sound history passes."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from .invariants import Change, Replay, check_history
from .workload import Operation, Row, keys_in


def row(key: int, op: int) -> Row:
    return {"id": key, "op": op, "text": "x"}


def change(sequence: int, before: Row | None, after: Row | None, time: int = 0) -> Change:
    op = "delete" if after is None else "put"
    return {"sequence": sequence, "time": time, "op": op, "before": before, "after": after}


CHANGES = [
    change(1, None, row(1, 1)),
    change(2, None, row(2, 1)),
    change(3, row(1, 1), row(1, 2)),
    change(4, row(2, 1), None),
    change(5, None, row(3, 3)),
]
ROWS = [row(1, 2), row(3, 3)]
VERSIONS = {1: 3, 2: 0, 3: 5}


def violations(changes: list[Change], rows: list[Row], versions: dict[int, int]) -> list[str]:
    replay = Replay()
    replay.add(changes)
    replay.compare(rows, versions)
    return replay.violations


def test_a_sound_region_has_no_violations() -> None:
    assert violations(CHANGES, ROWS, VERSIONS) == []


PLANTED: dict[str, Callable[[list[Change], list[Row], dict[int, int]], object]] = {
    "a change is missing": lambda changes, rows, versions: changes.pop(2),
    "the last change is missing": lambda changes, rows, versions: changes.pop(),
    "a change is there twice": lambda changes, rows, versions: changes.insert(3, changes[2]),
    "a sequence is skipped": lambda changes, rows, versions: changes[4].update(sequence=6),
    "a before-image is dropped": lambda changes, rows, versions: changes[2].update(before=None),
    "a before-image is wrong": lambda changes, rows, versions: changes[2].update(before=row(1, 9)),
    "a before-image is another key's": lambda changes, rows, versions: changes[2].update(
        before=row(2, 1)
    ),
    "a before-image is invented": lambda changes, rows, versions: changes[4].update(
        before=row(3, 1)
    ),
    "an after-image is wrong": lambda changes, rows, versions: changes[4].update(after=row(3, 9)),
    "a delete is called a put": lambda changes, rows, versions: changes[3].update(op="put"),
    "a row is missing": lambda changes, rows, versions: rows.pop(),
    "a row is there twice": lambda changes, rows, versions: rows.append(rows[0]),
    "a row has no change": lambda changes, rows, versions: rows.append(row(4, 4)),
    "a deleted row is back": lambda changes, rows, versions: rows.append(row(2, 1)),
    "a row is old": lambda changes, rows, versions: rows[0].update(op=1),
    "a version is old": lambda changes, rows, versions: versions.update({1: 1}),
    "an absent row has a version": lambda changes, rows, versions: versions.update({2: 4}),
}


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_violation_is_found(plant: str) -> None:
    changes, rows, versions = copy.deepcopy((CHANGES, ROWS, VERSIONS))
    PLANTED[plant](changes, rows, versions)
    assert violations(changes, rows, versions) != []


A, B = keys_in(0, 2, regions=1)
PUT = Operation(1, False, (A, B), "x")
REMOVE = Operation(2, True, (A, B), "")
PUTS = [change(1, None, row(A, 1)), change(2, None, row(B, 1))]
REMOVES = [change(3, row(A, 1), None), change(4, row(B, 1), None)]
BOTH = {1: PUT, 2: REMOVE}


def test_acknowledged_and_unacknowledged_whole_operations_are_fine() -> None:
    assert check_history({1: {0: 2}, 2: {0: 4}}, BOTH, [{}], [PUTS + REMOVES]) == []
    assert check_history({1: {0: 2}}, BOTH, [{}], [PUTS + REMOVES]) == []
    assert check_history({1: {0: 2}}, BOTH, [{}], [PUTS]) == []
    assert check_history({}, {1: PUT}, [{}], [[]]) == []


def test_an_acknowledged_delete_has_none_of_the_changes_of_another() -> None:
    """Another writer deletes one of its keys first, with one more, and is not acknowledged."""
    a, b, c = keys_in(0, 3, regions=1)
    operations = {
        1: Operation(1, False, (a, b, c), "x"),
        2: Operation(2, True, (a, b), ""),
        3: Operation(3, True, (b, c), ""),
    }
    changes = [change(n, None, row(key, 1)) for n, key in enumerate((a, b, c), 1)]
    changes += [change(4, row(c, 1), None, 1), change(5, row(b, 1), None, 1)]
    changes += [change(6, row(a, 1), None, 2)]
    assert check_history({1: {0: 3}, 2: {0: 6}}, operations, [{}], [changes]) == []


@pytest.mark.parametrize(
    ("acknowledged", "changes"),
    [
        pytest.param({1: {0: 2}}, [], id="an acknowledged put is lost"),
        pytest.param({}, PUTS[:1], id="a put is there in part"),
        pytest.param({1: {0: 2}, 2: {0: 4}}, PUTS, id="an acknowledged delete is lost"),
        pytest.param({1: {0: 2}}, [*PUTS, REMOVES[0]], id="a delete is there in part"),
        pytest.param({}, [change(1, None, row(A, 7))], id="nobody put this"),
    ],
)
def test_a_history_that_cannot_be_is_found(
    acknowledged: dict[int, dict[int, int]], changes: list[Change]
) -> None:
    assert check_history(acknowledged, BOTH, [{}], [changes]) != []


def test_a_delete_that_nobody_asked_for_is_found() -> None:
    news = [*PUTS, REMOVES[0]]
    assert check_history({1: {0: 2}}, {1: PUT}, [{}], [news]) != []
