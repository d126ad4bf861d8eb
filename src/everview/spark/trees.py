"""Catalyst's trees, seen through py4j."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def kind(thing: Any) -> str:
    """The name of its class."""
    return str(_once(thing, "kind", lambda: str(thing.getClass().getSimpleName())))


def children_of(tree: Any) -> list[Any]:
    """The trees below its top."""
    return list(_once(tree, "below", lambda: list(each(tree.children()))))


def data_type(expression: Any) -> Any:
    """Its type as Catalyst has it."""
    return _once(expression, "of", expression.dataType)


def type_of(expression: Any) -> str:
    """Its type as SQL has it."""
    return str(_once(expression, "type", lambda: str(data_type(expression).sql())))


def mode_of(expression: Any) -> str:
    """What arithmetic or a cast does where it fails: ANSI, TRY or LEGACY."""
    return str(_once(expression, "mode", lambda: str(expression.evalMode())))


def constant_of(expression: Any) -> Any:
    """The value of a literal as Spark has it inside; None of anything else, and of NULL."""
    if kind(expression) != "Literal":
        return None
    return _once(expression, "value", expression.value)


def _once(thing: Any, name: str, ask: Callable[[], Any]) -> Any:
    """An answer that is asked for once: each question is a round trip to the JVM."""
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
    """What Catalyst tells it apart by."""
    return int(_once(attribute, "number", lambda: attribute.exprId().id()))


def numbers(attributes: Any) -> set[int]:
    """What Catalyst tells columns apart by."""
    return {number_of(attribute) for attribute in each(attributes)}


def conjuncts(condition: Any) -> Iterator[Any]:
    if kind(condition) == "And":
        for child in children_of(condition):
            yield from conjuncts(child)
    else:
        yield condition


def value(output: Any) -> Any:
    """The expression of an output, without the name it is given."""
    return output.child() if kind(output) == "Alias" else output


def sql_type(expression: Any) -> str:
    """The type of an expression; within arrays and structs everything may be NULL."""
    return str(_once(expression, "kept", lambda: str(data_type(expression).asNullable().sql())))


def can_fail(expression: Any) -> bool:
    """Whether there are values for which it has none, apart from what its parts are."""
    if kind(expression) == "Cast":
        return type_of(children_of(expression)[0]).startswith("STRING")
    return kind(expression) in ("Divide", "IntegralDivide", "Remainder", "Pmod")


def subqueries(expression: Any) -> list[Any]:
    return [part for part in walk(expression) if kind(part) == "ScalarSubquery"]


def descending(order: Any) -> bool:
    return kind(order.direction()) == "Descending$"


def nulls_first(order: Any) -> bool:
    return kind(order.nullOrdering()) == "NullsFirst$"
