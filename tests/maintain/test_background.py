"""A maintainer in the background of a block: everything made inside is in the views at its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import everview as ev
from everview.catalog import EPOCH, Epoch
from everview.engines.engine import Engine
from everview.errors import DatabaseError, StoreFull
from everview.maintain import background
from everview.maintain.background import BackgroundMaintainer
from everview.maintain.report import Report
from everview.stores.base import WORK

LONG = 60


@pytest.fixture
def either(engine: Engine, spark: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "shop.ev", create=True) as db:
        db.engines.use(engine)
        create(db)
        yield db


@pytest.fixture
def shop(spark: Engine, sail: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "shop.ev", create=True) as db:
        create(db)
        yield db


def create(db: ev.Database) -> None:
    db.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer STRING, amount BIGINT)")
    db.sql(
        "CREATE MATERIALIZED VIEW spend AS "
        "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
    )


def wait_for(true: Callable[[], bool]) -> None:
    until = time.monotonic() + LONG
    while not true():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.02)


def test_views_follow_inside_the_block_and_have_all_at_its_end(either: ev.Database) -> None:
    orders = either.table("orders")
    view = either.view("spend")
    with either.maintainer(every=0.01) as maintainer:
        orders.put([{"id": 1, "customer": "ada", "amount": 5}])
        wait_for(lambda: view.get("ada") == {"customer": "ada", "total": 5})
        wait_for(lambda: maintainer.report.loaded == ["spend"])  # just after readers see it
        orders.put([{"id": 2, "customer": "ada", "amount": 7}])
        wait_for(lambda: maintainer.latest is not None)
        for i in range(3, 50):
            orders.put([{"id": i, "customer": "bob", "amount": 1}])
    assert view.get("ada") == {"customer": "ada", "total": 12}
    assert view.get("bob") == {"customer": "bob", "total": 47}
    assert view.freshness.total_seconds() == 0
    assert maintainer.latest is not None
    assert maintainer.latest.number == view.epoch
    assert maintainer.report.failed == {}
    epoch = view.epoch
    orders.put([{"id": 1, "customer": "ada", "amount": 0}])
    time.sleep(0.1)
    assert view.epoch == epoch, "it went on after the block"
    assert view.freshness.total_seconds() >= 0.1


def test_a_view_is_dropped_and_another_maintains_while_changes_never_cease(
    shop: ev.Database, sail: Engine
) -> None:
    shop.engines.use(sail)
    shop.sql("CREATE MATERIALIZED VIEW other AS SELECT id FROM orders")
    ended = threading.Event()

    def write() -> None:
        numbers = count()
        while not ended.is_set():
            shop.table("orders").put([{"id": next(numbers), "customer": "ada", "amount": 1}])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with ev.open(shop.path) as second, shop.maintainer(every=0) as maintainer:
            wait_for(lambda: maintainer.latest is not None)
            begun = time.monotonic()
            second.sql("DROP VIEW other")
            with shop.store.leases.hold(WORK, LONG, lambda _: None):
                pass
            took = time.monotonic() - begun
            ended.set()
    finally:
        ended.set()
        writer.join()
    assert took < LONG / 4
    assert shop.views() == ["spend"]
    assert shop.verify("spend").equal


def test_either_engine_may_maintain(shop: ev.Database) -> None:
    orders = shop.table("orders")
    for number, name in enumerate(("spark", "sail", "spark"), 1):
        orders.put([{"id": number, "customer": "ada", "amount": 1}])
        shop.maintain(engine=name)  # type: ignore[arg-type]
        assert shop.view("spend").get("ada") == {"customer": "ada", "total": number}


def fail_after(true: Callable[[], bool]) -> None:
    wait_for(true)
    raise KeyError


class Looks:
    """Counts how often the maintainer looks for changes, and fails when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.error: BaseException | None = None
        self.threads: set[threading.Thread] = set()
        monkeypatch.setattr(background, "maintain", self)

    def __call__(self, store: Any, engine: Any, watch: Any, batch: Any) -> Report:
        self.count += 1
        self.threads.add(threading.current_thread())
        if self.error is not None:
            raise self.error
        return Report()

    def maintainer(self, every: float = LONG) -> BackgroundMaintainer:
        return BackgroundMaintainer(None, None, every)  # type: ignore[arg-type]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def test_there_is_a_last_look_after_the_block_and_no_waiting_for_it(looks: Looks) -> None:
    with looks.maintainer():
        wait_for(lambda: looks.count == 1)
    assert looks.count == 2
    assert not any(thread.is_alive() for thread in looks.threads)


