"""Checks what a plan does with arrays, structs and maps: they can be compared for equality, but
state keeps them in no order."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from everview.errors import UnsupportedSql
from everview.plan.nodes import Aggregate, Node, Order
from everview.schema import Column, is_nested, sql_name


def check_ordered(plan: Node, order: tuple[Order, ...]) -> None:
    """Raises `UnsupportedSql` if the view puts nested values in order, or groups by maps."""
    for what, column in _ordered(plan, order):
        if is_nested(column.type):
            raise UnsupportedSql(
                f"{what} {column.name}, of type {sql_name(column.type)}, can't be maintained yet; "
                "take a field or an element of it"
            )
    for node in plan.walk():
        for column in map(node.column, node.groups) if isinstance(node, Aggregate) else ():
            if has_map(column.type):
                raise UnsupportedSql(
                    f"GROUP BY of a value of type {sql_name(column.type)} can't be "
                    "maintained yet; take an element of it"
                )


def _ordered(plan: Node, order: tuple[Order, ...]) -> Iterator[tuple[str, Column]]:
    """The columns whose values a plan puts in order, and what for."""
    yield from (("ORDER BY", plan.column(by.column)) for by in order)
    for node in plan.walk():
        yield from node.ordered_columns()


def has_map(arrow: pa.DataType) -> bool:
    """Whether values of the type contain a map: these have no order at all."""
    parts = [arrow.field(i).type for i in range(arrow.num_fields)]
    return bool(pa.types.is_map(arrow)) or any(map(has_map, parts))
