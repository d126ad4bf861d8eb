"""What epochs took, in the document and in the text of EXPLAIN."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everview.explain.measured import with_analysis
from everview.explain.plan import as_text, explain
from everview.explain.work import Analysis, OperatorWork
from everview.plan.nodes import Node, Union
from everview.stores.work import Work
from tests.explain.test_plan import JOINED, REVENUE, TOP

KEY = ("l_order",)
NONE = Work(0, 0, 0, 0, 0, 0)


def work(rows_in: int, rows_out: int, milliseconds: int, reads: int, writes: int) -> Work:
    return Work(9, rows_in, rows_out, milliseconds * 10**6, reads, writes)


OPERATORS = {
    JOINED.identity: OperatorWork(
        {0: work(900, 900, 70, 0, 900), 1: work(100, 100, 30, 0, 100)},
        {0: work(3_000, 2_000, 50, 5_000, 3_000), 1: work(1_000, 1_000, 10, 2_000, 1_000)},
    ),
    REVENUE.identity: OperatorWork(
        {}, {0: work(1_000, 30, 20, 15, 15), 1: work(2_000, 40, 10, 20, 20)}
    ),
    TOP.identity: OperatorWork({}, {0: work(70, 4, 8, 20, 70), 1: NONE}),
    "view": OperatorWork({}, {0: work(4, 2, 2, 2, 2), 1: NONE}),
}
ANALYSIS = Analysis([3, 4, 9], {"orders": 1_500, "lines": 1}, OPERATORS)


def shown(plan: Node, found: Analysis | None, **more: Any) -> list[str]:
    document = {"view": "dear", "status": "live", "epoch": 9, **explain(plan, KEY), **more}
    text = as_text(with_analysis(document, plan, found), 140)
    return [line.rstrip() for line in text.splitlines()]


def test_every_operator_has_what_its_epochs_took_and_the_engine_s_nodes_have_nothing() -> None:
    assert shown(TOP, ANALYSIS)[3:] == [
        "analyzed: 3 epochs, 3 to 9, with 1,501 changes of its tables; loading took its "
        "operators 100 ms",
        "Spark runs its nodes as one program: they have no numbers of their own",
        "",
        "round  plan                                               runs in     rows in"
        "  rows out  reads  writes    time  share  skew",
        "    3  view                                               one shard         4"
        "         2      2       2  2.0 ms     2%",
        "    3  top 10 by (call_0 DESC)                            one shard        70"
        "         4     20      70  8.0 ms     8%",
        "    2  aggregate by (l_order): sum(l_price)               by l_order    3,000"
        "        70     35      35   30 ms    30%  1.3x",
        "    2  inner join on o_key = l_order                      by o_key      4,000"
        "     3,000  7,000   4,000   60 ms    60%  1.5x",
        "    1  ├─ source orders (o_key, o_customer)               Spark         1,500",
        "    1  └─ filter (l_price IS NOT NULL) AND (l_price > 3)  Spark",
        "    1     source lines (l_order, l_price)                 Spark             1",
        "       total                                                                           "
        "  7,057   4,107  100 ms",
        "       for 1,000 changes                                                               "
        "  4,702   2,736   67 ms",
    ]


def test_the_document_has_it_as_plain_data() -> None:
    document = with_analysis(explain(TOP, KEY), TOP, ANALYSIS)
    assert json.loads(json.dumps(document)) == document
    assert document["analysis"]["epochs"] == [3, 4, 9]
    assert document["analysis"]["changes"] == 1_501
    assert document["analysis"]["total"] == {"reads": 7_057, "writes": 4_107, "seconds": 0.1}
    assert document["analysis"]["load"] == {"reads": 0, "writes": 1_000, "seconds": 0.1}
    top = document["plan"]["inputs"][0]
    assert top["work"]["skew"] is None, "all of its rows are in one shard"
    join = top["inputs"][0]["inputs"][0]
    assert join["work"] == {
        "rows_in": 4_000,
        "rows_out": 3_000,
        "reads": 7_000,
        "writes": 4_000,
        "seconds": 0.06,
        "share": 0.6,
        "skew": 1.5,
        "load": {"rows_in": 1_000, "rows_out": 1_000, "reads": 0, "writes": 1_000, "seconds": 0.1},
    }
    assert join["inputs"][0]["work"] == {"changes": 1_500}
    assert join["inputs"][1]["work"] is None


def test_a_part_that_comes_twice_counts_once() -> None:
    both = Union(REVENUE.columns, (REVENUE, REVENUE))
    operators = {name: OPERATORS[name] for name in (JOINED.identity, REVENUE.identity)}
    operators["view"] = OperatorWork({}, {0: work(70, 35, 10, 35, 35), 1: NONE})
    lines = shown(both, Analysis([2], {"orders": 1, "lines": 0}, operators))
    assert sum("60%" in line for line in lines) == 1
    assert sum("30%" in line for line in lines) == 1
    assert lines[3].startswith("analyzed: epoch 2, with 1 change of its tables; ")
    assert lines[-2].split() == ["total", "7,070", "4,070", "100", "ms"]


@pytest.mark.parametrize(
    ("found", "status", "said"),
    [
        (None, "new", "analyzed: nothing, as it was not loaded yet"),
        (Analysis([], {"orders": 0, "lines": 0}, {}), "live", "its tables did not change since"),
        (Analysis([], {"orders": 0, "lines": 0}, {}), "stopped", "before it was stopped are not"),
    ],
)
def test_a_view_without_epochs_says_so_and_shows_its_plan(
    found: Analysis | None, status: str, said: str
) -> None:
    lines = shown(TOP, found, status=status)
    assert said in lines[3]
    assert lines[4:6] == ["", shown(TOP, None)[5]]
    assert lines[5].endswith("state rows  bytes")
    assert len(lines) == 6 + sum(1 for _ in TOP.walk()) + 1


def test_rows_that_no_shard_has_have_no_skew() -> None:
    assert OperatorWork({}, {0: NONE, 1: NONE}).skew is None
    assert OperatorWork({}, {0: NONE, 1: work(5, 0, 0, 0, 0)}).skew == 2
    assert OperatorWork({}, {n: work(5, 0, 0, 0, 0) for n in range(4)}).skew == 1
