"""State that goes between the look at a view's document and the look into it is nobody's error."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import everview as ev
from everview.catalog import EPOCH
from everview.engines.engine import Engine
from everview.errors import (
    Damaged,
    DatabaseClosed,
    DatabaseError,
    TableNotFound,
    UnknownColumn,
    ViewNotFound,
)
from everview.spark.source import EverviewDataSource
from everview.stores.embedded import pinned
from everview.stores.embedded.states import EmbeddedStates
from tests.records import all_states, record_of

ROWS = [{"who": "a", "n": 5}, {"who": "b", "n": 5}]
SPEND = "SELECT who, sum(n) AS n FROM orders GROUP BY who"


@pytest.fixture
def shop(sail: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "shop.ev", create=True) as db:
        db.engines.use(sail)
        db.create_table("orders", {"id": "INT", "who": "STRING", "n": "INT"}, key="id")
        db.create_table("notes", {"id": "INT"}, key="id")
        db.table("orders").put([{"id": i, "who": "ab"[i % 2], "n": 1} for i in range(10)])
        db.sql(f"CREATE MATERIALIZED VIEW spend AS {SPEND}")
        db.sql("CREATE MATERIALIZED VIEW whole AS SELECT count(*) AS orders FROM orders")
        db.maintain()
        yield db


class Meanwhile:
    """Does something when the second shard of a read is about to be opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done = 0
        self._work: list[Callable[[], object]] = []
        self._shards = 0
        environment = EmbeddedStates.environment

        def late(states: EmbeddedStates, *place: Any, **how: Any) -> Any:
            self._shards += 1
            if self._shards == 2 and self._work:
                self.done += 1
                self._work.pop()()
            return environment(states, *place, **how)

        monkeypatch.setattr(EmbeddedStates, "environment", late)

    def __call__(self, *work: Callable[[], object]) -> None:
        self._work, self._shards = list(work), 0


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    return Meanwhile(monkeypatch)


def pin_all(db: ev.Database) -> list[dict[str, Any]]:
    with db.pin() as at:
        return list(at.view("spend").scan())


def from_spark(db: ev.Database) -> list[dict[str, Any]]:
    source = EverviewDataSource({"db": db.path, "table": "spend"})
    reader = source.reader(source.shape())  # type: ignore[arg-type]
    batches = [batch for one in reader.partitions() for batch in reader.read(one)]
    return pa.Table.from_batches(batches).to_pylist()


READS: dict[str, Callable[[ev.Database], list[dict[str, Any]]]] = {
    "pin": pin_all,
    "get": lambda db: [row for who in "ab" if (row := db.view("spend").get(who))],
    "scan": lambda db: list(db.view("spend").scan()),
    "to_arrow": lambda db: db.view("spend").to_arrow().to_pylist(),
    "source": from_spark,
}


def made_anew(db: ev.Database, readonly: bool) -> Callable[[], object]:
    """The view with other state, as another process would make it, or a thread of this one."""

    def make() -> None:
        if readonly:
            with ev.open(db.path) as other:
                other.engines.use(db.engine)
                other.sql(f"CREATE OR REPLACE VIEW spend AS {SPEND}")
                other.maintain()
        else:
            db.sql(f"CREATE OR REPLACE VIEW spend AS {SPEND}")
            db.maintain()

    return make


@pytest.mark.parametrize("read", READS)
def test_a_read_goes_on_with_the_state_that_is_there(
    shop: ev.Database, meanwhile: Meanwhile, read: str
) -> None:
    meanwhile(made_anew(shop, readonly=False))
    assert READS[read](shop) == ROWS
    assert meanwhile.done == 1


@pytest.mark.parametrize("read", READS)
def test_a_read_whose_files_another_handle_drops_goes_on(
    shop: ev.Database, meanwhile: Meanwhile, read: str
) -> None:
    with ev.open(shop.path, readonly=True) as reader:
        meanwhile(made_anew(shop, readonly=True))
        assert READS[read](reader) == ROWS
    assert meanwhile.done == 1


def test_a_pin_that_is_open_keeps_a_dropped_state_from_no_one(
    shop: ev.Database, meanwhile: Meanwhile
) -> None:
    """The files of the one are still open in this process when the other looks for them."""
    with shop.pin() as before:
        meanwhile(made_anew(shop, readonly=False))
        assert pin_all(shop) == ROWS
        assert list(before.view("spend").scan()) == ROWS


