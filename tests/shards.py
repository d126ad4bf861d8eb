"""Shards as tests need them."""

from __future__ import annotations

from everview.stores.base import Store
from everview.stores.embedded.shard import EmbeddedShard


def empty(shard: EmbeddedShard) -> None:
    """Make it as if it were new, which is quicker than to make another."""
    environment = shard.environment
    with environment.writing() as txn:
        for db in environment.dbs:
            txn.drop(db, delete=False)


def new_shard(store: Store, state: str, number: int) -> EmbeddedShard:
    """A shard of a state that need not be there yet."""
    store.states.create(state, [number])
    shard = store.states.shard(state, number)
    assert isinstance(shard, EmbeddedShard)
    return shard
