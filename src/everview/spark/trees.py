"""Catalyst's trees, read through py4j."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def kind(thing: Any) -> str:
    """The name of a thing's class."""
    return str(_once(thing, "kind", lambda: str(thing.getClass().getSimpleName())))


def children_of(tree: Any) -> list[Any]:
    """The children of a tree."""
    return list(_once(tree, "below", lambda: list(each(tree.children()))))


def data_type(expression: Any) -> Any:
    """The type of an expression, as an object of Catalyst."""
    return _once(expression, "of", expression.dataType)


def type_of(expression: Any) -> str:
    """The type of an expression, in SQL."""
    return str(_once(expression, "type", lambda: str(data_type(expression).sql())))


def mode_of(expression: Any) -> str:
    """What arithmetic or a cast does if it fails: ANSI, TRY or LEGACY."""
    return str(_once(expression, "mode", lambda: str(expression.evalMode())))


def constant_of(expression: Any) -> Any:
    """The value of a literal in Spark's own form; None for NULL, and for any other expression."""
    if kind(expression) != "Literal":
        return None
    return _once(expression, "value", expression.value)


def _once(thing: Any, name: str, ask: Callable[[], Any]) -> Any:
    """The answer of `ask`, which is kept: each question is a round trip to the JVM."""
    known = vars(thing)
    if name not in known:
        known[name] = ask()
    return known[name]


def each(sequence: Any) -> Iterator[Any]:
    items = sequence.toIndexedSeq()
    for place in range(items.size()):
        yield items.apply(place)


def walk(tree: Any) -> Iterator[Any]:
    yield tree
    for child in children_of(tree):
        yield from walk(child)


def number_of(attribute: Any) -> int:
    """The number by which Catalyst tells a column from others."""
    return int(_once(attribute, "number", lambda: attribute.exprId().id()))


def numbers(attributes: Any) -> set[int]:
    """The numbers of columns."""
    return {number_of(attribute) for attribute in each(attributes)}


def conjuncts(condition: Any) -> Iterator[Any]:
    if kind(condition) == "And":
        for child in children_of(condition):
            yield from conjuncts(child)
    else:
        yield condition


def value(output: Any) -> Any:
    """The expression of an output, without its name."""
    return output.child() if kind(output) == "Alias" else output


def sql_type(expression: Any) -> str:
    """The type of an expression; within arrays and structs everything may be NULL."""
    return str(
        _once(expression, "nullable_type", lambda: str(data_type(expression).asNullable().sql()))
    )


def can_fail(expression: Any) -> bool:
    """Whether an expression itself, apart from its parts, has no result for some values."""
    if kind(expression) == "Cast":
        return type_of(children_of(expression)[0]).startswith("STRING")
    return kind(expression) in ("Divide", "IntegralDivide", "Remainder", "Pmod")


def subqueries(expression: Any) -> list[Any]:
    return [part for part in walk(expression) if kind(part) == "ScalarSubquery"]


def descending(order: Any) -> bool:
    return kind(order.direction()) == "Descending$"


def nulls_first(order: Any) -> bool:
    return kind(order.nullOrdering()) == "NullsFirst$"
