"""The operator contract.

Law: however the changes are batched, the sum of an operator's outputs equals the query over the
sum of its inputs. An operator is a pure function of delta and state; what it reads and writes
happens in one transaction of the shard, together with a note of the epoch, so a replay of an
epoch never reaches it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import pyarrow as pa


class State(Protocol):
    """Byte values by key, of one shard of one operator, in one transaction."""

    def get_many(self, keys: list[bytes]) -> list[bytes]:
        """The values of ascending keys, b"" where there is none."""

    def put_many(self, keys: list[bytes], values: list[bytes]) -> None:
        """Set the values of ascending keys; b"" removes one."""


class MemoryState(dict[bytes, bytes]):
    """State in a dict, for tests and for what needs no memory of its own."""

    def get_many(self, keys: list[bytes]) -> list[bytes]:
        return [self.get(key, b"") for key in keys]

    def put_many(self, keys: list[bytes], values: list[bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            if value:
                self[key] = value
            else:
                self.pop(key, None)


class Operator(ABC):
    @abstractmethod
    def apply(self, delta: pa.Table, state: State) -> pa.Table:
        """The delta of the output that the delta of the input makes; updates the state."""
