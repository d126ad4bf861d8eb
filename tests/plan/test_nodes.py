"""Plans come back from JSON as they were, and know what tells a view's rows apart."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa

from everview.plan.expressions import Ref
from everview.plan.keys import view_key
from everview.plan.nodes import Aggregate, Call, Filter, Join, Node, Project, Source
from everview.schema import Column
from tests.plan.trees import tree

ID, NAME = Column("id_0", pa.int64(), False), Column("na`me_1", pa.decimal128(38, 3))
SOURCE = Source((ID, NAME), "t", ("id", "name"))
COUNTED = Aggregate(
    (NAME, Column("call_0", pa.int64(), False)), SOURCE, ("na`me_1",), (Call("count", None),)
)


def shown(node: Node, **columns: str) -> Project:
    types = {column.name: column.type for column in node.columns}
    made = tuple(Column(name, types[text]) for name, text in columns.items())
    return Project(made, node, tuple(map(Ref, columns.values())))


def key_of(plan: Node) -> tuple[str, ...]:
    return view_key(plan, lambda table: ("id",))


def test_a_plan_comes_back_from_json_as_it_was() -> None:
    plan = shown(Filter(COUNTED.columns, COUNTED, tree("{call_0} > 1")), n="call_0", who="na`me_1")
    assert Node.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_a_plan_is_as_large_as_the_nodes_that_differ() -> None:
    plan: Node = shown(SOURCE, id="id_0")
    for _ in range(60):
        plan = Join(plan.columns, plan, plan, "semi", ("id",), ("id",), (False,), False)
    assert len(plan.to_json()) == sum(1 for _ in plan.walk()) == 62
    again = Node.from_json(json.loads(plan.text))
    assert again == plan
    assert hash(again) == hash(plan)
    assert again.inputs()[0] is again.inputs()[1]
    assert len(plan.own_text) < 1000


def test_a_plan_may_be_deep() -> None:
    plan: Node = SOURCE
    for i in range(2000):
        plan = Filter(plan.columns, plan, tree(f"{{id_0}} > [{i} INT]"))
    assert Node.from_json(plan.to_json()) == plan
    assert key_of(plan) == ("id_0",)


def test_what_came_later_leaves_nodes_that_do_not_have_it_as_they_were() -> None:
    assert all("growing" not in node for node in COUNTED.to_json())
    grown = replace(COUNTED, growing=True)
    assert Node.from_json(grown.to_json()) == grown
    assert grown.identity != COUNTED.identity


def test_groups_are_the_key_of_a_view_that_shows_them() -> None:
    assert key_of(shown(COUNTED, n="call_0", who="na`me_1")) == ("who",)
    assert key_of(shown(COUNTED, n="call_0")) == ("n",)


def test_the_key_of_its_table_is_the_key_of_a_view_that_shows_it() -> None:
    assert key_of(shown(SOURCE, name="na`me_1", number="id_0")) == ("number",)
    assert key_of(shown(SOURCE, name="na`me_1")) == ("name",)
    narrow = Source((NAME,), "t", ("name",))
    assert key_of(shown(narrow, name="na`me_1", again="na`me_1")) == ("name", "again")


def test_a_full_join_of_two_single_rows_may_have_two() -> None:
    single = Aggregate((COUNTED.columns[1],), SOURCE, (), (Call("count", None),))
    other = replace(single, columns=(Column("other", pa.int64(), False),))
    columns = (*single.columns, *other.columns)
    joined = Join(columns, single, other, "full", ("call_0",), ("other",), (False,), False)
    assert key_of(joined) == ("call_0", "other")
    assert key_of(replace(joined, how="left")) == ()