def test_an_error_of_the_thread_is_raised_when_the_block_ends(looks: Looks) -> None:
    looks.error = DatabaseError("broken")
    with pytest.raises(DatabaseError, match="broken"), looks.maintainer() as maintainer:
        wait_for(lambda: maintainer.error is not None)
    assert looks.count == 1


def test_a_full_disk_is_told_and_tried_again_until_there_is_room(
    looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "SECONDS_BETWEEN_TRIES", 0.01)
    looks.error = StoreFull("no room")
    with looks.maintainer(every=0.01) as maintainer:
        wait_for(lambda: looks.count >= 3)
        assert "StoreFull: no room" in repr(maintainer)
        looks.error = None
        wait_for(lambda: maintainer.error is None)
    looks.error = StoreFull("no room")
    with pytest.raises(StoreFull, match="no room"), looks.maintainer():
        pass


def test_an_error_of_the_block_comes_first_and_leaves_out_the_last_look(looks: Looks) -> None:
    with pytest.raises(KeyError), looks.maintainer():
        fail_after(lambda: looks.count == 1)
    assert looks.count == 1
    looks.error = StoreFull("no room")
    with pytest.raises(KeyError) as caught, looks.maintainer() as maintainer:
        fail_after(lambda: maintainer.error is not None)
    assert caught.value.__notes__ == ["and the maintainer failed: StoreFull: no room"]


def test_the_last_look_ends_though_others_go_on_writing(db: ev.Database) -> None:
    table = db.create_table("t", {"id": "INT"}, "id", regions=1)
    db.store.catalog.write({EPOCH: Epoch(1, {"t": {0: 0}})})
    maintainer = BackgroundMaintainer(db.store, None)  # type: ignore[arg-type]
    assert maintainer.goes_on()
    table.put({"id": 1})
    maintainer._ended = datetime.now(UTC)
    maintainer._ending.set()
    assert maintainer.goes_on(), "a change from inside the block"
    db.store.catalog.write({EPOCH: Epoch(2, {"t": {0: 1}})})
    table.put({"id": 2})
    assert not maintainer.goes_on(), "a change from after it"


def test_a_view_is_loaded_though_changes_never_cease(
    spark: Engine, sail: Engine, tmp_path: Path
) -> None:
    class Writing(ev.Watcher):
        """Makes a change after every epoch, up to a limit; notes when the view is loaded."""

        epochs = 0
        loaded_at = 0

        def committed(self, epoch: ev.Epoch) -> None:
            self.epochs += 1
            if self.epochs < 20:
                db.table("orders").put([{"id": self.epochs, "customer": "ada", "amount": 1}])

        def loaded(self, view: str, seconds: float) -> None:
            self.loaded_at = self.epochs

    with ev.open(tmp_path / "shop.ev", create=True) as db:
        db.engines.use(sail)
        create(db)
        db.maintain()
        db.sql("CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM orders")
        db.table("orders").put([{"id": 0, "customer": "ada", "amount": 1}])
        watch = Writing()
        db.maintain(watch=watch)
        assert watch.loaded_at == 1
        assert watch.epochs == 20, "it ended before it was done"
        assert db.view("counted").to_arrow().to_pylist() == [{"n": 20}]
