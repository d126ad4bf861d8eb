"""Shards as tests need them."""

from __future__ import annotations

import pyarrow as pa

from everview.state import State
from everview.stores.base import Store
from everview.stores.embedded.shard import EmbeddedShard

# a state that has files for itself, and one that lies between others of its volume
NAMES = ("operator", "views0.800000000000")
_NEIGHBOURS = ("views0.7fffffffffff", "views0.800000000001")


def empty(shard: EmbeddedShard) -> None:
    """Make it as if it were new, which is quicker than to make another."""
    with shard.environment.writing() as txn:
        shard._clear(txn)
        txn.delete(b"token", db=shard.environment.dbs[-1])
    shard.make()


def new_shard(store: Store, state: str, number: int) -> EmbeddedShard:
    """A shard of a state that need not be there yet."""
    store.states.create(state, [number])
    shard = store.states.shard(state, number)
    assert isinstance(shard, EmbeddedShard)
    return shard


def neighbours(store: Store, number: int) -> None:
    """Fill the states beside the one that lies between others."""

    def work(state: State) -> pa.Table:
        keys = [b"\0", b"a", b"k" * 600, b"\xff" * 500]
        state.put_many(keys, [b"neighbour"] * len(keys))
        state.change_bags(keys, [b"neighbour" * 100] * len(keys), [2] * len(keys))
        return pa.table({})

    for name in _NEIGHBOURS:
        new_shard(store, name, number).load(1, 0, work)
