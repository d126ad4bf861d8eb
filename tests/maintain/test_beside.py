"""Large views are loaded beside the epochs of the others, and join them at one epoch."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import everview as ev
from everview.batch import Batch
from everview.catalog import LOAD, PACE, VIEWS, LoadRecord
from everview.catalog.loads import CATCHING_UP, LOADING, READY
from everview.engines.engine import Engine
from everview.errors import EngineFailed, ViewNotFound
from everview.maintain import beside, epochs, joining, loader, waiting
from everview.maintain.cut import cut
from everview.maintain.run import maintain
from everview.maintain.views import maintenance_paused
from everview.programs import pacing, workers
from everview.stores.base import OF_LOADS
from tests.records import all_states, record_of

pytestmark = pytest.mark.on_the_engine  # a load of few rows would be done at once

SPEND = "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer"
NAMED = (
    "SELECT name, count(*) AS n, sum(amount) AS total "
    "FROM orders JOIN customers ON customer = customers.id GROUP BY name"
)
MOST = "SELECT name, max(amount) AS most FROM orders JOIN customers ON customer = customers.id GROUP BY name"  # noqa: E501
RANKS = "SELECT id, rank() OVER (PARTITION BY customer ORDER BY amount, id) AS r FROM orders"


@pytest.fixture(autouse=True)
def every_load_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SMALL_ROWS", -1)
    monkeypatch.setattr(pacing, "NOTED_ROWS", 10)


@pytest.fixture
def shop(engine: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "shop.ev", create=True) as db:
        db.engines.use(engine)
        db.sql("CREATE TABLE customers (id INT PRIMARY KEY, name STRING)")
        db.sql(
            "CREATE TABLE orders (id INT PRIMARY KEY, customer INT, amount DECIMAL(9,2)) "
            "WITH (regions = 3)"
        )
        db.table("customers").put([{"id": i, "name": f"n{i % 5}"} for i in range(20)])
        change(db, random.Random(0), 200)
        yield db


@pytest.fixture
def sail_shop(sail: Engine, shop: ev.Database) -> ev.Database:
    """On Sail alone, whose Python is this process."""
    shop.engines.use(sail)
    return shop


on_sail = pytest.mark.parametrize("engine", ["sail"], indirect=True)


def change(db: ev.Database, chance: random.Random, number: int = 20) -> None:
    db.table("orders").put(
        [
            {
                "id": chance.randrange(300),
                "customer": chance.choice([None, *range(20)]),
                "amount": chance.randrange(100),
            }
            for _ in range(number)
        ]
    )
    db.table("orders").delete([chance.randrange(300) for _ in range(3)])


def create(db: ev.Database, **views: str) -> None:
    for name, query in views.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")


def differences(db: ev.Database) -> list[str]:
    return [name for name in db.views if not db.verify(name).equal]


def load_of(db: ev.Database) -> LoadRecord:
    load = db.store.catalog.get(LOAD)
    assert load is not None
    return load


class Gate:
    """Holds the pieces of a load until it is opened."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.reached, self._open = threading.Event(), threading.Event()
        keep_pace = pacing.keep_pace

        def held(step: Any) -> None:
            if step.notes is not None:
                self.reached.set()
                while not self._open.wait(0.01):
                    keep_pace(step)
            keep_pace(step)

        for module in (pacing, workers):
            patch.setattr(module, "keep_pace", held)

    def open(self) -> None:
        self._open.set()

    def close(self) -> None:
        self._open.clear()
        self.reached.clear()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open()


def load_spend(db: ev.Database, gate: Gate) -> None:
    """A live view; the gate is closed for the next load."""
    gate.open()
    create(db, spend=SPEND)
    db.maintain()
    gate.close()


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


