"""Plans that were stored before expressions were trees: they run as they did, as the same nodes."""

from __future__ import annotations

import json

import pytest

from everview.errors import UnsupportedSql
from everview.plan.distribution import distribution
from everview.plan.expressions import Written, both, on_sail, on_spark, readable
from everview.plan.keys import view_key
from everview.plan.nodes import Node, Project, node_of

_SPARK, _SAIL = "/*\ue001on spark*/", "/*\ue001on sail: "
ADDED = f"CAST({_SPARK}(a + 1L){_SAIL}coalesce(try_add(a, 1L), f('/\ue000* *\ue000/'))*/ AS BIGINT)"
HASHED = f"{_SPARK}hash(a){_SAIL}[[not on Sail: Sail hashes otherwise]]*/"
# as version 0.1.0 stored SELECT id, a + 1 AS n FROM t WHERE a > 1 AND upper(b) = 'X'
OLD = [
    {
        "columns": [
            {"name": "id", "nullable": False, "part": "Column", "type": "BIGINT"},
            {"name": "a", "nullable": True, "part": "Column", "type": "BIGINT"},
            {"name": "b", "nullable": True, "part": "Column", "type": "STRING"},
        ],
        "kind": "source",
        "read": ["id", "a", "b"],
        "table": "t",
    },
    {
        "columns": [
            {"name": "id", "nullable": False, "part": "Column", "type": "BIGINT"},
            {"name": "a", "nullable": True, "part": "Column", "type": "BIGINT"},
            {"name": "b", "nullable": True, "part": "Column", "type": "STRING"},
        ],
        "condition": "(a > 1L) AND (upper(b) = 'X')",
        "input": {"node": 0},
        "kind": "filter",
    },
    {
        "columns": [
            {"name": "id", "nullable": False, "part": "Column", "type": "BIGINT"},
            {"name": "n", "nullable": True, "part": "Column", "type": "BIGINT"},
        ],
        "expressions": ["`id`", ADDED],
        "input": {"node": 1},
        "kind": "project",
    },
]
IDENTITIES = ["f6da1ac990f672d48ce5", "67ba830a958334053d4d", "915732c3894379299a53"]


def test_nodes_of_old_keep_their_identities_and_their_json() -> None:
    plan = node_of(json.dumps(OLD))
    assert [node.identity for node in plan.walk()] == IDENTITIES
    assert plan.to_json() == OLD
    assert Node.from_json(plan.to_json()) == plan


def test_texts_of_old_are_asked_of_each_engine_as_they_were() -> None:
    plan = node_of(json.dumps(OLD))
    assert isinstance(plan, Project)
    assert on_spark(plan.expressions[1]) == "CAST((a + 1L) AS BIGINT)"
    assert on_sail(plan.expressions[1]) == "CAST(coalesce(try_add(a, 1L), f('/* */')) AS BIGINT)"
    assert plan.label() == "project `id`, CAST((a + 1L) AS BIGINT) AS n"
    assert view_key(plan, lambda table: ("id",)) == ("id",)
    assert distribution(plan) is None


def test_what_was_refused_on_sail_is() -> None:
    old = Written(f"{HASHED} > 1")
    assert both(old) == ("hash(a) > 1", "NULL > 1")
    assert readable(old) == "hash(a) > 1"
    with pytest.raises(UnsupportedSql, match=r"Sail hashes otherwise.*engine spark"):
        on_sail(old)


def test_texts_of_users_that_look_alike_stay_as_they_are() -> None:
    text = "concat('/*on spark*/', a, '/*on sail: b*/')"
    assert both(Written(text)) == (text, text)


def test_constants_and_queries_of_old_are_read() -> None:
    column = {"name": "a", "nullable": True, "part": "Column", "type": "INT"}
    rows = node_of(json.dumps([{"columns": [column], "kind": "constant", "rows": [["1"], ["2"]]}]))
    assert rows.trees() == [Written("1"), Written("2")]
    query = {"columns": [column], "kind": "refresh", "query": "SELECT 1 AS a", "sources": []}
    assert node_of(json.dumps([query])).trees() == [Written("SELECT 1 AS a")]
