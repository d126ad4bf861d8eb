"""An epoch is one moment of all tables: it never has a change without an earlier one."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import everview as ev
from everview.batch import Batch
from everview.engines.engine import Engine
from everview.maintain import cut, run
from everview.stores.embedded import log
from tests.records import a_view


@pytest.fixture
def db(sail: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "t.ev", create=True, durability="never") as db:
        db.engines.use(sail)
        for name in ("a", "b"):
            db.create_table(name, {"id": "INT", "n": "INT"}, key="id", regions=3)
        yield db


class OneEpoch(ev.Watcher):
    """However many changes come meanwhile."""

    def __init__(self) -> None:
        self._left = 1

    def goes_on(self) -> bool:
        self._left -= 1
        return self._left >= 0


def create(db: ev.Database, *tables: str) -> None:
    for name in tables:
        db.sql(
            f"CREATE MATERIALIZED VIEW last_{name} AS SELECT coalesce(max(n), 0) AS n FROM {name}"
        )


def last(at: ev.Pin, table: str) -> int:
    return int(next(at.view(f"last_{table}").scan())["n"])


def test_no_change_is_seen_before_one_that_was_acknowledged_earlier(db: ev.Database) -> None:
    """A writer counts up, in turns in either table; views are never more than one apart."""
    create(db, "a", "b")
    db.maintain()
    ended = threading.Event()

    def write() -> None:
        tables = [db.table("a"), db.table("b")]
        for n in itertools.count(1):
            for table in tables:
                table.put({"id": n % 50, "n": n})
            if ended.is_set():
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = set()
        for _ in range(40):
            db.maintain(watch=OneEpoch())
            with db.pin() as at:
                a, b = last(at, "a"), last(at, "b")
            assert a in (b, b + 1), "b was written after a"
            seen.add(a)
        assert len(seen) > 10
    finally:
        ended.set()
        writer.join()


def test_a_table_that_a_new_view_brings_is_as_of_the_same_moment(
    db: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(db, "a")
    db.table("a").put({"id": 1, "n": 1})
    db.table("b").put({"id": 1, "n": 1})
    db.maintain()
    create(db, "b")
    original = run.load_small

    def later(*args: object) -> bool:
        """When the epochs before a load are done, more is written."""
        monkeypatch.setattr(run, "run_epochs", lambda *_: True)
        for name in ("a", "b"):
            db.table(name).put({"id": 2, "n": 2})
        return original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(run, "load_small", later)
    db.maintain()
    with db.pin() as at:
        assert (last(at, "a"), last(at, "b")) == (1, 1)
    monkeypatch.undo()
    db.maintain()
    with db.pin() as at:
        assert (last(at, "a"), last(at, "b")) == (2, 2)


def test_more_than_one_epoch_may_have_is_cut_by_time(
    db: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(db, "a", "b")
    db.maintain()
    monkeypatch.setattr(cut, "_SHORT", 1)
    for n in range(1, 101):
        for name in ("a", "b"):
            db.table(name).put({"id": n, "n": n})
    db.table("a").put([{"id": id_, "n": 101} for id_ in range(200)])
    sizes = []

    class Watch(ev.Watcher):
        def committed(self, epoch: ev.Epoch) -> None:
            sizes.append(epoch.changes)
            with db.pin() as at:
                a, b = last(at, "a"), last(at, "b")
            assert a in (b, b + 1)

    db.maintain(watch=Watch(), batch=40)
    assert sum(sizes) == 400
    assert len(sizes) >= 6
    assert max(sizes[:5]) <= 40


def test_beside_a_complete_view_tables_are_as_of_the_change_that_it_shows(tmp_path: Path) -> None:
    with ev.open(tmp_path / "t.ev", create=True, durability="never") as db:
        tables = [db.create_table(name, {"id": "INT"}, "id", regions=1) for name in "abcd"]
        start = {table.name: {0: 0} for table in tables}
        views = [
            a_view(tables=("a",), consistency="complete"),
            a_view(tables=("a", "b")),
            a_view(tables=("b", "c")),
            a_view(tables=("d",)),
        ]
        seen = []
        for n in (1, 2):
            for table in tables:
                time.sleep(0.001)
                table.put({"id": n})
        while (end := cut.cut(db.store, start, views, Batch())[0]) != start:
            start = end
            seen.append("".join(str(end[name][0]) for name in "abcd"))
        # d is read by no view that reads any of the others, and need not wait for them
        assert seen == ["1002", "2112", "2222"]


def test_an_epoch_has_few_changes_if_they_are_large(
    tmp_path: Path,
) -> None:
    with ev.open(tmp_path / "t.ev", create=True, durability="never") as db:
        large = db.create_table("large", {"id": "INT", "text": "STRING"}, "id", regions=2)
        small = db.create_table("small", {"id": "INT"}, "id", regions=1)
        for i in range(40):
            large.put([{"id": 2 * i + n, "text": "x" * 50_000} for n in range(2)])
            small.put([{"id": n} for n in range(500 * i, 500 * i + 500)])
            time.sleep(0.002)
        views = [a_view(tables=("large", "small"))]
        start, sizes = {"large": {0: 0, 1: 0}, "small": {0: 0}}, []
        while (end := cut.cut(db.store, start, views, Batch(bytes=1_000_000))[0]) != start:
            sizes.append(sum(end["large"].values()) - sum(start["large"].values()))
            start = end
        assert sum(sizes) == 80
        assert start["small"] == {0: 20_000}
        assert 10 <= min(sizes[:-1]) <= max(sizes) <= 20


def test_an_epoch_has_the_changes_of_so_much_time(tmp_path: Path) -> None:
    with ev.open(tmp_path / "t.ev", create=True, durability="never") as db:
        tables = [db.create_table(name, {"id": "INT"}, "id", regions=1) for name in "ab"]
        for n in range(4):
            for table in tables:
                table.put({"id": n})
            time.sleep(0.05)
        views = [a_view(tables=("a", "b"))]
        start, ends = {"a": {0: 0}, "b": {0: 0}}, []
        while (end := cut.cut(db.store, start, views, Batch.of("40ms"))[0]) != start:
            ends.append((end["a"][0], end["b"][0]))
            start = end
        assert ends == [(n, n) for n in (1, 2, 3, 4)]
        whole, _ = cut.cut(db.store, {"a": {0: 0}, "b": {0: 0}}, views, Batch.of("1 h"))
        assert whole == {"a": {0: 4}, "b": {0: 4}}


@pytest.mark.parametrize("consistency", ["strong", "complete"])
def test_changes_from_before_the_clock_was_set_back_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, consistency: str
) -> None:
    with ev.open(tmp_path / "t.ev", create=True, durability="never") as db:
        db.create_table("a", {"id": "INT"}, "id", regions=1)
        db.table("a").put({"id": 1})
        with monkeypatch.context() as ahead:
            ahead.setattr(log, "time", SimpleNamespace(time_ns=lambda: time.time_ns() + 10**12))
            db.table("a").put({"id": 2})
        views = [a_view(tables=("a",), consistency=consistency)]
        start, epochs = {"a": {0: 0}}, 0
        while (end := cut.cut(db.store, start, views, Batch())[0]) != start:
            start, epochs = end, epochs + 1
        assert start == {"a": {0: 2}}
        assert epochs == (2 if consistency == "complete" else 1)