def test_views_are_loaded_and_follow(shop: ev.Database) -> None:
    create(shop, spend=SPEND)
    report = shop.maintain()
    assert report.loaded == ["spend"]
    assert shop.view("spend").progress is None
    create(shop, named=NAMED, most=MOST, ranks=RANKS, constant="SELECT 1 AS one")
    change(shop, random.Random(1))
    report = shop.maintain()
    assert sorted(report.loaded) == ["constant", "most", "named", "ranks"]
    assert differences(shop) == []
    for seed in range(3):
        change(shop, random.Random(seed))
        assert not shop.maintain().failed
    assert differences(shop) == []
    assert set(shop.store.states.names()) == all_states(shop), "nothing of the load is left"
    assert shop.store.catalog.get(LOAD) is None
    consumers = [name for table in shop.status() for r in table.regions for name in r.consumers]
    assert OF_LOADS not in consumers


class Stop(Exception):
    """A maintainer that it ends does not wait for loads."""


class Told(ev.Watcher):
    def __init__(self) -> None:
        self.progresses: list[ev.Progress] = []

    def progress(self, progress: ev.Progress) -> None:
        self.progresses.append(progress)


def test_progress_counts_rows_also_if_no_condition_lets_them_through(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "_TELL_SECONDS", 0.0)
    create(shop, few="SELECT customer, count(*) AS n FROM orders WHERE amount > 98 GROUP BY 1")
    watch = Told()
    assert shop.maintain(watch=watch).loaded == ["few"]
    first, last = watch.progresses[0], watch.progresses[-1]
    assert first.share <= last.share == 1
    rows = shop.table("orders").to_arrow().num_rows
    assert last.rows == last.expected_rows == rows
    assert last.parts == last.expected_parts == 2
    assert (str(last), last.seconds_left) == ("ready", 0)


def test_equal_operators_are_shared_once_they_are_at_one_epoch(shop: ev.Database) -> None:
    create(shop, named=NAMED)
    shop.maintain()
    create(shop, most=MOST)
    shop.maintain()
    named, most = (record_of(shop, name).operators for name in ("named", "most"))
    shared = named.keys() & most.keys()
    assert shared, "both have the join"
    assert {named[identity] for identity in shared} == {most[identity] for identity in shared}
    change(shop, random.Random(3))
    shop.maintain()
    assert differences(shop) == []


@on_sail
def test_others_go_on_while_a_view_is_loaded(sail_shop: ev.Database, gate: Gate) -> None:
    db = sail_shop
    load_spend(db, gate)
    create(db, named=NAMED)
    with db.maintainer(every=0.02):
        assert gate.reached.wait(60)
        assert db.view("named").status == "new"
        assert "not loaded yet" in db.view("named").note
        for seed in range(5):
            change(db, random.Random(seed))
            wait_for(lambda: db.view("spend").freshness.total_seconds() == 0)
        load, epoch = load_of(db), db.store.catalog.epoch
        assert load.stage == LOADING
        assert load.positions["orders"] != epoch.positions["orders"]
        progress = db.view("named").progress
        assert progress is not None
        assert (progress.stage, progress.views) == (LOADING, ("named",))
        assert progress.expected_rows > 20
        gate.open()
        wait_for(lambda: db.view("named").status == "live")
    assert differences(db) == []


