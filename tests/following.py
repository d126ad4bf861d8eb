"""What a stream of changes says of keys, followed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from everview.tpch.changes import Epoch

Key = tuple[int, ...]


def keys_in(names: tuple[str, ...], rows: pa.Table) -> list[Key]:
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


def follow(
    names: Mapping[str, tuple[str, ...]], keys: dict[str, set[Key]], epoch: Epoch
) -> Counter[str]:
    """Apply an epoch to sets of keys, `names` having the columns of each table's; each key changes
    once and only keys that are there go."""
    kinds: Counter[str] = Counter()
    for table, changes in epoch.items():
        puts, deletes = (keys_in(names[table], rows) for rows in (changes.puts, changes.deletes))
        assert len({*puts, *deletes}) == len(puts) + len(deletes) == len(changes)
        assert keys[table].issuperset(deletes)
        kinds["update"] += len(keys[table].intersection(puts))
        kinds["insert"] += len(set(puts) - keys[table])
        kinds["delete"] += len(deletes)
        keys[table] = (keys[table] | set(puts)).difference(deletes)
    return kinds
