"""Every operator is tested over both kinds of state: in memory, and in a shard of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa
import pytest

from everview.delta import WEIGHT
from everview.operators.base import MemoryState
from everview.operators.registry import operator_for
from everview.plan.nodes import Node
from everview.state import State
from everview.stores.embedded import EmbeddedStore
from everview.stores.embedded.shard import EmbeddedShard
from tests import shards
from tests.operators.histories import Row, counted
from tests.shards import NAMES, neighbours, new_shard

Maintain = Callable[[Node, Iterable[list[pa.Table]]], tuple[list[Counter[Row]], int]]


class MemoryShard:
    """What tests need of a `EmbeddedShard`, with its state in memory."""

    def __init__(self) -> None:
        self._state = MemoryState()

    def empty(self) -> None:
        self._state = MemoryState()

    def apply(
        self, epoch: int, token: int, work: Callable[[State], pa.Table], *rest: object
    ) -> pa.Table:
        return work(self._state)

    def values(self) -> Iterator[list[bytes]]:
        yield list(self._state.values.values())

    def size(self) -> tuple[int, int]:
        return len(self._state), 0


@pytest.fixture(scope="session", params=["memory", *NAMES])
def shard(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedShard | MemoryShard]:
    """One shard for all examples of all tests: to empty it is quicker than to make another."""
    if request.param == "memory":
        yield MemoryShard()
        return
    path = tmp_path_factory.mktemp("operators") / "store.ev"
    store = EmbeddedStore(str(path), create=True, durability="never")
    neighbours(store, 0)
    yield new_shard(store, request.param, 0)
    store.close()


@pytest.fixture(scope="session")
def maintain(shard: EmbeddedShard | MemoryShard) -> Maintain:
    """Applies a node's operator to state that is empty at first, each step in a transaction.

    Gives the sum of its outputs after each step, and how many entries its state has in the end.
    """

    def maintained(node: Node, steps: Iterable[list[pa.Table]]) -> tuple[list[Counter[Row]], int]:
        empty(shard)
        operator = operator_for(node)
        view: Counter[Row] = Counter()
        views = []
        for epoch, inputs in enumerate(steps, 1):
            delta = shard.apply(epoch, 1, partial(operator.apply, inputs))
            assert delta.schema.names == [*node.names(), WEIGHT]
            assert delta.schema.types == [*(c.type for c in node.columns), pa.int64()]
            view.update(counted(delta))
            views.append(Counter({row: count for row, count in view.items() if count}))
        return views, shard.size()[0]

    return maintained


def empty(shard: EmbeddedShard | MemoryShard) -> None:
    if isinstance(shard, MemoryShard):
        shard.empty()
    else:
        shards.empty(shard)
