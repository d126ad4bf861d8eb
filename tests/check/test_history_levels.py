"""The levels against their definitions, by brute force; what orders states; what is undecided."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from everview.check import Commit, Definition, History, Level, Read, Verdict, Write, check_history
from everview.errors import InvalidHistory

from .histories import found, judge, states, writes_of
from .simulator import VIEWS, Simulation

State = tuple[int, ...]


def total(tables: Any) -> list[dict[str, int]]:
    """The number of rows and their sum, one row."""
    values = [row["y"] for row in tables.get("t", ())]
    return [{"n": len(values), "s": sum(values)}]


def brute_force(history: History, values: dict[State, Any]) -> dict[str, bool]:
    """The four levels by their definitions, over all states and all orders of the writes."""
    shown = [read.rows[0] for read in history.reads]
    end = max(values, key=sum)
    steps = {a: [b for b in values if sum(b) == sum(a) + 1 and _below(a, b)] for a in values}

    def ordered(at: State, left: list[Any]) -> bool:
        return not left or any(
            values[b] == left[0] and ordered(b, left[1:]) for b in values if _below(at, b)
        )

    def complete(at: State, left: list[Any]) -> bool:
        """`at` is shown by the first of those left; do the rest show the rest?"""
        if values[at] != left[0]:
            return False
        if at == end and len(left) == 1:
            return True
        return any(
            rest and (b, rest) != (at, left) and complete(b, rest)
            for b in (at, *steps[at])
            for rest in (left, left[1:])
        )

    return {
        "convergence": shown[-1] == values[end],
        "weak": all(value in values.values() for value in shown),
        "strong": ordered(min(values, key=sum), shown),
        "complete": complete(min(values, key=sum), shown),
    }


def _below(a: State, b: State) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True))


def all_values(history: History) -> dict[State, Any]:
    """Every reachable state of two regions, and the view there."""
    regions = [
        sorted((w for w in history.writes if w.region == r), key=lambda w: w.sequence)
        for r in (0, 1)
    ]
    values = {}
    for state in product(*(range(len(writes) + 1) for writes in regions)):
        inside = [w for writes, n in zip(regions, state, strict=True) for w in writes[:n]]
        outside = [w for w in history.writes if w not in inside]
        if any(
            o.ended < i.began for o in outside for i in inside if None not in (o.ended, i.began)
        ):
            continue
        rows = {w.key: w.row for w in inside}
        values[state] = total({"t": [row for row in rows.values() if row is not None]})[0]
    return values


@st.composite
def small_histories(draw: st.DrawFn) -> History:
    """A few writes, some with times, and reads that mostly show states."""
    clock = 0.0
    counts = Counter()
    writes = []
    for _ in range(draw(st.integers(0, 5))):
        key = draw(st.integers(0, 3))
        y = draw(st.none() | st.integers(1, 3))
        counts[key % 2] += 1
        clock += draw(st.integers(0, 2))
        began = draw(st.none() | st.just(clock))
        row = None if y is None else {"k": key, "y": y}
        writes.append(Write("t", (key,), row, key % 2, counts[key % 2], began, clock + 1))
    history = History(writes)
    values = list(all_values(history).values())
    wrong = st.just({"n": 1, "s": 99})
    for row in draw(st.lists(st.sampled_from(values) | wrong, min_size=1, max_size=5)):
        history.reads.append(Read("v", (row,)))
    return history


@given(history=small_histories())
def test_levels_are_what_brute_force_finds(history):
    expected = brute_force(history, all_values(history))
    verdict = judge(history, "v", total)
    assert dict(found(verdict)) == expected
    example = verdict.counterexample(Level.STRONG)
    assert (example is None) == all(list(expected.values())[:3])


@given(history=small_histories())
def test_a_counterexample_of_reads_out_of_order_is_one_by_itself(history):
    verdict = judge(history, "v", total)
    if found(verdict)["weak"] and not found(verdict)["strong"]:
        shown = verdict.findings[Level.STRONG - 1].counterexample
        assert shown is not None
        small = History(list(shown.writes), [s.read for s in shown.reads])
        values = all_values(_renumbered(small))
        assert not brute_force(_renumbered(small), values)["strong"]


def _renumbered(history: History) -> History:
    counts: Counter[int] = Counter()
    writes = []
    for write in sorted(history.writes, key=lambda w: w.place):
        counts[write.region] += 1
        writes.append(replace(write, sequence=counts[write.region]))
    return History(writes, history.reads)


@given(
    seed=st.integers(0, 2**32),
    which=st.integers(0, 10_000),
    change=st.sampled_from(["another number", "a row too many", "a row lost"]),
)
@example(seed=0, which=0, change="a row lost")
def test_a_read_that_was_changed_is_called_wrong_unless_its_epoch_shows_it(seed, which, change):
    history = Simulation(seed, steps=40).history
    place = which % len(history.reads)
    read = history.reads[place]
    rows = [dict(row) for row in read.rows]
    group = "city" if read.view == "cities" else "customer"
    if change == "a row too many" or not rows:
        rows.append(
            {group: read.key[0] if read.key else "z", "n": 1}
            | ({"total": 1} if group == "city" else {})
        )
    elif change == "a row lost":
        rows.pop()
    else:
        rows[0]["n"] += 1
    history.reads[place] = replace(read, rows=tuple(rows))
    verdict = {v.view: v for v in check_history(history, VIEWS)}[read.view]
    assert found(verdict)["strong"] is False
    example = verdict.counterexample(Level.STRONG)
    assert example is not None
    (shown,) = example.reads
    assert shown.missing or shown.unexpected


ONE = Write("t", (1,), {"k": 1, "y": 1}, 0, 1)
TWO = Write("t", (2,), {"k": 2, "y": 2}, 1, 1)
EMPTY, FIRST, SECOND, BOTH = ({"n": n, "s": s} for n, s in ((0, 0), (1, 1), (1, 2), (2, 3)))


def test_of_several_states_that_a_read_may_show_all_are_followed():
    writes = [
        ONE,
        replace(ONE, row={"k": 1, "y": 5}, sequence=2),
        replace(TWO, row={"k": 2, "y": 1}),
    ]
    reads = states("v", [FIRST], [{"n": 1, "s": 5}], [{"n": 2, "s": 6}])
    assert judge(History(writes, reads), "v", total).level is Level.STRONG


def test_an_order_that_leaves_out_no_state_goes_through_the_epochs():
    def largest(tables: Any) -> list[dict[str, int]]:
        return [{"y": max((row["y"] for row in tables["t"]), default=0)}]

    writes = [ONE, replace(ONE, row={"k": 1, "y": 2}, sequence=2), TWO]
    commits = [Commit(0, {}), Commit(1, {"t": {0: 2}}), Commit(2, {"t": {0: 2, 1: 1}})]
    reads = [Read("v", ({"y": y},), epoch) for epoch, y in enumerate((0, 2, 2))]
    assert judge(History(writes, reads, commits), "v", largest).level is Level.STRONG
    unknown = states("v", *([{"y": y}] for y in (0, 2, 2)))
    assert judge(History(writes, unknown), "v", largest).level is Level.COMPLETE


def test_regions_are_not_ordered_but_by_time():
    reads = states("v", [EMPTY], [SECOND], [BOTH])
    assert judge(History([ONE, TWO], reads), "v", total).level is Level.COMPLETE
    timed = [replace(ONE, ended=1.0), replace(TWO, began=2.0)]
    assert found(judge(History(timed, reads), "v", total))["weak"] is False


def test_an_epoch_with_a_write_but_not_one_that_ended_before_it_began_is_no_state():
    timed = [replace(ONE, ended=1.0), replace(TWO, began=2.0)]
    commits = [Commit(1, {"t": {1: 1}}), Commit(2, {"t": {0: 1, 1: 1}})]
    reads = [Read("v", (SECOND,), 1), Read("v", (BOTH,), 2)]
    verdict = judge(History(timed, reads, commits), "v", total)
    assert found(verdict)["strong"] is False
    example = verdict.counterexample(Level.STRONG)
    assert example is not None
    assert example.writes == tuple(timed)
    assert found(judge(History([ONE, TWO], reads, commits), "v", total))["strong"] is True


def test_a_read_shows_its_own_epoch_and_no_other():
    commits = [Commit(0, {}), Commit(1, {"t": {0: 1}}), Commit(2, {"t": {0: 1, 1: 1}})]
    reads = [Read("v", (BOTH,), 1), Read("v", (BOTH,), 2)]
    verdict = judge(History([ONE, TWO], reads, commits), "v", total)
    assert verdict.level is Level.WEAK
    example = verdict.counterexample(Level.STRONG)
    assert example is not None
    assert (example.writes, example.hint) == ((ONE, TWO), "it shows epoch 2")


def test_a_row_that_should_be_gone_is_told_with_its_put_and_its_delete():
    writes = [ONE, TWO, replace(ONE, row=None, sequence=2)]
    commits = [Commit(0, {}), Commit(1, {"t": {0: 1}}), Commit(2, {"t": {0: 2, 1: 1}})]
    rows = ({"k": 1, "y": 1}, {"k": 2, "y": 2})
    verdict = judge(History(writes, [Read("v", rows, 2)], commits), "v", "SELECT k, y FROM t")
    example = verdict.counterexample(Level.STRONG)
    assert example is not None
    assert (example.writes, example.hint) == ((writes[0], writes[2]), "as if t 0/2 was lost")


def test_positions_never_go_backwards_and_are_committed_once():
    reads = [Read("v", (BOTH,), 3)]
    back = [Commit(1, {"t": {0: 1}}), Commit(2, {"t": {1: 1}}), Commit(3, {"t": {0: 1, 1: 1}})]
    verdict = judge(History([ONE, TWO], reads, back), "v", total)
    assert verdict.findings[2].why == "epoch 2 takes back writes that epoch 1 included"
    twice = [Commit(3, {"t": {0: 1}}), Commit(3, {"t": {0: 1, 1: 1}})]
    verdict = judge(History([ONE, TWO], reads, twice), "v", total)
    assert verdict.findings[2].why == "epoch 3 was committed twice, with different positions"
    again = [Commit(3, {"t": {0: 1, 1: 1}})] * 2
    assert found(judge(History([ONE, TWO], reads, again), "v", total))["strong"] is True


def reads_backwards(**second: Any) -> Verdict:
    commits = [Commit(0, {}), Commit(1, {"t": {0: 1, 1: 1}})]
    first = Read("v", (BOTH,), 1, reader="ann", began=1.0, ended=2.0)
    return judge(
        History([ONE, TWO], [first, Read("v", (EMPTY,), 0, **second)], commits), "v", total
    )


def test_readers_never_go_back():
    assert found(reads_backwards(reader="ann"))["strong"] is False
    assert found(reads_backwards(reader="bob", began=3.0))["strong"] is False
    assert found(reads_backwards(reader="bob", began=1.5))["strong"] is True  # at the same time
    assert found(reads_backwards(reader="bob"))["strong"] is True  # who knows when


def test_views_read_at_one_epoch_show_one_state():
    def count(tables: Any) -> list[dict[str, int]]:
        return [{"n": len(tables["t"])}]

    views = [Definition("v", total), Definition("count", count)]
    end = [Read("v", (BOTH,), 2), Read("count", ({"n": 2},), 2)]
    agree = [Read("v", (FIRST,), 1), Read("count", ({"n": 1},), 1), *end]
    assert check_history(History([ONE, TWO], agree), views)[-1].holds(Level.STRONG) is True
    differ = [Read("v", (FIRST,), 1), Read("count", ({"n": 0},), 1), *end]
    *alone, together = check_history(History([ONE, TWO], differ), views)
    assert [verdict.level for verdict in alone] == [Level.STRONG, Level.STRONG]
    assert together.holds(Level.STRONG) is False
    example = together.counterexample(Level.STRONG)
    assert example is not None
    assert [shown.read for shown in example.reads] == differ[:2]


def test_an_epoch_whose_commit_was_not_recorded_lies_between_its_neighbours():
    commits = [Commit(0, {}), Commit(2, {"t": {0: 1}}), Commit(4, {"t": {0: 1, 1: 1}})]

    def at(row: dict[str, int]) -> bool | None:
        reads = [Read("v", (row,), 3), Read("v", (FIRST,), 2), Read("v", (BOTH,), 4)]
        return found(judge(History([ONE, TWO], reads, commits), "v", total))["strong"]

    assert at(FIRST) is True
    assert at(BOTH) is True
    assert at(SECOND) is False
    assert at(EMPTY) is False


def test_what_needs_more_states_than_the_bound_is_undecided():
    writes = writes_of("t", [(f"k{i}", {"k": i, "y": 1}) for i in range(8)])
    reads = states("v", [{"n": 3, "s": 99}], [{"n": 8, "s": 8}])
    verdict = judge(History(writes, reads), "v", total, bound=50)
    assert found(verdict)["weak"] is None
    assert verdict.holds(Level.STRONG) is None
    assert verdict.level is Level.CONVERGENCE
    assert found(judge(History(writes, reads), "v", total, bound=500))["weak"] is False


def test_a_lost_write_is_told_with_the_write_before_it():
    writes = [ONE, replace(ONE, row={"k": 1, "y": 5}, sequence=2), TWO]
    query = "SELECT k, y FROM t WHERE y < 9"
    stale = [{"k": 1, "y": 1}, {"k": 2, "y": 2}]
    verdict = judge(
        History(writes, [Read("v", tuple(stale), 1)], [Commit(1, {"t": {0: 2, 1: 1}})]),
        "v",
        query,
        "k",
    )
    example = verdict.counterexample(Level.STRONG)
    assert example is not None
    assert example.writes == tuple(writes[:2])  # the other record does not matter
    assert example.hint == "as if t 0/2 was lost"
    (shown,) = example.reads
    assert (list(shown.missing), list(shown.unexpected)) == (
        [(("k", 1), ("y", 5))],
        [(("k", 1), ("y", 1))],
    )


def test_sums_of_doubles_may_differ_in_their_last_digits():
    writes = writes_of("t", [(f"k{i}", {"k": i, "y": 0.1}) for i in range(3)])
    query = "SELECT sum(y) AS s, count(*) AS n FROM t"
    commits = [Commit(1, {"t": {0: 1, 1: 1, 2: 1}})]
    for s, strong in ((0.3, True), (0.30000000000000004, True), (0.3001, False)):
        history = History(writes, [Read("v", ({"s": s, "n": 3},), 1)], commits)
        assert found(judge(history, "v", query))["strong"] is strong


@pytest.mark.parametrize(
    ("writes", "reads", "commits", "message"),
    [
        ([replace(ONE, sequence=2)], [], [], "region 0: sequence 1 is missing"),
        ([ONE, ONE], [], [], "sequence 1 was recorded twice"),
        ([ONE, replace(TWO, key=(1,))], [], [], "written in regions 0 and 1"),
        ([ONE], [], [Commit(1, {"t": {0: 2}})], "up to sequence 2, which was not recorded"),
        ([ONE], [Read("v", (), 1), Read("v", ())], [], "some reads of view v say their epoch"),
        ([ONE], [], [], "no reads of view v"),
        ([ONE], [Read("v", (FIRST,), key=(1,))], [], "the view's key is not known"),
        (
            [replace(ONE, began=5.0), replace(ONE, sequence=2, ended=4.0)],
            [],
            [],
            "ended before an earlier one began",
        ),
    ],
)
def test_a_history_that_can_not_be_checked_is_refused(writes, reads, commits, message):
    with pytest.raises(InvalidHistory, match=message):
        judge(History(writes, reads, commits), "v", total)


def test_queries_that_duckdb_evaluates_cut_by_cut_give_the_same():
    steps = range(1, 13)
    writes = [Write("t", (i % 4,), {"k": i % 4, "y": i}, 0, i) for i in steps]
    commits = [Commit(i, {"t": {0: i}}) for i in steps]
    for query in (
        "SELECT k, y FROM t ORDER BY y DESC LIMIT 2",
        "WITH top AS (SELECT max(y) AS y FROM t) SELECT t.k, top.y FROM t, top WHERE t.y = top.y",
        "SELECT k, y FROM t WHERE y > (SELECT avg(y) FROM t)",
        "SELECT k, y, row_number() OVER (ORDER BY y) AS n FROM t",
    ):
        reads = []
        for i in steps:
            rows = _recomputed(writes[:i], query)
            reads.append(Read("v", tuple(rows), i))
        assert judge(History(writes, reads, commits), "v", query).holds(Level.STRONG) is True
        reads[5] = replace(reads[5], rows=reads[5].rows[1:])
        assert judge(History(writes, reads, commits), "v", query).holds(Level.STRONG) is False


def _recomputed(writes: list[Write], query: str) -> list[dict[str, Any]]:
    import duckdb
    import pyarrow as pa

    rows = {write.key: write.row for write in writes}
    with duckdb.connect() as connection:
        connection.register("t", pa.Table.from_pylist(list(rows.values())))
        found = connection.sql(query).to_arrow_table().to_pylist()
    return [dict(row) for row in found]


def test_neighbouring_reads_of_a_long_history_are_decided_in_order():
    values = [{"n": 1, "s": i} for i in range(1, 200)]
    writes = [Write("t", (1,), {"k": 1, "y": i}, 0, i) for i in range(1, 200)]
    assert (
        judge(History(writes, states("v", [EMPTY], *([v] for v in values))), "v", total).level
        is Level.COMPLETE
    )
    for a, b in list(pairwise(range(199)))[::50]:
        swapped = list(values)
        swapped[a], swapped[b % 199] = swapped[b % 199], swapped[a]
        reads = states("v", [EMPTY], *([v] for v in swapped))
        assert found(judge(History(writes, reads), "v", total))["strong"] is False
