"""Which shard a row goes to: fixed by the plan, the same in every epoch.

A distribution says by the hash of which columns rows lie in shards: for each place in the hash,
the names that have its value. () is one shard, None unknown, UNNAMED that they lie in shards and no
column says any more by what. An operator whose input lies right already gets it as it is, in the
same round; otherwise there is a shuffle, and a new round.
"""

from __future__ import annotations

import pyarrow as pa

from everview.plan.expressions import column_of
from everview.plan.nodes import (
    OPERATORS,
    Aggregate,
    Filter,
    Generate,
    Join,
    Node,
    Project,
    Replace,
    Threshold,
    TopK,
    Touched,
)
from everview.schema import is_nested

Distribution = tuple[frozenset[str], ...] | None
UNNAMED: Distribution = (frozenset(),)
_known: dict[str, Distribution] = {}


def distribution(node: Node) -> Distribution:
    """How the rows that a node gives lie."""
    if node.identity not in _known:
        for one in node.walk():  # from below, as plans may be deeper than Python's stack
            if one.identity not in _known:
                _known[one.identity] = _distribution(one)
    return _known[node.identity]


def _distribution(node: Node) -> Distribution:
    if isinstance(node, Filter):
        return distribution(node.input)
    if isinstance(node, Project):
        made = zip(map(column_of, node.expressions), node.names(), strict=True)
        shown = [(old, name) for old, name in made if old is not None]
        return _shown(shown, distribution(node.input))
    if isinstance(node, Generate):
        return _shown([(name, name) for name in node.kept], distribution(node.input))
    if isinstance(node, Aggregate | Threshold | TopK | Replace):
        return shards_by(node)[0]
    if isinstance(node, Join):
        by = shards_by(node)[0]
        if node.how == "full":
            return None
        if by is not None and node.how == "inner" and not node.replicated:
            pairs = dict(zip(node.left_keys, _right_names(node), strict=True))
            return tuple(names | {pairs[n] for n in names if n in pairs} for names in by)
        return by
    return None


def shards_by(node: Node) -> tuple[Distribution, ...]:
    """Of an operator: the distribution it needs of each input; None, a copy in every shard."""
    if isinstance(node, Aggregate | Touched | Replace):
        return (keyed_by(node.input, node.groups),)
    if isinstance(node, Threshold):
        return (_as_it_lies(node.input), None)
    if isinstance(node, TopK):
        return ((),)
    assert isinstance(node, Join)
    if node.replicated and node.left_keys:
        lies_by = distribution(node.left)
        return (_as_it_lies(node.left) if lies_by is None else lies_by, None)
    if node.replicated:
        return (_as_it_lies(node.left), None)
    places = _places(node)
    return (
        tuple(frozenset({node.left_keys[i]}) for i in places),
        tuple(frozenset({node.right_keys[i]}) for i in places),
    )


def lies(node: Node, by: Distribution) -> bool:
    """Whether a node's rows lie as asked for."""
    found = distribution(node)
    if found is None or by is None or len(found) != len(by):
        return False
    return all(wanted <= place for wanted, place in zip(by, found, strict=True))


def shuffles(node: Node) -> bool:
    """Whether a node's inputs are shuffled, when all of them have changes."""
    if not isinstance(node, OPERATORS):
        return False
    by = shards_by(node)
    return len(by) > 1 or not lies(node.inputs()[0], by[0])


def hashed(node: Node, names: tuple[str, ...]) -> tuple[frozenset[str], ...]:
    """A distribution by columns, as far as equal values have equal hashes on every engine."""
    return tuple(frozenset({name}) for name in names if _hashes_alike(node.column(name).type))


def _hashes_alike(type_: pa.DataType) -> bool:
    """Not so: floats, equal ones of which may differ in their bits; decimals too wide for 64 bits,
    which Spark and Sail hash differently; intervals, which Sail doesn't hash; and arrays, structs
    and maps."""
    wide = pa.types.is_decimal(type_) and type_.precision > 18
    other = pa.types.is_floating(type_) or pa.types.is_duration(type_)
    return not (wide or other or is_nested(type_))


def keyed_by(node: Node, names: tuple[str, ...]) -> tuple[frozenset[str], ...]:
    """A distribution that has rows equal in `names` in one shard: as they lie, if that does."""
    by = distribution(node)
    if by is None or not all(place & set(names) for place in by):
        return hashed(node, names)
    return tuple(place & set(names) for place in by)


def _as_it_lies(node: Node) -> tuple[frozenset[str], ...]:
    """As rows lie by columns, or else by all of them."""
    by = distribution(node)
    return hashed(node, tuple(node.names())) if by is None or by == UNNAMED else by


def _places(node: Join) -> list[int]:
    """Which of a join's keys decide about the shard: those that one side lies by, else all."""
    for side, keys in ((node.left, node.left_keys), (node.right, node.right_keys)):
        by = distribution(side)
        if by and all(place & set(keys) for place in by):
            return [next(i for i, key in enumerate(keys) if key in place) for place in by]
    wanted = {name for place in hashed(node.left, node.left_keys) for name in place}
    return [i for i, key in enumerate(node.left_keys) if key in wanted]


def _right_names(node: Join) -> list[str]:
    """The right keys as the join names them in its output."""
    shown = dict(zip(node.right.names(), node.names()[len(node.left.columns) :], strict=True))
    return [shown[key] for key in node.right_keys]


def _shown(made: list[tuple[str, str]], by: Distribution) -> Distribution:
    """A distribution in the names that columns have further up: pairs of old and new ones."""
    if by is None:
        return None
    shown: dict[str, set[str]] = {}
    for old, new in made:
        shown.setdefault(old, set()).add(new)
    places = [frozenset(n for name in place for n in shown.get(name, ())) for place in by]
    return tuple(places) if all(places) else UNNAMED