@on_sail
def test_a_load_catches_up_in_epochs_of_its_own(
    sail_shop: ev.Database, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = sail_shop
    monkeypatch.setattr(loader, "FEW_CHANGES", 5)
    load_spend(db, gate)
    create(db, named=NAMED, ranks=RANKS)
    stages = []
    write = loader.Loader._write

    def noted(self: Any, **fields: Any) -> None:
        stages.append(fields.get("stage"))
        write(self, **fields)

    monkeypatch.setattr(loader.Loader, "_write", noted)
    with db.maintainer(every=0.02, batch=50):
        assert gate.reached.wait(60)
        for seed in range(4):
            change(db, random.Random(seed), 50)
        wait_for(lambda: db.view("spend").freshness.total_seconds() == 0)
        gate.open()
        wait_for(lambda: db.view("ranks").status == "live")
    assert stages.count(CATCHING_UP) > 1
    assert stages.count(READY) == 1
    assert differences(db) == []


@on_sail
def test_a_load_may_be_far_behind_when_nothing_is_pending_for_the_others(
    sail_shop: ev.Database, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tables that it reads are tables that live views follow."""
    db = sail_shop
    monkeypatch.setattr(loader, "FEW_CHANGES", 5)
    load_spend(db, gate)
    create(db, ranks=RANKS)
    with db.maintainer(every=0.02, batch=20):
        assert gate.reached.wait(60)
        for seed in range(3):
            change(db, random.Random(seed), 50)
        wait_for(lambda: db.view("spend").freshness.total_seconds() == 0)
        gate.open()
        wait_for(lambda: db.view("ranks").status == "live")
    assert differences(db) == []


@on_sail
def test_others_are_read_while_a_load_joins_that_had_many_epochs(
    sail_shop: ev.Database, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its own; the others had fewer."""
    db = sail_shop
    monkeypatch.setattr(loader, "FEW_CHANGES", 5)
    load_spend(db, gate)
    create(db, named=NAMED)
    monkeypatch.setattr(loader, "cut", lambda *given: cut(*given[:3], Batch(10)))
    spend: list[Any] = []
    changed: list[int] = []
    join, ready = joining.join, joining.ready

    def ready_and_changed(store: Any) -> Any:
        load = ready(store)
        if load is not None and not changed:
            changed.append(load.number - store.catalog.epoch.number)
            change(db, random.Random(8))
        return load

    def read(*given: Any) -> None:
        """After the others have run the epoch, and before it is committed."""
        spend.append(db.view("spend").to_arrow())
        join(*given)

    monkeypatch.setattr(joining, "join", read)
    monkeypatch.setattr(joining, "ready", ready_and_changed)
    with db.maintainer(every=0.02):
        assert gate.reached.wait(60)
        with maintenance_paused(db.store):  # so that the others take all in one epoch
            for seed in range(60):
                db.table("orders").put({"id": seed, "customer": seed, "amount": seed + 200})
                time.sleep(0.002)
        wait_for(lambda: db.view("spend").freshness.total_seconds() == 0)
        before = db.view("spend").to_arrow()
        gate.open()
        wait_for(lambda: db.view("named").status == "live")
    assert spend == [before]
    assert changed[0] > 1, "the load had more epochs than the others"
    assert differences(db) == []


@on_sail
def test_a_view_that_is_dropped_is_loaded_no_more(sail_shop: ev.Database, gate: Gate) -> None:
    db = sail_shop
    create(db, named=NAMED, spend=SPEND)
    with db.maintainer(every=0.02):
        assert gate.reached.wait(60)
        db.sql("DROP VIEW named")
        gate.open()
        wait_for(lambda: db.view("spend").status == "live")
    with pytest.raises(ViewNotFound):
        db.view("named")
    assert set(db.store.states.names()) == all_states(db)
    assert differences(db) == []


@on_sail
def test_a_view_that_is_dropped_before_it_joins_stays_dropped(
    sail_shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = sail_shop
    create(db, named=NAMED, spend=SPEND)
    with monkeypatch.context() as patch:
        patch.setattr(joining, "ready", lambda store: None)
        with suppress(Stop), db.maintainer(every=0.02):
            wait_for(lambda: (load := db.store.catalog.get(LOAD)) and load.stage == READY)
            raise Stop
    db.sql("DROP VIEW named")
    assert db.maintain().loaded == ["spend"]
    assert db.views == ["spend"]
    assert differences(db) == []
    assert set(db.store.states.names()) == all_states(db)
    consumers = [name for table in db.status() for r in table.regions for name in r.consumers]
    assert OF_LOADS not in consumers


@on_sail
def test_a_load_is_replaced_while_it_runs(sail_shop: ev.Database, gate: Gate) -> None:
    db = sail_shop
    load_spend(db, gate)
    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW spend AS {NAMED}")
    with db.maintainer(every=0.02):
        assert gate.reached.wait(60)
        assert db.view("spend").status == "live"
        assert db.view("spend").to_arrow().column_names == ["customer", "n", "total"]
        db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW spend AS {MOST}")
        db.sql("ALTER VIEW spend RENAME TO best")
        gate.open()
        wait_for(lambda: db.view("best").to_arrow().column_names == ["name", "most"])
    assert db.view("best").sql == MOST
    assert differences(db) == []
    assert set(db.store.states.names()) == all_states(db)


@on_sail
def test_whoever_needs_the_lease_for_a_moment_gets_it(sail_shop: ev.Database, gate: Gate) -> None:
    db = sail_shop
    create(db, named=NAMED)
    with db.maintainer(every=0.02):
        assert gate.reached.wait(60)
        notes = load_of(db).notes
        with maintenance_paused(db.store):
            assert load_of(db).notes == notes
        gate.open()
        wait_for(lambda: db.view("named").status == "live")
        assert record_of(db, "named").rows
    assert differences(db) == []


@on_sail
def test_two_maintainers_do_not_load_the_same_views(sail_shop: ev.Database, gate: Gate) -> None:
    db = sail_shop
    create(db, named=NAMED, spend=SPEND)
    reports: list[ev.Report] = []
    work = [
        threading.Thread(target=lambda: reports.append(maintain(db.store, db.engine)))
        for _ in range(2)
    ]
    for thread in work:
        thread.start()
    assert gate.reached.wait(60)
    time.sleep(0.3)
    gate.open()
    for thread in work:
        thread.join(60)
    assert sorted(name for report in reports for name in report.loaded) == ["named", "spend"]
    assert differences(db) == []


@on_sail
def test_a_load_waits_for_views_that_are_far_behind(
    sail_shop: ev.Database, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = sail_shop
    load_spend(db, gate)
    db.sql(f"CREATE MATERIALIZED VIEW named WITH (load_lag = '200 ms') AS {NAMED}")
    assert record_of(db, "named").load_lag == 0.2
    lag = [0.3]
    monkeypatch.setattr(epochs, "age_of", lambda oldest: lag[0])
    with db.maintainer(every=0.02):
        assert gate.reached.wait(60)
        change(db, random.Random(1))
        wait_for(lambda: (pace := db.store.catalog.get(PACE)) is not None and pace.waits)
        lag[0] = 0.05
        wait_for(lambda: (pace := db.store.catalog.get(PACE)) is not None and not pace.waits)
        gate.open()
        wait_for(lambda: db.view("named").status == "live")
    assert differences(db) == []


BAD = "SELECT id, 100 / amount AS share FROM orders"


def test_a_view_that_fails_stops_alone(shop: ev.Database) -> None:
    shop.table("orders").put({"id": 999, "customer": 1, "amount": 0})
    create(shop, bad=BAD, spend=SPEND, named=NAMED)
    report = shop.maintain()
    assert list(report.failed) == ["bad"]
    assert "amount = 0.00 of orders; correct the row" in report.failed["bad"]
    assert sorted(report.loaded) == ["named", "spend"]
    assert differences_of(shop, "named", "spend") == []
    assert set(shop.store.states.names()) == all_states(shop)


@on_sail
@pytest.mark.parametrize("few", [0, 1000], ids=["as it catches up", "as it joins"])
def test_a_view_that_fails_later_stops_alone(
    sail_shop: ev.Database, gate: Gate, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = sail_shop
    monkeypatch.setattr(loader, "FEW_CHANGES", few)
    gate.open()
    db.table("orders").delete([row["id"] for row in db.table("orders").scan() if not row["amount"]])
    create(db, spend=SPEND)
    db.maintain()
    gate.close()
    create(db, bad=BAD, named=NAMED)
    with db.maintainer(every=0.02):
        assert gate.reached.wait(60)
        db.table("orders").put({"id": 999, "customer": 1, "amount": 0})
        wait_for(lambda: db.view("spend").freshness.total_seconds() == 0)
        gate.open()
        wait_for(lambda: db.view("named").status == "live")
        wait_for(lambda: db.view("bad").status == "stopped")
    assert "zero" in (db.view("bad").error or "").lower()
    assert differences_of(db, "spend", "named") == []
    db.table("orders").delete([999])
    assert not db.rebuild("bad").failed
    assert differences(db) == []


def differences_of(db: ev.Database, *views: str) -> list[str]:
    return [name for name in views if not db.verify(name).equal]


@on_sail
def test_a_new_definition_that_fails_leaves_the_old_one(sail_shop: ev.Database) -> None:
    db = sail_shop
    create(db, spend=SPEND)
    db.maintain()
    db.table("orders").put({"id": 999, "customer": 1, "amount": 0})
    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW spend AS {BAD}")
    report = db.maintain()
    assert list(report.failed) == ["spend"]
    assert db.view("spend").sql == SPEND
    assert differences(db) == []
    assert set(db.store.states.names()) == all_states(db)


@on_sail
def test_a_load_goes_on_where_it_was_ended(
    sail_shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each piece of work, ended before it: what was done before is not done again."""
    db = sail_shop
    create(db, spend=SPEND)
    db.maintain()
    applied: list[str] = []
    run = workers._work_on

    def noted(kind: str, task: Any, rows: workers.PartRows) -> Any:
        if workers._step(task.step).start is None:
            applied.append(f"{kind} {task.state} {rows.part.shard}")
        return run(kind, task, rows)

    monkeypatch.setattr(workers, "_work_on", noted)
    create(db, named=NAMED)
    keep_pace, ends = pacing.keep_pace, [0, 0]

    def ended(step: Any) -> None:
        ends[0] += step.notes is not None
        if ends[0] > ends[1] > 0:
            raise RuntimeError("Connection refused")  # as if the engine were gone
        keep_pace(step)

    for module in (pacing, workers):
        monkeypatch.setattr(module, "keep_pace", ended)
    for number in range(1, 100):
        ends[:] = 0, number
        change(db, random.Random(number))
        try:
            db.maintain()
            break
        except EngineFailed:
            assert db.view("named").status == "waiting"
    assert number > 4
    assert db.view("named").status == "live"
    assert len(applied) == len(set(applied)), "some shard was done twice"
    assert differences(db) == []


@on_sail
@pytest.mark.parametrize("bug", ["skips changes", "joins an epoch early"])
def test_planted_bugs_are_caught(
    sail_shop: ev.Database, gate: Gate, bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = sail_shop
    load_spend(db, gate)
    if bug == "skips changes":  # that were made while it read its snapshot
        monkeypatch.setattr(loader, "FEW_CHANGES", 0)
        monkeypatch.setattr(loader.Loader, "_run_views", lambda self, step: None)
    else:
        monkeypatch.setattr(joining, "_run", lambda maintainer, load, step: (list(load.views), []))
    create(db, named=NAMED)
    with db.maintainer(every=0.02):
        assert gate.reached.wait(60)
        change(db, random.Random(5))
        wait_for(lambda: db.view("spend").freshness.total_seconds() == 0)
        gate.open()
        wait_for(lambda: db.view("named").status == "live")
    assert differences(db) == ["named"]


def test_options_and_records(shop: ev.Database) -> None:
    with pytest.raises(ev.EverviewError, match="load_lag = '2 s'"):
        shop.sql(f"CREATE MATERIALIZED VIEW v WITH (load_lag = 'soon') AS {SPEND}")
    shop.sql(f"CREATE MATERIALIZED VIEW v WITH (load_lag = '1 min') AS {SPEND}")
    view = record_of(shop, "v")
    assert view.load_lag == 60
    record = LoadRecord((view,), None, 3, {"orders": {0: 1}}, {"a": "b"}, "n", 5, 1.5)
    assert LoadRecord.from_document(record.to_document()) == record
    assert record.states == {"b", "n"}
    assert record.over().states == set()
    assert shop.store.catalog.get(VIEWS["v"]) == view
