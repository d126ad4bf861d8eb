"""Random changes: what they promise about keys, sizes and values."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest

import everview as ev
from everview.tpch import KEYS, QUERIES, create_tables
from everview.tpch.changes import ORDERS_AND_LINES, REFERENCES, Changes, Mix, apply
from tests.following import follow, keys_in
from tests.tpch.oracle import recompute, tables_of

Tables = dict[str, pa.Table]
Keys = dict[str, set[tuple[int, ...]]]


@pytest.mark.parametrize("law", ["uniform", "zipf"])
@pytest.mark.parametrize("loaded", [True, False])
def test_each_row_changes_once_and_only_rows_that_are_there_are_deleted(
    rows: Tables, law: Literal["uniform", "zipf"], loaded: bool
) -> None:
    changes = Changes(rows, np.random.default_rng(1), keys=law, loaded=loaded)
    keys = {name: set(keys_in(KEYS[name], rows[name]) if loaded else ()) for name in KEYS}
    kinds: Counter[str] = Counter()
    for size in (1, 10, 1000, 5000, 5000, 5000):
        kinds += follow(KEYS, keys, changes.epoch(size))
    if loaded:
        assert sum(kinds.values()) == pytest.approx(16_011, rel=0.02)
        shares = [kinds[kind] / 16_011 for kind in ("insert", "update", "delete")]
        assert shares == pytest.approx([0.3, 0.38, 0.32], abs=0.03)
    assert all(len(keys[name]) for name in KEYS)


def test_a_seed_gives_the_same_epochs_again(rows: Tables) -> None:
    one, same, other = (Changes(rows, np.random.default_rng(s), nulls=0.1) for s in (5, 5, 6))
    for _ in range(3):
        epoch = one.epoch(300)
        assert epoch == same.epoch(300)
        assert epoch != other.epoch(300)


def test_only_the_wanted_tables_change_and_references_lead_to_rows(rows: Tables) -> None:
    changes = Changes(rows, np.random.default_rng(2))
    keys = {name: set(keys_in(KEYS[name], rows[name])) for name in KEYS}
    epoch = changes.epoch(4000, ORDERS_AND_LINES)
    follow(KEYS, keys, epoch)
    assert list(epoch) == ["orders", "lineitem"]
    assert len(epoch["lineitem"]) == pytest.approx(3200, rel=0.02)
    orders = {key for (key,) in keys["orders"]}
    lines = epoch["lineitem"].puts["l_orderkey"].to_pylist()
    assert sum(order in orders for order in lines) > 0.95 * len(lines)


def test_updates_also_change_keys_that_views_join_and_group_by(rows: Tables) -> None:
    epoch = Changes(rows, np.random.default_rng(3)).epoch(20_000, mix=Mix(0, 0.9, 0.1, 0))
    for table in ("customer", "supplier", "part", "partsupp", "orders", "lineitem"):
        changes, names = epoch[table], rows[table].column_names
        before = dict(zip(keys_in(KEYS[table], rows[table]), rows[table].to_pylist(), strict=True))
        after = zip(keys_in(KEYS[table], changes.puts), changes.puts.to_pylist(), strict=True)
        changed = Counter(
            name
            for key, row in after
            if key in before
            for name in names
            if row[name] != before[key][name]
        )
        same = {name for name in names if len(rows[table][name].unique()) == 1}
        assert set(changed) == {*names} - {*KEYS[table]} - same
        assert {name for name in names if name in REFERENCES} - {*KEYS[table]} <= set(changed)


def test_zipf_returns_to_few_rows_and_uniform_does_not(rows: Tables) -> None:
    def most_frequent(law: Literal["uniform", "zipf"]) -> int:
        changes = Changes(rows, np.random.default_rng(4), keys=law)
        epochs = [changes.epoch(300, {"orders": 1}, Mix(0, 1, 0, 0)) for _ in range(20)]
        keys = Counter(
            key for epoch in epochs for key in keys_in(KEYS["orders"], epoch["orders"].puts)
        )
        return max(keys.values())

    assert most_frequent("zipf") > 15
    assert most_frequent("uniform") < 6


def test_rows_arrive_as_they_were_given_but_for_some_values(rows: Tables) -> None:
    changes = Changes(rows, np.random.default_rng(6), loaded=False)
    everything = Mix(insert=1, update=0, move=0, delete=0, revived=1)
    epoch = changes.epoch(10**6, {name: len(rows[name]) for name in rows}, everything)
    for name in KEYS:
        put, there = (keys_in(KEYS[name], table) for table in (epoch[name].puts, rows[name]))
        assert sorted(put) == sorted(there)
    assert all(not len(table) for table in changes.epoch(500, mix=everything).values())


def count_changes(db: ev.Database) -> int:
    return sum(held.last for name in KEYS for held in db.table(name).log().values())


def test_the_queries_keep_finding_rows(rows: Tables, db: ev.Database) -> None:
    create_tables(db)
    for name in KEYS:
        db.table(name).put(rows[name])
    changes = Changes(rows, np.random.default_rng(7))
    found: Counter[str] = Counter()
    for _ in range(6):
        epoch = changes.epoch(2000)
        logged = count_changes(db)
        changed, asked = apply(db, epoch), sum(map(len, epoch.values()))
        assert changed == count_changes(db) - logged
        assert 0.9 * asked < changed <= asked
        for query, answer in recompute(tables_of(db)).items():
            found[query] += any(value is not None for row in answer.rows for value in row)
    assert all(found[query] for query in QUERIES), found