@pytest.mark.parametrize("read", [name for name in READS if name != "pin"])
def test_a_read_of_a_view_that_was_dropped_says_so(
    shop: ev.Database, meanwhile: Meanwhile, read: str
) -> None:
    meanwhile(lambda: shop.sql("DROP VIEW spend"))
    with pytest.raises(ViewNotFound, match="there is no view spend"):
        READS[read](shop)


def test_a_pin_of_everything_leaves_out_what_was_dropped(
    shop: ev.Database, meanwhile: Meanwhile
) -> None:
    meanwhile(lambda: (shop.sql("DROP VIEW spend"), shop.drop_table("notes")))
    with shop.pin() as at:
        assert [row["orders"] for row in at.view("whole").scan()] == [10]
        with pytest.raises(ViewNotFound):
            at.view("spend")
        with pytest.raises(TableNotFound):
            at.table("notes").get(1)
    assert meanwhile.done == 1


def test_a_view_that_was_replaced_is_explained_as_it_is_now(
    shop: ev.Database, meanwhile: Meanwhile
) -> None:
    for analyze in (False, True):
        meanwhile(made_anew(shop, readonly=False))
        assert shop.view("spend").explain(analyze)["status"] == "live"
    assert meanwhile.done == 2


def test_spark_is_told_that_a_view_has_other_columns_now(
    shop: ev.Database, meanwhile: Meanwhile
) -> None:
    def replace() -> None:
        shop.sql("CREATE OR REPLACE VIEW spend AS SELECT who, count(*) AS c FROM orders GROUP BY 1")
        shop.maintain()

    meanwhile(replace)
    with pytest.raises(UnknownColumn, match="spend has no column n to read; it has who, c"):
        from_spark(shop)


def test_state_that_is_gone_while_its_view_is_not_is_told(shop: ev.Database) -> None:
    """Once: nothing will change by waiting."""
    shop.store.states.drop(record_of(shop, "spend").rows)
    for read in READS.values():
        with pytest.raises(Damaged, match="gone"):
            read(shop)


def test_a_pin_that_never_finds_one_epoch_gives_up(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned, "PATIENCE", 0.0)
    environment = EmbeddedStates.environment

    def commit(states: EmbeddedStates, *place: Any, **how: Any) -> Any:
        epoch = shop.store.catalog.get(EPOCH)
        assert epoch is not None
        shop.store.catalog.write({EPOCH: replace(epoch, number=epoch.number + 1)})
        return environment(states, *place, **how)

    monkeypatch.setattr(EmbeddedStates, "environment", commit)
    with pytest.raises(DatabaseError, match="changed so often"):
        pin_all(shop)


def test_a_maintainer_notices_that_its_database_was_deleted(shop: ev.Database) -> None:
    shutil.rmtree(shop.path)
    with pytest.raises(DatabaseClosed, match="was deleted, moved or replaced"):
        shop.maintain()


def test_state_that_was_deleted_under_a_maintainer_stops_its_view_alone(shop: ev.Database) -> None:
    states = all_states(shop)
    shop.store.states.drop(record_of(shop, "spend").rows, used=states)
    shop.table("orders").put({"id": 100, "who": "a", "n": 1})
    report = shop.maintain()
    assert report.failed.keys() == {"spend"}
    assert "is gone" in report.failed["spend"]
    assert [row["orders"] for row in shop.view("whole").scan()] == [11]
    assert not shop.rebuild("spend").failed
    assert list(shop.view("spend").scan()) == [{"who": "a", "n": 6}, {"who": "b", "n": 5}]


def test_a_volume_that_was_deleted_stops_its_views_until_they_are_loaded_again(
    shop: ev.Database,
) -> None:
    shutil.rmtree(Path(shop.path, "state", "volume-views0", "12"))
    shop.table("orders").put({"id": 100, "who": "a", "n": 1})
    report = shop.maintain()
    assert report.failed.keys() == {"spend", "whole"}
    assert "is damaged or gone" in report.failed["spend"]
    for view in report.failed:
        assert not shop.rebuild(view).failed
    assert list(shop.view("spend").scan()) == [{"who": "a", "n": 6}, {"who": "b", "n": 5}]
    assert [row["orders"] for row in shop.view("whole").scan()] == [11]
    assert shop.store.states.volume == "views1", "one new volume for both"
    assert os.listdir(Path(shop.path, "state")) == ["volume-views1"]
