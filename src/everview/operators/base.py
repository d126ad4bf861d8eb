"""The operator contract.

Law: however the changes are batched, the sum of an operator's outputs equals the query over the
sum of its inputs. An operator is a pure function of deltas and state. It reads and writes in one
transaction of the shard, which also notes the epoch, so a replay of an epoch never reaches it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from everview.errors import Damaged
from everview.schema import Column
from everview.state import Bag, State

SEVERAL = "a scalar subquery gave more than one row; have it give one, as with max(...) or LIMIT 1"


class MemoryState:
    """State in memory, for tests and for rows that are computed once and not stored."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.bags: dict[bytes, Counter[bytes]] = {}

    def __len__(self) -> int:
        return len(self.values) + sum(map(len, self.bags.values()))

    def get_many(self, keys: list[bytes]) -> list[bytes]:
        return [self.values.get(key, b"") for key in keys]

    def put_many(self, keys: list[bytes], values: list[bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            if value:
                self.values[key] = value
            else:
                self.values.pop(key, None)

    def has_bags(self) -> bool:
        return bool(self.bags)

    def get_bags(self, keys: list[bytes]) -> Bag:
        entries = [
            (place, row, count)
            for place, key in enumerate(keys)
            for row, count in self.bags.get(key, {}).items()
        ]
        places, rows, counts = zip(*entries, strict=True) if entries else ((), (), ())
        return np.array(places, np.int64), list(rows), np.array(counts, np.uint32)

    def change_bags(self, keys: list[bytes], rows: list[bytes], weights: list[int]) -> None:
        for key, row, weight in zip(keys, rows, weights, strict=True):
            bag = self.bags.setdefault(key, Counter())
            bag[row] += weight
            if bag[row] < 0:
                raise Damaged("a row of state would be there a negative number of times")
            if bag[row] == 0:
                del bag[row]
            if not bag:
                del self.bags[key]

    def count_rows(self, keys: list[bytes], rows: list[bytes]) -> list[int]:
        pairs = zip(keys, rows, strict=True)
        return [self.bags.get(key, Counter())[row] for key, row in pairs]

    def first(self, key: bytes, last: bool = False) -> bytes | None:
        bag = self.bags.get(key)
        return None if bag is None else (max if last else min)(bag)

    def scan_bags(
        self, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes, int]]:
        for key in sorted(self.bags):
            if key >= start and (stop is None or key <= stop):
                for row in sorted(self.bags[key]):
                    yield key, row, self.bags[key][row]


class Operator(ABC):
    """Works on the nodes of one kind. It is built from a node, and has no state of its own."""

    kind: ClassVar[str]

    @abstractmethod
    def __init__(self, node: Any) -> None: ...

    @property
    def partial_columns(self) -> tuple[Column, ...] | None:
        """The columns of `partial`; None if this operator has no partial results."""
        return None

    def partial(self, delta: pa.Table) -> pa.Table:
        """A delta of its one input in fewer rows, for a shuffle; `apply` takes it as well."""
        raise NotImplementedError(f"{self.kind} has no partial results")

    @abstractmethod
    def apply(self, inputs: list[pa.Table], state: State) -> pa.Table:
        """The delta of the output for the deltas of the inputs; updates the state.

        There is a delta for each input of the node, in its order; some may have no rows.
        """
