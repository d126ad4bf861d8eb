"""One shard serves many tests: to empty it is quicker than to make another."""

from __future__ import annotations

from everview.stores.embedded.state import Shard


def empty(shard: Shard) -> None:
    """As if it were new."""
    environment = shard._environment
    with environment.writing() as txn:
        for db in environment.dbs:
            txn.drop(db, delete=False)
