"""The first rows of each group in an order."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.groups import GroupCodec
from everview.delta import weighted
from everview.operators.bags import BagRows, bagged
from everview.operators.base import Operator
from everview.operators.topk import SortKey, first_of, in_order, negative, sort_keys
from everview.plan.nodes import TopKByGroup
from everview.state import ORDERED_BYTES, State

_DIGEST = 16  # bytes


class TopKByGroupOperator(Operator):
    """Keep all rows of each group in order and give the first k; rows that tie come in the order of
    their bytes.

    Law:   sum of outputs == the first k of each group of (sum of inputs).
    State: digest of the group, sort key -> rows.
    Cost:  one write for each changed row, and k rows of each touched group read twice.
    """

    kind = TopKByGroup.kind

    def __init__(self, node: TopKByGroup) -> None:
        self._node = node
        self._groups = GroupCodec([node.column(name) for name in node.groups])
        self._keys = [SortKey(node.column(order.column), order) for order in node.order]
        self._rows = BagRows(node.columns)

    def apply(self, inputs: list[pa.Table], state: State) -> pa.Table:
        (delta,) = inputs
        encoded = self._groups.encode(delta).dictionary_encode()
        digests = [
            blake2b(group, digest_size=_DIGEST).digest() for group in encoded.dictionary.to_pylist()
        ]
        touched = sorted(digests)
        before = self._first(touched, state)
        groups = pa.array(digests, pa.binary()).take(encoded.indices)
        keys = pc.binary_join_element_wise(groups, sort_keys(delta, self._keys), b"")
        bagged(delta, keys, self._rows.encode(delta)).change(state)
        return pa.concat_tables([negative(before), self._first(touched, state)])

    def _first(self, groups: list[bytes], state: State) -> pa.Table:
        """The first rows of groups, as a delta."""
        offset, limit = self._node.offset, self._node.limit
        found = [
            entry
            for group in groups
            for entry in first_of(self._ordered(group, state), offset, limit)
        ]
        rows, counts = zip(*found, strict=True) if found else ((), ())
        return weighted(self._rows.decode(list(rows)), np.array(counts, np.int64))

    def _ordered(self, group: bytes, state: State) -> Iterator[tuple[bytes, int]]:
        """The stored rows of a group in order, and how often each occurs."""
        last = group + b"\xff" * (ORDERED_BYTES - len(group))
        stored = (entry for entry in state.scan_bags(group, last) if entry[0].startswith(group))
        return in_order(stored, lambda rows: sort_keys(self._rows.decode(rows), self._keys))
