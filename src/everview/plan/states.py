"""The expected size of an operator's state: items, and their bytes on disk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from everview.plan.estimates import Estimate, Estimates
from everview.plan.nodes import Node
from everview.schema import has_floats

_PAGE, _PAGE_HEAD, _ITEM = 4096, 16, 10  # LMDB: an item has a header and a place in its page
_SUBPAGE = 2000  # with more bytes, the rows under one key have pages of their own
_SEAL = 4
_TAG = 8  # the first bytes of a key: the name of the state, a tag and a null bitmap
_FILLED = 0.95  # of a page, when loaded in order
_SPLIT = 24  # bytes of a view row beside the row: epoch, lengths, count


@dataclass(frozen=True)
class Size:
    items: float
    bytes: float

    def __add__(self, other: Size) -> Size:
        return Size(self.items + other.items, self.bytes + other.bytes)


def state_of(node: Node, estimates: Estimates, shards: int) -> Size:
    """The expected state of an operator in so many shards."""
    return sum(_parts(node, estimates, shards), Size(0, 0))


def view_rows(plan: Node, key: tuple[str, ...], estimates: Estimates) -> Size:
    """The expected size of a view's own rows."""
    rows = estimates.of(plan)
    count = rows.distinct(key) if key else min(rows.rows, 1.0)
    row = rows.width(plan.names()) + len(plan.columns) / 8 + _SPLIT + _SEAL
    return _plain(count, _TAG + rows.width(key), row)


def _parts(node: Node, estimates: Estimates, shards: int) -> Iterable[Size]:
    for part in node.state_items():
        rows = estimates.of(part.rows)
        if part.value is None:
            size = _bag(rows, part.key, part.names, part.in_key)
        else:
            keys = estimates.of(part.groups).rows if part.groups else rows.distinct(part.key)
            size = _plain(keys, _TAG + rows.width(part.key), part.value + _SEAL)
        yield _times(size, shards) if part.copied else size


def _bag(rows: Estimate, key: tuple[str, ...], names: Iterable[str], in_key: bool = False) -> Size:
    """Rows under a key; columns that the key holds exactly are not stored again."""
    exact = {n for n in key if in_key and not has_floats(rows.node.column(n).type)}
    body = [name for name in names if name not in exact]
    items = rows.distinct([*key, *body]) if rows.rows else 0.0
    keys = min(rows.distinct(key), items) if key else min(items, 1.0)
    wide = rows.width(body) + (len(body) + 7) // 8 + _SEAL
    return _under_keys(items, max(keys, 1e-9), _TAG + rows.width(key), wide)


def _under_keys(items: float, keys: float, key: float, value: float) -> Size:
    """Rows of a bag: alone under their key, together in a part of its page, or in pages of their
    own."""
    each = items / keys
    if each < 1.5:
        return _plain(items, key, value)
    together = _PAGE_HEAD + each * (_ITEM + value)
    if together > _SUBPAGE:
        pages = max(1.0, together / (_PAGE * _FILLED))
        return Size(items, keys * ((_ITEM + key + 48) / _FILLED + _PAGE * pages))
    return Size(items, keys * (_ITEM + key + together) / _FILLED)


def _plain(items: float, key: float, value: float) -> Size:
    return Size(items, items * (_ITEM + key + value) / _FILLED)


def _times(size: Size, copies: int) -> Size:
    return Size(size.items * copies, size.bytes * copies)
