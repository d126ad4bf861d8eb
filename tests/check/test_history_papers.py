"""The examples of the papers: which level each of them breaks, and which it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from everview.check import History, Level, Verdict

from .histories import Row, base_of, found, judge, states, writes_of

SUM = "SELECT X, SUM(Y) AS S FROM R GROUP BY X"


def record(key: str, x: str, y: int) -> tuple[str, Row]:
    return key, {"K": key, "X": x, "Y": y}


def sums(**groups: int) -> list[Row]:
    return [{"X": x, "S": s} for x, s in groups.items()]


def judged(
    base: list[tuple[str, Row]],
    updates: list[tuple[str, Row | None]],
    view: list[list[Row]],
    query: str = SUM,
    key: str = "X",
    **options: Any,
) -> Verdict:
    writes = writes_of("R", [*base, *updates])
    history = History(writes, states("D", *view), [base_of(writes[: len(base)])])
    return judge(history, "D", query, key, **options)


BASE_1 = [
    record("k1", "x1", 100),
    record("k2", "x1", 200),
    record("k3", "x2", 300),
    record("k4", "x2", 400),
]
UPDATES_1 = [record("k2", "x2", 200), record("k4", "x1", 400)]


def test_wdp_example_1_a_lost_update_of_concurrent_view_managers_breaks_convergence():
    verdict = judged(BASE_1, UPDATES_1, [sums(x1=300, x2=700), sums(x1=700, x2=300)])
    assert found(verdict)["convergence"] is False
    # what is left is a state that the tables can have had, with the second update alone
    assert found(verdict)["weak"] is True
    assert verdict.level is Level.NONE


def test_wdp_example_1_with_test_and_set_is_strong():
    shown = [sums(x1=300, x2=700), sums(x1=100, x2=900), sums(x1=500, x2=500)]
    assert judged(BASE_1, UPDATES_1, shown).level is Level.COMPLETE
    assert judged(BASE_1, UPDATES_1, [shown[0], shown[2]]).level is Level.STRONG


BASE_2 = [record("k1", "x1", 100), record("k2", "x1", 200)]
UPDATES_2 = [record("k3", "x1", 100)]


def test_wdp_example_2_an_update_that_is_applied_twice_breaks_weak_consistency():
    verdict = judged(BASE_2, UPDATES_2, [sums(x1=300), sums(x1=400), sums(x1=500)])
    assert found(verdict)["weak"] is False
    assert verdict.level is Level.NONE
    example = verdict.counterexample(Level.WEAK)
    assert example is not None
    assert example.hint == "as if R 2/1 was applied twice"
    assert example.reads[0].missing == {(("x", "x1"), ("s", 400)): 1}
    assert example.reads[0].unexpected == {(("x", "x1"), ("s", 500)): 1}


def test_wdp_example_2_with_signatures_is_strong():
    assert judged(BASE_2, UPDATES_2, [sums(x1=300), sums(x1=400)]).level is Level.COMPLETE


SELECTION = "SELECT K, X, Y FROM R WHERE Y < 25"
BASE_3 = [record("k1", "x1", 5)]
UPDATES_3 = [record("k1", "x1", y) for y in (10, 20, 15)]


def example_3(*values: int) -> Verdict:
    shown = [[record("k1", "x1", y)[1]] for y in values]
    return judged(BASE_3, UPDATES_3, shown, SELECTION, "K", records=True)


def test_wdp_example_3_updates_out_of_order_break_strong_consistency():
    verdict = example_3(5, 20, 10, 15)
    assert verdict.level is Level.WEAK
    assert verdict.records == {("k1",): Level.WEAK}
    example = verdict.counterexample(Level.STRONG)
    assert example is not None
    assert [shown.read.rows[0]["y"] for shown in example.reads] == [20, 10]
    assert [write.row and write.row["Y"] for write in example.writes] == [10, 20]


def test_wdp_example_3_updates_out_of_order_can_break_convergence():
    verdict = example_3(5, 10, 15, 20)
    assert found(verdict) == {
        "convergence": False,
        "weak": True,
        "strong": False,
        "complete": False,
    }


def test_wdp_example_3_with_flow_control_is_strong():
    assert example_3(5, 10, 20, 15).level is Level.COMPLETE
    assert example_3(5, 20, 15).level is Level.STRONG


def test_wdp_a_minimum_maintained_without_looking_at_the_base_is_weak_only():
    base = [record("k1", "x1", 4)]
    updates = [("k1", None), record("k2", "x1", 2), record("k2", "x1", 5)]
    query = "SELECT X, MIN(Y) AS S FROM R GROUP BY X"
    shown = [sums(x1=4), sums(x1=5), sums(x1=2), sums(x1=5)]
    assert judged(base, updates, shown, query).level is Level.WEAK
    shown = [sums(x1=4), sums(x1=5), sums(x1=5), sums(x1=5)]
    assert judged(base, updates, shown, query).level is Level.STRONG


@pytest.mark.parametrize(
    ("shown", "level"),
    [
        ([15, 20, 30, 10], Level.COMPLETE),  # V0, V1, V4, Vf
        ([15, 30, 10], Level.STRONG),  # V0, V4, Vf: two updates at once
        ([15, 30, 20, 10], Level.WEAK),  # V0, V4, V1, Vf: out of order
        ([15, -5, 0, 10], Level.CONVERGENCE),  # V3: the delete first
        ([15, 20, 30], Level.NONE),  # the delete is lost
    ],
)
def test_dissertation_example_4_2_1_has_a_sequence_of_states_for_every_level(shown, level):
    base = [record("k1", "x", 15)]
    updates = [record("k1", "x", 20), record("k2", "x", 10), ("k1", None)]
    assert judged(base, updates, [sums(x=value) for value in shown]).level is level


QUERY_433 = "SELECT Y, SUM(Z) AS S FROM R1 JOIN R2 ON R1.X = R2.X GROUP BY Y"


def example_4_3_3(*shown: dict[str, int]) -> Verdict:
    """The join and sum of example 4.3.1; x1 and x2 have 1 and 2 to sum."""
    r1 = writes_of(
        "R1",
        [
            ("k1", {"K": "k1", "X": "x1", "Y": "y1"}),
            ("k1", None),
            ("k1", {"K": "k1", "X": "x2", "Y": "y2"}),
            ("k2", {"K": "k2", "X": "x2", "Y": "y3"}),
        ],
    )
    r2 = writes_of("R2", [(f"l{i}", {"L": f"l{i}", "X": f"x{i}", "Z": i}) for i in (1, 2)])
    reads = states("V", *([{"Y": y, "S": s} for y, s in state.items()] for state in shown))
    return judge(
        History(r1 + r2, reads, [base_of([r1[0], *r2])]), "V", QUERY_433, "Y", records=True
    )


def test_dissertation_example_4_3_3_a_delete_that_overtakes_a_put_loses_the_record():
    verdict = example_4_3_3({"y1": 1}, {"y1": 1, "y2": 2}, {}, {"y3": 2})
    assert found(verdict) == {
        "convergence": False,
        "weak": False,  # k1 is in the view with its old and its new row
        "strong": False,
        "complete": False,
    }
    assert verdict.records[("y2",)] is Level.NONE
    assert verdict.records[("y3",)] is Level.COMPLETE
    example = verdict.counterexample(Level.CONVERGENCE)
    assert example is not None
    assert example.reads[-1].missing or example.reads[-1].unexpected


def test_dissertation_example_4_3_3_with_timeline_buffering_is_complete():
    shown = [{"y1": 1}, {}, {"y2": 2}, {"y2": 2, "y3": 2}]
    assert example_4_3_3(*shown).level is Level.COMPLETE
    assert example_4_3_3(shown[0], shown[2], shown[3]).level is Level.STRONG


def test_dissertation_4_3_3_a_multi_row_update_that_is_seen_half_breaks_weak_consistency():
    base, move = [record("k1", "x1", 7)], [record("k1", "x2", 7)]
    split = judged(base, move, [sums(x1=7), sums(x1=7, x2=7), sums(x2=7)], records=True)
    assert found(split)["weak"] is False
    # each record for itself is right: only the view as a whole tells
    assert set(split.records.values()) == {Level.COMPLETE}
    assert judged(base, move, [sums(x1=7), sums(x2=7)]).level is Level.COMPLETE
