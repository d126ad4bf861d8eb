"""Many states in few files, and what becomes of databases whose states have files of their own."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
import pyarrow as pa
import pytest

import everview as ev
from everview import stores
from everview.engines.engine import Engine
from everview.errors import DatabaseError
from everview.maintain import beside, loads, waiting
from everview.state import State
from everview.stores.embedded.environment import Environment
from everview.stores.embedded.store import EmbeddedStore
from everview.stores.embedded.volumes import is_volume
from tests.records import all_states, record_of

VIEWS = 12


@pytest.fixture
def shop(sail: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "shop.ev", create=True) as db:
        db.engines.use(sail)
        db.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer STRING, amount BIGINT)")
        order(db, range(40))
        yield db


def order(db: ev.Database, ids: range, amount: int = 1) -> None:
    db.table("orders").put([{"id": i, "customer": f"c{i % 4}", "amount": amount * i} for i in ids])


def create(db: ev.Database, numbers: range) -> None:
    for n in numbers:
        db.sql(
            f"CREATE MATERIALIZED VIEW v{n} AS SELECT customer, sum(amount) AS total, max(id) AS m "
            f"FROM orders WHERE id % {VIEWS} >= {n} GROUP BY customer"
        )


def check(db: ev.Database, numbers: range) -> None:
    orders = db.table("orders").to_arrow().to_pylist()
    for n in numbers:
        totals, last = Counter[str](), dict[str, int]()
        for row in orders:
            if row["id"] % VIEWS >= n:
                totals[row["customer"]] += row["amount"]
                last[row["customer"]] = max(row["id"], last.get(row["customer"], 0))
        rows = {row["customer"]: (row["total"], row["m"]) for row in db.view(f"v{n}").scan()}
        assert rows == {customer: (totals[customer], last[customer]) for customer in last}


def directories(db: ev.Database) -> list[str]:
    return sorted(os.listdir(Path(db.path, "state")))


def items_of(db: ev.Database, directory: str, number: int) -> int:
    """How many values and rows of bags there are in an environment."""
    assert isinstance(db.store, EmbeddedStore)
    environment = db.store.states.environment(directory, number)
    with environment.reading() as txn:
        return sum(int(txn.stat(one)["entries"]) for one in environment.dbs[:2])


def test_views_share_files_and_an_epoch_is_one_write_of_each(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(shop, range(VIEWS))
    shop.maintain()
    assert directories(shop) == ["volume-views0"]
    order(shop, range(30, 60))
    writes = Counter[str]()
    writing = Environment.writing

    @contextmanager
    def counted(self: Environment) -> Iterator[lmdb.Transaction]:
        writes[os.path.relpath(self.path, shop.path)] += 1
        with writing(self) as txn:
            yield txn

    monkeypatch.setattr(Environment, "writing", counted)
    monkeypatch.setattr("everview.programs.direct.is_small", lambda step, most=None: True)
    shop.maintain()
    of_states = {path: number for path, number in writes.items() if path.startswith("state")}
    assert of_states
    assert set(of_states.values()) == {1}
    check(shop, range(VIEWS))


def test_a_full_map_in_the_middle_of_an_epoch_repeats_it(sail: Engine, tmp_path: Path) -> None:
    with ev.open(tmp_path / "shop.ev", create=True, map_size=1 << 18) as shop:
        shop.engines.use(sail)
        shop.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer STRING, amount BIGINT)")
        shop.sql("CREATE MATERIALIZED VIEW whole AS SELECT customer, id FROM orders")
        order(shop, range(10))
        create(shop, range(VIEWS))
        shop.maintain()
        for first in range(0, 8000, 2000):
            order(shop, range(first, first + 2000), amount=2)
            assert not shop.maintain().failed
        check(shop, range(VIEWS))
        assert len(shop.view("whole")) == 8000


@pytest.mark.direct
def test_a_view_that_fails_leaves_the_others_of_its_volume_as_they_should_be(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(shop, range(VIEWS))
    shop.sql("CREATE MATERIALIZED VIEW narrow AS SELECT sum(CAST(amount AS TINYINT)) FROM orders")
    shop.maintain()
    order(shop, range(50, 60), amount=1000)
    assert shop.maintain().failed.keys() == {"narrow"}
    check(shop, range(VIEWS))
    order(shop, range(60, 70))
    shop.maintain()
    check(shop, range(VIEWS))


def test_dropped_views_leave_nothing_in_a_volume_that_others_use(shop: ev.Database) -> None:
    create(shop, range(VIEWS))
    shop.maintain()
    before = set(shop.store.states.names())
    for n in range(1, VIEWS):
        shop.sql(f"DROP VIEW v{n}")
        assert set(shop.store.states.names()) == all_states(shop) < before
    check(shop, range(1))
    numbers = record_of(shop, "v0").shards
    known = sum(
        shop.store.states.shard(state, number).size()[0]
        for state in all_states(shop)
        for number in numbers
    )
    assert known == sum(items_of(shop, "volume-views0", number) for number in numbers) > 0
    shop.sql("DROP VIEW v0")
    assert {items_of(shop, "volume-views0", number) for number in numbers} == {0}


@pytest.mark.parametrize("name", ["000000000001", "7fffffffffff", "ffffffffffff"])
def test_what_a_large_state_leaves_is_swept_bit_by_bit(
    shop: ev.Database, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everview.stores.embedded.shard._AT_ONCE", 100)
    states = shop.store.states

    def fill(state: State) -> pa.Table:
        keys = [b"\xff\xff" + n.to_bytes(2, "big") for n in range(400)]
        state.put_many(keys, [b"value"] * len(keys))
        state.change_bags(keys, [b"row" * 300] * len(keys), [1] * len(keys))
        return pa.table({})

    create(shop, range(2))
    shop.maintain()
    others = items_of(shop, "volume-views0", 12)
    state = f"views0.{name}"
    states.create(state, [12])
    states.shard(state, 12).load(1, 1, fill)
    assert items_of(shop, "volume-views0", 12) == others + 800
    states.drop(state, used=all_states(shop))
    assert state not in states.names()
    assert items_of(shop, "volume-views0", 12) == others + 700
    sweeps = 1
    while states.sweep():
        sweeps += 1
    assert sweeps >= 7
    assert items_of(shop, "volume-views0", 12) == others
    check(shop, range(2))


def test_a_large_load_has_files_of_its_own_and_keeps_them(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(shop, range(2))
    shop.maintain()
    monkeypatch.setattr(waiting, "SMALL_ROWS", -1)
    create(shop, range(2, VIEWS))
    shop.maintain()
    numbered, *others = sorted(directories(shop), reverse=True)
    assert numbered == "volume-views0"
    assert len(others) == 1, "all that are loaded together share them"
    order(shop, range(20, 80), amount=3)
    shop.maintain()
    check(shop, range(VIEWS))
    for n in range(2, VIEWS):
        shop.sql(f"DROP VIEW v{n}")
    assert directories(shop) == ["volume-views0"]
    check(shop, range(2))


def test_states_with_files_of_their_own_go_on_and_the_format_becomes_ours(
    shop: ev.Database, sail: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database of format 4 has only such states."""
    names = (f"{n:012x}" for n in range(1000))
    with monkeypatch.context() as patch:
        patch.setattr(loads, "new_state", lambda volume: next(names))
        patch.setattr(beside, "_states_of_new_volume", lambda: names)
        create(shop, range(2))
        shop.maintain()
        patch.setattr(waiting, "SMALL_ROWS", -1)
        create(shop, range(2, 4))
        shop.maintain()
    assert not any(map(is_volume, directories(shop)))
    before, path = all_states(shop), shop.path
    shop.close()
    stores._shared.cache_clear()  # another process would have no handle of this one
    file = Path(path, "FORMAT")
    file.write_text("everview 4\n")
    with ev.open(path, readonly=True) as reader:
        check(reader, range(4))
        with pytest.raises(DatabaseError, match="has format 4, and other processes use it"):
            ev.open(path)
    assert file.read_text() == "everview 4\n"
    with ev.open(path) as db:
        assert file.read_text() == "everview 6\n"
        db.engines.use(sail)
        order(db, range(20, 50), amount=5)
        create(db, range(4, 6))
        assert not db.maintain().failed
        check(db, range(6))
        assert before < all_states(db)
        for n in range(4):
            db.sql(f"DROP VIEW v{n}")
        assert directories(db) == ["volume-views0"]


def test_an_epoch_that_was_committed_in_some_files_only_is_done_once(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill between two commits."""
    create(shop, range(VIEWS))
    shop.maintain()
    order(shop, range(30, 60), amount=7)
    commits = 0
    after_commit = Environment._after_commit

    def once(self: Environment) -> None:
        nonlocal commits
        after_commit(self)
        if "volume-" in self.path:
            commits += 1
            if commits == 1:
                raise KeyboardInterrupt("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Environment, "_after_commit", once)
        patch.setattr("everview.programs.direct.is_small", lambda step, most=None: True)
        with pytest.raises(KeyboardInterrupt):
            shop.maintain()
    order(shop, range(60, 70))
    assert not shop.maintain().failed
    check(shop, range(VIEWS))
