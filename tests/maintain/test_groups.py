"""Groups: views of a group move together, beside those of others."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import everview as ev
from everview.catalog import (
    CHANGES_OF_GROUPS,
    EPOCHS,
    INTENTS,
    LOAD,
    UNSYNCED,
    VIEWS,
    WAITING,
    Unsynced,
    epoch_key,
    title_of,
)
from everview.engines.engine import Engine
from everview.errors import EngineFailed, LogError, Superseded
from everview.maintain import epochs, joining, run, waiting
from everview.spark.source import SailDataSource
from everview.stores.base import OF_VIEWS, consumer_of
from tests.records import change_record, record_of

SPEND = "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer"
LARGE = "SELECT id, amount FROM orders WHERE amount > 50"
NAMED = (
    "SELECT name, sum(amount) AS total FROM orders JOIN customers ON customer = customers.id "
    "GROUP BY name"
)
TOP = "SELECT customer FROM slow_spend WHERE total > 300"
OF_SLOW = ("slow_spend", "slow_named", "slow_top")


@pytest.fixture
def shop(sail: Engine, spark: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    """Two views in the main group, and three in another, with the same operators."""
    with ev.open(tmp_path / "shop.ev", create=True) as db:
        db.engines.use(sail)
        db.sql("CREATE TABLE customers (id INT PRIMARY KEY, name STRING)")
        db.sql("CREATE TABLE orders (id INT PRIMARY KEY, customer INT, amount INT)")
        db.table("customers").put([{"id": i, "name": f"n{i % 3}"} for i in range(8)])
        change(db, random.Random(0), 60)
        create(db, "spend", SPEND)
        create(db, "large", LARGE)
        create(db, "slow_spend", SPEND, "slow")
        create(db, "slow_named", NAMED, "slow")
        create(db, "slow_top", TOP)
        yield db


def create(db: ev.Database, name: str, query: str, group: str | None = None) -> None:
    option = "" if group is None else f"WITH (group = '{group}') "
    db.sql(f"CREATE MATERIALIZED VIEW {name} {option}AS {query}")


def change(db: ev.Database, chance: random.Random, number: int = 12) -> None:
    """Each change is a write of its own, so that an epoch may end between any two."""
    orders, customers = db.table("orders"), db.table("customers")
    for _ in range(number):
        order = {"id": chance.randrange(50), "customer": chance.randrange(8)}
        orders.put(order | {"amount": chance.randrange(100)})
    orders.delete([chance.randrange(50)])
    customers.put({"id": chance.randrange(8), "name": f"n{chance.randrange(4)}"})


def rows(reader: ev.Database | ev.Pin, view: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in reader.view(view).scan())


def recomputed(at: ev.Pin) -> dict[str, Counter[tuple[Any, ...]]]:
    """What the views should show over the tables of a pin."""
    orders = at.table("orders").to_arrow().to_pylist()
    names = {row["id"]: row["name"] for row in at.table("customers").scan()}
    spend: dict[int, list[int]] = {}
    named = Counter[str]()
    for row in orders:
        spend.setdefault(row["customer"], []).append(row["amount"])
        named[names[row["customer"]]] += row["amount"]
    present = {names[row["customer"]] for row in orders}
    spends = Counter((who, len(amounts), sum(amounts)) for who, amounts in spend.items())
    return {
        "spend": spends,
        "slow_spend": spends,
        "large": Counter((r["id"], r["amount"]) for r in orders if r["amount"] > 50),
        "slow_named": Counter((name, named[name]) for name in present),
        "slow_top": Counter((who,) for who, amounts in spend.items() if sum(amounts) > 300),
    }


def differences(db: ev.Database, group: str) -> list[str]:
    """The views of a group that are not as the tables were at its epoch."""
    names = [name for name in db.views if db.view(name).group == group]
    with db.pin(*names, "orders", "customers") as at:
        wanted = recomputed(at)
        return [name for name in names if rows(at, name) != wanted[name]]


class Some(ev.Watcher):
    """Ends after some epochs, the first of which is one of the main group."""

    def __init__(self, most: int) -> None:
        self._left = most
        self.groups: list[str] = []

    def goes_on(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def committed(self, epoch: ev.Epoch) -> None:
        self.groups.append(epoch.group)


class Checked(Some):
    """Compares the views of a group with a recomputation at each of its epochs."""

    def __init__(self, db: ev.Database, most: int = 10**6) -> None:
        super().__init__(most)
        self.db = db
        self.different: list[tuple[ev.Epoch, list[str]]] = []

    def committed(self, epoch: ev.Epoch) -> None:
        super().committed(epoch)
        if names := differences(self.db, epoch.group):
            self.different.append((epoch, names))


def epochs_of(db: ev.Database) -> dict[str, int]:
    return {title_of(g): db.store.catalog.epoch_of(g).number for g in db.store.catalog.groups()}


def test_each_view_equals_a_recomputation_at_every_epoch_of_its_group(shop: ev.Database) -> None:
    chance = random.Random(1)
    assert shop.maintain().failed == {}
    apart = 0
    for _ in range(25):
        change(shop, chance)
        watch = Checked(shop, chance.choice([1, 2, 3, 5]))
        shop.maintain(watch=watch, batch=chance.choice([3, 8, 1000]))
        assert watch.different == []
        apart += rows(shop, "spend") != rows(shop, "slow_spend")
    assert apart > 5, "the groups were rarely apart"
    assert [shop.verify(name).equal for name in shop.views] == [True] * 5
    shop.maintain(watch=Checked(shop))
    assert rows(shop, "spend") == rows(shop, "slow_spend")


def test_verify_compares_with_the_tables_as_of_the_views_group(shop: ev.Database) -> None:
    shop.maintain()
    change(shop, random.Random(2))
    shop.maintain(watch=Some(1))
    assert rows(shop, "spend") != rows(shop, "slow_spend")
    assert shop.view("spend").freshness.total_seconds() == 0
    assert shop.view("slow_spend").freshness.total_seconds() > 0
    assert [shop.verify(name).equal for name in shop.views] == [True] * 5
    assert epochs_of(shop) == {"main": 2, "slow": 1}
    assert (shop.view("spend").epoch, shop.view("slow_spend").epoch) == (2, 1)


def test_groups_take_turns_and_none_starves(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while a view waits, which ends a run of epochs after each turn."""
    shop.maintain()
    change(shop, random.Random(3), 30)
    watch = Some(100)
    shop.maintain(watch=watch, batch=4)
    assert watch.groups[:10] == ["main", "slow"] * 5

    change(shop, random.Random(4), 30)
    shop.sql(f"CREATE OR REPLACE MATERIALIZED VIEW spend AS {SPEND}")
    watch = Some(100)
    monkeypatch.setattr(run, "load_small", lambda _: len(watch.groups) < 10)
    shop.maintain(watch=watch, batch=4)
    assert watch.groups[:10] == ["main", "slow"] * 5


