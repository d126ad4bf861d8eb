"""A shop that is maintained and read, and all of it recorded: scenarios for the checker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import everview as ev
from everview.catalog import EPOCH
from everview.check import History, Recorder, Verdict, check_history
from everview.engines.engine import Engine
from everview.errors import WriteError
from everview.maintain import epochs
from everview.operators.sink import ViewSink
from everview.stores.embedded import lease
from everview.stores.embedded.states import EmbeddedStates

from .simulator import CITIES, CUSTOMERS, REGIONS, SQL_VIEWS

VIEWS = {"cities": CITIES, "customers": CUSTOMERS}
LEASE = 0.2


def create(path: Path, engine: Engine) -> None:
    """The tables and views of the simulator, in the product; still empty."""
    with ev.open(path, create=True, durability="never") as db:
        db.engines.use(engine)
        db.create_table(
            "orders",
            {"id": "INT", "customer": "STRING", "amount": "BIGINT"},
            key="id",
            regions=REGIONS["orders"],
        )
        db.create_table(
            "homes",
            {"customer": "STRING", "city": "STRING"},
            key="customer",
            regions=REGIONS["homes"],
        )
        for name, query in VIEWS.items():
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        db.maintain()


class Crash(BaseException):
    """The maintainer is gone, in the middle of an epoch."""


class Shop(ev.Watcher):
    """Writes, reads and maintains, and records what it was told.

    `meanwhile` is called in every epoch when all is applied and nothing committed.
    """

    def __init__(self, path: Path, engine: Engine, history: Path) -> None:
        self.db = ev.open(path, durability="never")
        self._engine = engine
        self._seen = Recorder(history)
        self._history = history
        self.meanwhile: Callable[[], None] = lambda: None
        programs = SimpleNamespace(run=self._run, load=engine.programs.load)
        recorded: Any = SimpleNamespace(
            name=engine.name,
            session=engine.session,
            programs=programs,
            readable_error=engine.readable_error,
            answers=engine.answers,
        )
        self.db.engines.use(recorded)
        self._record_commit()

    def _run(self, *given: Any) -> int:
        touched = self._engine.programs.run(*given)
        self.meanwhile()
        return touched

    def put(self, table: str, **row: Any) -> None:
        began = self._seen.now()
        ((region, sequence),) = self.db.table(table).put(row).sequences.items()
        key = row["customer" if table == "homes" else "id"]
        self._seen.wrote(table, key, row, region, sequence, began)

    def order(self, number: int, customer: str, amount: int) -> None:
        self.put("orders", id=number, customer=customer, amount=amount)

    def cancel(self, number: int) -> None:
        began = self._seen.now()
        ((region, sequence),) = self.db.table("orders").delete([number]).sequences.items()
        self._seen.wrote("orders", number, None, region, sequence, began)

    def read(self) -> None:
        """Both views, as one reader that pins an epoch."""
        began = self._seen.now()
        with self.db.pin(*VIEWS) as at:
            for name in VIEWS:
                rows = at.view(name).to_arrow().to_pylist()
                self._seen.read(name, at.epoch, rows, reader=f"pin at {began}", began=began)

    def maintain(self) -> None:
        self.db.maintain(watch=self, lease=LEASE)

    def committed(self, epoch: ev.Epoch) -> None:
        self._record_commit()
        self.read()

    def _record_commit(self) -> None:
        epoch = self.db.store.catalog.get(EPOCH)
        assert epoch is not None
        self._seen.committed(epoch.number, epoch.to_document()["positions"])

    def close(self) -> None:
        self._seen.close()
        self.db.close()

    def verdicts(self) -> list[Verdict]:
        return check_history(History.load(self._history), SQL_VIEWS)


def open_up(shop: Shop) -> None:
    """The first epoch, which every scenario has."""
    for customer, city in (("ann", "Rome"), ("bob", "Oslo"), ("eve", "Lima")):
        shop.put("homes", customer=customer, city=city)
    for number, customer in enumerate(["ann", "bob", "ann", "bob", "ann", "eve"], start=1):
        shop.order(number, customer, 10 * number)
    shop.maintain()


def nothing_fails(shop: Shop, patch: pytest.MonkeyPatch) -> None:
    """Orders that change twice and are cancelled, one the last of its group; a reader and a writer
    in the middle of an epoch; logs that are trimmed after each."""
    patch.setattr(epochs, "TRIM_EVERY", 1)
    patch.setattr(epochs, "TRIMMED_SECONDS", 0.0)
    open_up(shop)

    def meanwhile() -> None:
        shop.meanwhile = lambda: None
        shop.read()
        shop.order(9, "ann", 90)

    shop.meanwhile = meanwhile
    shop.order(1, "ann", 11)
    shop.order(1, "ann", 12)
    shop.cancel(2)
    shop.cancel(6)
    for number in (7, 8):
        shop.order(number, "bob", 10 * number)
    shop.maintain()
    shop.read()


def operators_are_done_and_views_not(shop: Shop, patch: pytest.MonkeyPatch) -> None:
    """The maintainer crashes between an operator and what is written of it."""
    open_up(shop)
    shop.order(7, "bob", 70)

    def fail(*_: Any) -> int:
        raise WriteError("the disk is full")

    with patch.context() as broken:
        broken.setattr(ViewSink, "apply", fail)
        # a shard is a transaction of its own, as where an engine does the step
        broken.setattr(EmbeddedStates, "together", lambda _, work: work())
        with pytest.raises(WriteError):
            shop.maintain()
    shop.read()
    shop.maintain()


def all_is_done_and_not_committed(shop: Shop, patch: pytest.MonkeyPatch) -> None:
    """The maintainer crashes before it commits."""
    open_up(shop)
    shop.order(7, "bob", 70)

    def crash() -> None:
        shop.meanwhile = lambda: None
        raise Crash

    shop.meanwhile = crash
    with pytest.raises(Crash):
        shop.maintain()
    shop.read()
    shop.maintain()


def a_maintainer_sleeps_and_is_superseded(shop: Shop, patch: pytest.MonkeyPatch) -> None:
    """It sleeps before it commits; another commits that epoch and one more; it wakes."""
    patch.setattr(lease, "BEAT_SECONDS", 60.0)
    open_up(shop)
    shop.order(7, "bob", 70)
    asleep, woken = threading.Event(), threading.Event()

    def sleep() -> None:
        shop.meanwhile = lambda: None
        asleep.set()
        woken.wait()

    shop.meanwhile = sleep
    sleeper = threading.Thread(target=shop.maintain)
    sleeper.start()
    try:
        assert asleep.wait(60)
        shop.order(8, "bob", 80)
        shop.maintain()
    finally:
        woken.set()
        sleeper.join()
    shop.maintain()
