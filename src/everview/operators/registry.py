"""The operators by the kind of nodes that they work on: every class of this room that has one."""

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
            classes = [one for _, one in getmembers(import_module(module.name), isclass)]
            yield from (
                one for one in classes if issubclass(one, Operator) and hasattr(one, "kind")
            )


BY_KIND = {operator.kind: operator for operator in _all()}


def operator_for(node: Node) -> Operator:
    """The operator of a node that has one."""
    return BY_KIND[node.kind](node)
