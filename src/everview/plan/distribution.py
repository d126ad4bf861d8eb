"""Which shard a row goes to: fixed by the plan, the same in every epoch.

An operator whose input lies right already gets it as it is, in the same round; otherwise the input
is shuffled, in a new round.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from everview.plan import placing
from everview.plan.nodes import Node
from everview.plan.placing import UNNAMED, Distribution
from everview.schema import Column

T = TypeVar("T")


def distribution(node: Node) -> Distribution:
    """How the rows of a node lie in shards."""
    return _once(node, "_distribution", lambda below: below.distribution(_of_inputs(below)))


def _once(node: Node, name: str, ask: Callable[[Node], T]) -> T:
    """The answer of `ask` for a node, which stays in an attribute of each node that is asked."""
    if name not in vars(node):
        for below in (*node.walk(), node):  # inputs first, as plans may be deeper than the stack
            if name not in vars(below):
                vars(below)[name] = ask(below)
    answer: T = vars(node)[name]
    return answer


def shards_by(node: Node) -> tuple[Distribution, ...]:
    """The distribution that an operator needs of each input; None is a copy in every shard."""
    return node.shards_by(_of_inputs(node))


def _of_inputs(node: Node) -> list[Distribution]:
    return [distribution(input_node) for input_node in node.inputs()]


def lies(node: Node, by: Distribution) -> bool:
    """Whether a node's rows have a distribution."""
    actual = distribution(node)
    if actual is None or by is None or len(actual) != len(by):
        return False
    return all(needed <= place for needed, place in zip(by, actual, strict=True))


def lies_whole(node: Node) -> bool:
    """Whether a node's rows come in whole shards, and not in any slots of one: an operator needs
    copies of an input in every shard, or gets rows as they lie from one that does."""

    def of(below: Node) -> bool:
        if not below.is_operator:
            return any(map(lies_whole, below.inputs()))
        return any(map(takes_whole, below.inputs(), shards_by(below)))

    return _once(node, "_lies_whole", of)


def takes_whole(node: Node, by: Distribution) -> bool:
    """Whether a node's rows come in whole shards to who needs them in a distribution."""
    return by is None or (lies(node, by) and lies_whole(node))


@lru_cache(1024)
def columns_of_slot(plan: Node, key: tuple[str, ...]) -> tuple[Column, ...]:
    """The columns of a view's key whose values say in which slot a row lies."""
    return tuple(plan.column(min(place)) for place in keyed_by(plan, key))


def shuffles(node: Node) -> bool:
    """Whether a node's inputs are shuffled, when all of them have changes."""
    if not node.is_operator:
        return False
    by = shards_by(node)
    return len(by) > 1 or not lies(node.inputs()[0], by[0])


def hashed(node: Node, names: tuple[str, ...]) -> tuple[frozenset[str], ...]:
    """A distribution by columns, as far as equal values have equal hashes on every engine."""
    return placing.hashed(node.columns, names)


def keyed_by(node: Node, names: tuple[str, ...]) -> tuple[frozenset[str], ...]:
    """A distribution that puts rows which are equal in `names` in one shard: the node's own, if it
    does."""
    return placing.keyed(node.columns, distribution(node), names)


__all__ = [
    "UNNAMED",
    "Distribution",
    "columns_of_slot",
    "distribution",
    "hashed",
    "keyed_by",
    "lies",
    "lies_whole",
    "shards_by",
    "shuffles",
    "takes_whole",
]
