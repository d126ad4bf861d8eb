"""All operators of this room by the kind of nodes that they work on."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from inspect import getmembers, isclass
from pkgutil import iter_modules

from everview import operators
from everview.operators.base import Operator
from everview.plan.nodes import Node


def _all() -> Iterator[type[Operator]]:
    for module in iter_modules(operators.__path__, f"{operators.__name__}."):
        if module.name != __name__:
            classes = [class_ for _, class_ in getmembers(import_module(module.name), isclass)]
            yield from (
                class_
                for class_ in classes
                if issubclass(class_, Operator) and hasattr(class_, "kind")
            )


BY_KIND = {operator.kind: operator for operator in _all()}


def operator_for(node: Node) -> Operator:
    """The operator of a node; the node must be of a kind that has one."""
    return BY_KIND[node.kind](node)
