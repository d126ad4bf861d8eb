"""order_joins: before and after."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everview.plan.expressions import Ref
from everview.plan.facts import Facts
from everview.plan.nodes import Join, Node, Project, Source
from everview.plan.rules.order_joins import order_joins
from everview.schema import Column
from tests.plan.samples import Tables, facts_of, numbers

# lines of orders, orders of customers, few customers
TABLES = Tables(
    step=1,
    lines=numbers(40_000, of_order=8_000),
    orders=numbers(8_000, of_customer=800),
    customers=numbers(800, city=5),
    chosen=numbers(8),
)


def source(table: str, *names: str) -> Source:
    return Source(tuple(Column(f"{table}_{n}", pa.int64()) for n in names), table, names)


def joined(left: Node, right: Node, one: str, other: str) -> Join:
    columns = (*left.columns, *right.columns)
    return Join(columns, left, right, "inner", (one,), (other,), (False,), False)


LINES = source("lines", "id", "of_order")
ORDERS = source("orders", "id", "of_customer")
CHOSEN = source("chosen", "id")
# all lines with their orders are kept, and then most of them match nothing
BEFORE = joined(
    joined(LINES, ORDERS, "lines_of_order", "orders_id"), CHOSEN, "orders_of_customer", "chosen_id"
)
EVENLY = {"lines": 0.8, "orders": 0.16, "customers": 0.02, "chosen": 0.02}


def tables_of(node: Node) -> object:
    """The order of joins as nested tuples of tables."""
    while isinstance(node, Project):
        node = node.input
    if isinstance(node, Join):
        return tables_of(node.left), tables_of(node.right)
    assert isinstance(node, Source)
    return node.table


def test_what_leaves_few_rows_comes_first_and_the_columns_stay() -> None:
    after = order_joins(BEFORE, facts_of(TABLES, EVENLY))
    assert tables_of(after) == ("lines", ("orders", "chosen"))
    assert isinstance(after, Join)
    assert after.columns == BEFORE.columns
    assert (after.left_keys, after.right_keys) == (("lines_of_order",), ("orders_id",))
    turned = joined(ORDERS, LINES, "orders_id", "lines_of_order")
    before = joined(turned, CHOSEN, "orders_of_customer", "chosen_id")
    same = order_joins(before, facts_of(TABLES, EVENLY))
    assert same == Project(before.columns, after, tuple(map(Ref, before.names())))


def test_the_same_names_in_several_tables_are_kept_apart() -> None:
    same = [
        Source((Column("id", pa.int64()), Column("next", pa.int64())), table, ("id", name))
        for table, name in (("lines", "of_order"), ("orders", "of_customer"))
    ]
    inner = Join(
        (*same[0].columns, Column("id_2", pa.int64()), Column("next_2", pa.int64())),
        *same,
        *("inner", ("next",), ("id",), (False,), False),
    )
    before = joined(inner, CHOSEN, "next_2", "chosen_id")
    after = order_joins(before, facts_of(TABLES, EVENLY))
    assert tables_of(after) == ("lines", ("orders", "chosen"))
    assert after.columns == before.columns
    assert after.names() == ["id", "next", "id_2", "next_2", "chosen_id"]


@pytest.mark.parametrize(
    ("why", "facts"),
    [
        ("nothing is known", Facts()),
        (
            "the joins are there",
            facts_of(TABLES, EVENLY, frozenset({BEFORE.identity, BEFORE.left.identity})),
        ),
        ("a view is among the relations", Facts({}, facts_of(TABLES, EVENLY).costs)),
    ],
)
def test_an_order_stays(why: str, facts: Facts) -> None:
    assert order_joins(BEFORE, facts) == BEFORE


def test_an_order_that_is_hardly_worse_stays() -> None:
    customers = source("customers", "id", "city")
    before = joined(
        joined(LINES, ORDERS, "lines_of_order", "orders_id"),
        customers,
        *("orders_of_customer", "customers_id"),
    )
    never = {"lines": 0.0, "orders": 0.0, "customers": 1.0, "chosen": 0.0}
    assert order_joins(before, facts_of(TABLES, never)) == before


def test_tables_that_change_often_pass_few_joins() -> None:
    customers = source("customers", "id", "city")
    before = joined(
        joined(LINES, ORDERS, "lines_of_order", "orders_id"),
        customers,
        *("orders_of_customer", "customers_id"),
    )
    often = {"lines": 1.0, "orders": 0.0, "customers": 0.0, "chosen": 0.0}
    after = order_joins(before, facts_of(TABLES, often))
    assert tables_of(after) == ("lines", ("orders", "customers"))
    assert order_joins(before, facts_of(TABLES, often)) == after, "it is deterministic"