def test_it_is_another_groups_turn_after_someone_else_had_the_lease(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.maintain()
    change(shop, random.Random(3), 30)
    watch = Some(100)
    monkeypatch.setattr(
        type(shop.store.leases), "is_wanted", lambda self, role: len(watch.groups) < 8
    )
    shop.maintain(watch=watch, batch=4)
    assert watch.groups[:8] == ["main", "slow"] * 4


def test_equal_operators_are_shared_within_a_group_only(shop: ev.Database) -> None:
    shop.maintain()
    spend, slow, top = (record_of(shop, v) for v in ("spend", "slow_spend", "slow_top"))
    assert spend.operators.keys() == slow.operators.keys() == top.operators.keys()
    assert spend.operators != slow.operators
    assert slow.operators == top.operators


def test_a_view_that_reads_views_is_in_their_group(shop: ev.Database) -> None:
    assert record_of(shop, "slow_top").group == "slow"
    assert shop.view("slow_top").group == "slow"
    assert (record_of(shop, "spend").group, shop.view("spend").group) == ("", "main")
    assert "group" not in record_of(shop, "spend").to_document()


def test_trimming_waits_for_the_slower_group(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs, "TRIM_EVERY", 1)
    monkeypatch.setattr(epochs, "TRIMMED_SECONDS", -1.0)
    shop.maintain()
    for seed in range(3):
        change(shop, random.Random(seed))
        shop.maintain(watch=Some(1))
    slow = shop.store.catalog.epoch_of("slow").positions["orders"]
    consumers = shop.store.status("orders")[0].consumers
    assert consumers[consumer_of("slow")] == slow[0] < consumers[OF_VIEWS]
    assert shop.store.log("orders")[0].first <= slow[0] + 1
    watch = Checked(shop)
    shop.maintain(watch=watch)
    assert watch.different == []
    log = shop.store.log("orders")[0]
    assert log.first > slow[0] + 1, "what all groups have is gone"


def test_a_table_that_another_group_follows_is_trimmed_no_further_than_a_slow_group_may_need(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view that joins the slow group brings a table, as it was at that group's moment."""
    monkeypatch.setattr(epochs, "TRIM_EVERY", 1)
    monkeypatch.setattr(epochs, "TRIMMED_SECONDS", -1.0)
    shop.sql("CREATE TABLE notes (id INT PRIMARY KEY, n INT)")
    create(shop, "notes_main", "SELECT count(*) AS n FROM notes")
    shop.maintain()
    for number in range(3):
        shop.table("orders").put({"id": number, "customer": 1, "amount": 1})
        shop.table("notes").put({"id": number, "n": number})
    shop.maintain(watch=Some(1))
    create(shop, "notes_slow", "SELECT count(*) AS n FROM notes", "slow")
    shop.maintain(watch=Some(0))
    assert [row["n"] for row in shop.view("notes_slow").scan()] == [0]
    shop.maintain()
    assert [row["n"] for row in shop.view("notes_slow").scan()] == [3]


def test_a_group_without_changes_is_as_of_now_though_its_last_epoch_was_long_ago(
    shop: ev.Database,
) -> None:
    """Other groups may have had the log trimmed since."""
    shop.sql("CREATE TABLE notes (id INT PRIMARY KEY, n INT)")
    create(shop, "notes_main", "SELECT count(*) AS n FROM notes")
    shop.maintain()
    shop.table("notes").put([{"id": number, "n": number} for number in range(3)])
    shop.maintain()
    shop.table("orders").put({"id": 1, "customer": 1, "amount": 1})
    shop.table("notes").put({"id": 4, "n": 4})
    create(shop, "notes_slow", "SELECT count(*) AS n FROM notes", "slow")
    shop.maintain(watch=Some(0))
    assert [row["n"] for row in shop.view("notes_slow").scan()] == [3]


def test_dropping_the_last_view_of_a_group_forgets_it(shop: ev.Database) -> None:
    shop.maintain()
    change(shop, random.Random(5))
    shop.maintain()
    catalog = shop.store.catalog
    assert len(catalog.all(CHANGES_OF_GROUPS)) == 2
    shop.sql("DROP VIEW slow_named")
    assert consumer_of("slow") not in shop.store.status("customers")[0].consumers
    assert set(catalog.epoch_of("slow").positions) == {"orders"}
    shop.sql("DROP VIEW slow_spend CASCADE")
    for kind in (EPOCHS, INTENTS, CHANGES_OF_GROUPS):
        assert catalog.all(kind) == {}
    assert catalog.groups() == [""]
    assert set(shop.store.status("orders")[0].consumers) == {OF_VIEWS}
    assert {view.name for view in catalog.all(VIEWS).values()} == {"large", "spend"}
    create(shop, "slow_spend", SPEND, "slow")
    shop.maintain()
    assert rows(shop, "slow_spend") == rows(shop, "spend")


def test_nobody_else_may_have_the_consumer_of_a_group(shop: ev.Database) -> None:
    with pytest.raises(LogError, match="consumer of all views"):
        shop.table("orders").register(consumer_of("slow"))


def test_a_replaced_view_stays_in_its_group_with_those_that_read_it(shop: ev.Database) -> None:
    shop.maintain()
    change(shop, random.Random(6))
    shop.sql(
        "CREATE OR REPLACE MATERIALIZED VIEW slow_spend AS SELECT customer, count(*) AS n, "
        "sum(amount) + 0 AS total FROM orders GROUP BY customer"
    )
    watch = Checked(shop)
    assert shop.maintain(watch=watch).failed == {}
    assert [shop.view(name).group for name in OF_SLOW] == ["slow"] * 3
    assert watch.different == []
    assert differences(shop, "slow") == differences(shop, "main") == []


def test_followers_get_each_epoch_of_the_views_group_once(shop: ev.Database) -> None:
    shop.maintain()
    change(shop, random.Random(16))
    shop.maintain(watch=Some(1))
    views = ("spend", "slow_spend")
    copies = {view: rows(shop, view) for view in views}
    read = {view: shop.view(view).register("me") for view in views}
    assert read == {"spend": 2, "slow_spend": 1}
    chance = random.Random(7)
    for _ in range(6):
        change(shop, chance)
        shop.maintain(watch=Checked(shop, chance.choice([1, 2, 4])), batch=6)
        for view in views:
            for batch in shop.view(view).changes(read[view]):
                for item in batch.to_pylist():
                    assert item["epoch"] > read[view]
                    for image, sign in (("before", -1), ("after", 1)):
                        if item[image] is not None:
                            copies[view][tuple(item[image].values())] += sign
            read[view] = shop.view(view).epoch
            shop.view(view).acknowledge("me", read[view])
            assert +copies[view] == rows(shop, view)
    assert read["spend"] != read["slow_spend"]


def test_the_spark_source_reads_a_view_as_of_its_group(shop: ev.Database) -> None:
    shop.maintain()
    shop.view("slow_spend").register("me")
    change(shop, random.Random(15))
    shop.maintain(watch=Some(1))
    options = {"db": shop.path, "table": "slow_spend"}
    for more in ({}, {"changes": "true", "startingPosition": "snapshot"}):
        source = SailDataSource({**options, **more})
        reader = source.reader(source.schema())
        parts = [batch for part in reader.partitions() for batch in reader.read(part)]
        found = pa.Table.from_batches(parts).to_pylist()
        if more:
            assert {row["epoch"] for row in found} == {1}
            found = [row["after"] for row in found]
        assert Counter(tuple(row.values()) for row in found) == rows(shop, "slow_spend")
    assert rows(shop, "slow_spend") != rows(shop, "spend")


def test_a_group_for_which_the_engine_fails_does_not_hold_up_the_others(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.maintain()
    change(shop, random.Random(8))
    run = epochs._run_epoch

    def failing(maintainer: Any, group: str) -> bool:
        if group == "":
            raise EngineFailed("the engine sail failed: no memory")
        return run(maintainer, group)

    with monkeypatch.context() as planted:
        planted.setattr(epochs, "_run_epoch", failing)
        with pytest.raises(EngineFailed, match="no memory"):
            shop.maintain()
    assert differences(shop, "slow") == []
    assert shop.view("slow_spend").freshness.total_seconds() == 0
    assert shop.view("slow_spend").status == "live"
    assert shop.view("spend").status == "waiting"
    shop.maintain()
    assert shop.store.catalog.get(WAITING) is None
    assert rows(shop, "spend") == rows(shop, "slow_spend")


def test_a_view_that_fails_stops_at_the_epoch_of_its_group(shop: ev.Database) -> None:
    shop.maintain()
    create(shop, "ratio", "SELECT id, 100 DIV amount AS r FROM orders", "slow")
    shop.table("orders").put([{"id": i, "customer": i % 8, "amount": 5} for i in range(50)])
    shop.maintain()
    shop.table("orders").put({"id": 3, "customer": 3, "amount": 0})
    assert list(shop.maintain().failed) == ["ratio"]
    record = record_of(shop, "ratio")
    assert record.status == "stopped"
    assert record.stopped_at == shop.store.catalog.epoch_of("slow").number - 1
    assert differences(shop, "main") == []
    assert shop.verify("ratio").equal
    shop.table("orders").put({"id": 3, "customer": 3, "amount": 9})
    assert shop.rebuild("ratio").failed == {}
    assert shop.view("ratio").group == "slow"
    assert shop.verify("ratio").equal


def test_renamed_views_stay_in_their_group(shop: ev.Database) -> None:
    shop.maintain()
    shop.sql("ALTER VIEW slow_spend RENAME TO other")
    change(shop, random.Random(9))
    shop.maintain()
    assert shop.view("other").group == "slow"
    assert rows(shop, "other") == rows(shop, "spend")


def test_a_crash_of_the_machine_makes_all_groups_anew(shop: ev.Database) -> None:
    shop.maintain()
    change(shop, random.Random(10))
    shop.maintain(watch=Some(1))
    shop.store.catalog.write({UNSYNCED: Unsynced("an earlier boot")})
    assert shop.view("slow_spend").status == "suspect"
    report = shop.maintain()
    assert report.recovered is not None
    assert sorted(report.loaded) == sorted(shop.views)
    assert differences(shop, "slow") == differences(shop, "main") == []


def test_views_that_are_ahead_of_a_log_stop_in_every_group(shop: ev.Database) -> None:
    shop.maintain()
    for group in ("", "slow"):
        epoch = shop.store.catalog.epoch_of(group)
        ahead = {t: {r: s + 1000 for r, s in at.items()} for t, at in epoch.positions.items()}
        shop.store.catalog.write({epoch_key(group): replace(epoch, positions=ahead)})
    assert set(shop.maintain().failed) == set(shop.views)


@pytest.mark.on_the_engine
def test_a_load_beside_epochs_joins_its_own_group(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "SMALL_ROWS", -1)
    shop.maintain()  # both groups have large views, so there are two loads, one after the other
    assert [shop.view(name).status for name in shop.views] == ["live"] * 5
    chance = random.Random(11)
    for _ in range(3):
        change(shop, chance)
        shop.maintain(watch=Some(1))
    before = epochs_of(shop)
    assert before["main"] > before["slow"]
    joined: list[str] = []
    join = joining.join

    def noted(maintainer: Any, load: Any, epoch: Any, changes: Any) -> None:
        joined.append(load.group)
        change(shop, chance)
        join(maintainer, load, epoch, changes)

    monkeypatch.setattr(joining, "join", noted)
    create(shop, "late", SPEND, "slow")
    shop.maintain()
    assert joined == ["slow"]
    assert shop.store.catalog.get(LOAD) is None
    late, slow = record_of(shop, "late"), record_of(shop, "slow_spend")
    assert late.operators == slow.operators
    assert late.loaded_at > before["slow"]
    assert rows(shop, "late") == rows(shop, "slow_spend")
    change(shop, chance)
    shop.maintain()
    assert rows(shop, "late") == rows(shop, "spend")
    assert [shop.verify(name).equal for name in shop.views] == [True] * 6


@pytest.mark.on_the_engine
def test_a_load_into_one_group_goes_on_beside_epochs_of_both(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.maintain()
    monkeypatch.setattr(waiting, "SMALL_ROWS", -1)
    chance = random.Random(12)
    with shop.maintainer(every=0.01) as maintainer:
        for number in range(3):
            late = f"late{number}"
            create(shop, late, SPEND if number % 2 else NAMED, ["slow", "main"][number % 2])
            for _ in range(4):
                change(shop, chance)
            wait_for(shop.view(late))
    assert maintainer.report.failed == {}
    assert [shop.verify(name).equal for name in shop.views] == [True] * 8
    assert shop.view("late0").freshness.total_seconds() == 0


def wait_for(view: ev.View, seconds: float = 60.0) -> None:
    """Until it is live."""
    until = time.monotonic() + seconds
    while view.status != "live":
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


@pytest.mark.parametrize("bug", ["positions of another group", "state of another group"])
def test_planted_bugs_are_caught(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch, bug: str
) -> None:
    shop.maintain()
    if bug == "positions of another group":
        catalog = type(shop.store.catalog)
        write = catalog.write

        def planted(self: Any, changes: Any, *rest: Any, **more: Any) -> None:
            if epoch := changes.get(EPOCHS["slow"]):
                main = self.epoch.positions
                positions = {table: main.get(table, at) for table, at in epoch.positions.items()}
                changes = {**changes, EPOCHS["slow"]: replace(epoch, positions=positions)}
            write(self, changes, *rest, **more)

        monkeypatch.setattr(catalog, "write", planted)
    else:
        shared = record_of(shop, "spend").operators
        for view in ("slow_spend", "slow_top"):
            change_record(shop, view, states={**record_of(shop, view).states, **shared})
    change(shop, random.Random(13))
    shop.maintain(watch=Some(1))
    change(shop, random.Random(14))
    watch, refused = Checked(shop), False
    try:
        shop.maintain(watch=watch, batch=5)
    except Superseded:  # the state has come to a later epoch, which is another group's
        refused = True
    assert watch.different or refused
    assert bool(watch.different) == (bug == "positions of another group")
