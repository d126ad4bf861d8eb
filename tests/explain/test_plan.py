"""A plan explained: rounds, places, what is kept and shared, and lines that can be read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from everview.explain.plan import INCREMENTAL, REREADS, as_text, explain
from everview.plan.conditions import Condition
from everview.plan.expressions import Ref, Written, all_of
from everview.plan.nodes import (
    Aggregate,
    Call,
    Filter,
    Join,
    Node,
    Order,
    Project,
    Source,
    Threshold,
    TopK,
    Union,
)
from everview.schema import Column
from tests.plan.trees import tree


def source(table: str, *names: str) -> Source:
    return Source(tuple(Column(name, pa.int64()) for name in names), table, names)


def join(left: Node, right: Node, how: str, *keys: str) -> Join:
    columns = left.columns + (right.columns if how in ("inner", "left") else ())
    left_keys, right_keys = keys[:1], keys[1:]
    return Join(columns, left, right, how, left_keys, right_keys, (False,) * len(left_keys), False)


def total(node: Node, *groups: str, of: str) -> Aggregate:
    columns = (*map(node.column, groups), Column("call_0", pa.int64()))
    return Aggregate(columns, node, groups, (Call("sum", of),))


ORDERS = source("orders", "o_key", "o_customer")
LINES = source("lines", "l_order", "l_price")
DEAR = Filter(
    LINES.columns, LINES, all_of([tree("({l_price} IS NOT NULL)"), tree("({l_price} > 3)")])
)
JOINED = join(ORDERS, DEAR, "inner", "o_key", "l_order")
REVENUE = total(JOINED, "l_order", of="l_price")
TOP = TopK(REVENUE.columns, REVENUE, (Order("call_0", True, False),), 10)


def parts(plan: Node, key: tuple[str, ...] = (), **how: Any) -> dict[str, dict[str, Any]]:
    """The nodes of the document by label; of equal ones the last."""
    found: dict[str, dict[str, Any]] = {}

    def walk(node: dict[str, Any]) -> None:
        found[node["label"]] = node
        for one in node["inputs"]:
            walk(one)

    walk(explain(plan, key or tuple(plan.names()), **how)["plan"])
    return found


def attached(rows: Node, scalar: Node) -> Join:
    columns = (*rows.columns, Column("scalar", pa.int64()))
    return Join(columns, rows, scalar, "left", (), (), (), True)


def test_every_node_has_its_round_and_what_needs_no_shuffle_stays_in_it() -> None:
    found = parts(TOP, ("l_order",))
    assert found["source orders (o_key, o_customer)"]["round"] == 1
    assert found[DEAR.label()]["round"] == 1
    assert found[JOINED.label()]["round"] == 2
    assert found[REVENUE.label()]["round"] == 2, "the join's rows lie by the group already"
    assert found[TOP.label()]["round"] == 3
    assert found["view"]["round"] == 3, "one shard has all rows of every key"


def test_rows_lie_by_keys_or_in_one_shard_or_in_every_shard() -> None:
    found = parts(TOP)
    assert (found[JOINED.label()]["by"], found[JOINED.label()]["place"]) == (["o_key"], "by o_key")
    assert found[REVENUE.label()]["by"] == ["l_order"]
    assert (found[TOP.label()]["by"], found[TOP.label()]["place"]) == ([], "one shard")
    whole = total(LINES, of="l_price")
    threshold = Threshold(LINES.columns, LINES, whole, "l_price", ">")
    found = parts(threshold)
    assert found[threshold.label()]["place"] == "by whole row"
    assert [one["copied"] for one in found[threshold.label()]["inputs"]] == [False, True]
    assert "its right side is copied to every shard" in as_text(explain(threshold, ("l_order",)))


def test_stateless_nodes_run_in_spark_and_the_others_are_operators() -> None:
    found = parts(TOP)
    runs = {label: node["runs"] for label, node in found.items()}
    operators = {label for label, where in runs.items() if where == "operator"}
    assert operators == {"view", TOP.label(), REVENUE.label(), JOINED.label()}
    assert {runs[label] for label in set(runs) - operators} == {"Spark"}
    assert {node["maintained"] for node in found.values()} == {INCREMENTAL}


def test_a_scalar_attached_to_rows_says_that_it_re_reads_them() -> None:
    plan = attached(LINES, total(LINES, of="l_price"))
    found = parts(plan)
    assert found[plan.label()]["maintained"] == REREADS
    document = explain(plan, ("l_order",))
    assert document["maintained"] == "incremental, but 1 of its operators may re-read"
    assert f"· {REREADS}" in as_text(document)


def test_state_is_shown_where_it_is_and_summed_once() -> None:
    both = Union(
        (Column("n", pa.int64()),),
        tuple(
            Project((Column("n", pa.int64()),), REVENUE, (Ref(name),)) for name in ("l_order",) * 2
        ),
    )

    def size(node: Node | None) -> tuple[int, int] | None:
        return (10, 4_096) if node is None else (1_000, 50_000) if node == REVENUE else None

    document = explain(both, ("n",), size, lambda node: ["other"] if node == REVENUE else [])
    assert document["state"] == {"rows": 1_010, "bytes": 54_096}
    text = as_text(document)
    (line,) = [line for line in text.splitlines() if "1,000" in line]
    assert "aggregate by (l_order)" in line
    assert line.endswith("50 kB")
    assert text.count("· shared with other") == 1
    assert text.count("inner join") == 1
    assert text.count("· as above") == 1
    assert "1,010 rows of its state (54 kB) are there already" in text


def test_a_document_is_plain_data() -> None:
    document = explain(TOP, ("l_order",))
    assert json.loads(json.dumps(document)) == document


def test_a_tree_has_the_view_on_top_and_each_input_under_its_node() -> None:
    text = as_text({"view": "dear", **explain(TOP, ("l_order",))})
    assert [line.rstrip() for line in text.splitlines()] == [
        "view dear: not created",
        "key: l_order",
        "3 rounds, no state yet; maintained: incremental",
        "",
        "round  plan                                               runs in               state rows"
        "  bytes",
        "    3  view                                               operator, one shard",
        "    3  top 10 by (call_0 DESC)                            operator, one shard",
        "    2  aggregate by (l_order): sum(l_price)               operator, by l_order",
        "    2  inner join on o_key = l_order                      operator, by o_key",
        "    1  ├─ source orders (o_key, o_customer)               Spark",
        "    1  └─ filter (l_price IS NOT NULL) AND (l_price > 3)  Spark",
        "    1     source lines (l_order, l_price)                 Spark",
    ]


@pytest.mark.parametrize("width", [110, 140])
def test_long_labels_are_cut_where_they_say_least_and_whole_in_the_document(width: int) -> None:
    names = [f"column_number_{i}" for i in range(20)]
    wide = source("wide", *names)
    condition = " AND ".join([f"({n} IS NOT NULL)" for n in names[:5]] + [f"({names[0]} > 7)"])
    filtered = Filter(wide.columns, wide, Written(condition))
    computed = f"CAST({names[1]} + 1 AS BIGINT)"
    plan: Node = Project(wide.columns, filtered, (*map(Ref, names[:19]), Written(computed)))
    for _ in range(2):
        plan = join(plan, source("other", "o"), "semi", names[0], "o")
    document = explain(plan, (names[0],))
    assert condition in json.dumps(document)
    lines = as_text(document, width).splitlines()[4:]
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert f"filter ({names[0]} > 7)" in text
    assert f"project {computed[:20]}" in text
    assert f"source wide ({names[0]}, … 19 more)" in text or width > 110


def test_of_a_source_its_conditions_are_shown_rather_than_its_columns() -> None:
    names = [f"column_number_{i}" for i in range(9)]
    where = (Condition("day", ">", ("1995-03-15",)),)
    plan = replace(source("wide", *names), where=where)
    document = explain(plan, (names[0],))
    assert f"{names[8]}) where day > '1995-03-15' " in as_text(document, 400)
    assert " source wide (9 columns) where day > '1995-03-15' " in as_text(document)
