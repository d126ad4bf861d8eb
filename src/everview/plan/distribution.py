"""Which shard a row goes to: fixed by the plan, the same in every epoch.

An operator whose input lies right already gets it as it is, in the same round; otherwise there is a
shuffle, and a new round.
"""

from __future__ import annotations

from everview.plan import placing
from everview.plan.nodes import Node
from everview.plan.placing import UNNAMED, Distribution

_KNOWN = "_distribution"  # where a node has it, once it was asked for


def distribution(node: Node) -> Distribution:
    """How the rows that a node gives lie."""
    if _KNOWN not in vars(node):
        for one in (*node.walk(), node):  # from below, as plans may be deeper than Python's stack
            if _KNOWN not in vars(one):
                vars(one)[_KNOWN] = one.distribution(_of_inputs(one))
    found: Distribution = vars(node)[_KNOWN]
    return found


def shards_by(node: Node) -> tuple[Distribution, ...]:
    """Of an operator: the distribution it needs of each input; None, a copy in every shard."""
    return node.shards_by(_of_inputs(node))


def _of_inputs(node: Node) -> list[Distribution]:
    return [distribution(one) for one in node.inputs()]


def lies(node: Node, by: Distribution) -> bool:
    """Whether a node's rows lie as asked for."""
    found = distribution(node)
    if found is None or by is None or len(found) != len(by):
        return False
    return all(wanted <= place for wanted, place in zip(by, found, strict=True))


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
    """A distribution that has rows equal in `names` in one shard: as they lie, if that does."""
    return placing.keyed(node.columns, distribution(node), names)


__all__ = [
    "UNNAMED",
    "Distribution",
    "distribution",
    "hashed",
    "keyed_by",
    "lies",
    "shards_by",
    "shuffles",
]
