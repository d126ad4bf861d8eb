"""What operators ask of their state; the shards of every store provide it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

ORDERED_BYTES = 480  # of a key, by which scans are in order
Bag = tuple[np.ndarray, list[bytes], np.ndarray]


class State(Protocol):
    """One shard of an operator's state, in one transaction: values and bags of rows, by key.

    A bag is a multiset of byte strings. Keys are given in ascending order, each once; rows of a
    bag are prefix-free where their order matters.
    """

    def get_many(self, keys: list[bytes]) -> list[bytes]:
        """The values of keys, b"" where there is none."""

    def put_many(self, keys: list[bytes], values: list[bytes]) -> None:
        """Set the values of keys; b"" removes one."""

    def has_bags(self) -> bool:
        """Whether any bag has a row."""

    def get_bags(self, keys: list[bytes]) -> Bag:
        """All rows under the keys: for each the place of its key, the row, and its count.

        Places ascend. A row may come more than once, each time with a part of its count.
        """

    def change_bags(self, keys: list[bytes], rows: list[bytes], weights: list[int]) -> None:
        """Add a weight (not 0) to how often rows[i] is under keys[i]; each pair comes once.

        Raises `Damaged` if a row would be there a negative number of times.
        """

    def count_rows(self, keys: list[bytes], rows: list[bytes]) -> list[int]:
        """How often rows[i] is under keys[i]."""

    def first(self, key: bytes, last: bool = False) -> bytes | None:
        """The least row under a key, or the greatest; None if there is none."""

    def scan_bags(
        self, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes, int]]:
        """(key, row, count) for keys from start to stop inclusive, in order; rows as in `get_bags`.

        Keys that agree in their first `ORDERED_BYTES` may come in any order, and perhaps cut after
        them; so may keys outside the range that agree in them with start or stop.
        """
