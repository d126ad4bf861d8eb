"""Changes of views: who reads them from a snapshot on has the view at every epoch, exactly."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import everview as ev
from everview import following
from everview.catalog import EPOCH, FOLLOWERS, INTENT, Epoch
from everview.engines.engine import Engine
from everview.errors import LogError, LogTrimmed, NotLoaded, ReadOnly, UnknownConsumer, ViewNotFound
from everview.stores.embedded.shard import EmbeddedShard

VIEWS = {
    "totals": "SELECT g, sum(x) AS total, count(*) AS n FROM t GROUP BY g",
    "copies": "SELECT g, x FROM t",  # rows come several times
    "pairs": "SELECT t.id, u.name FROM t LEFT JOIN u ON t.g = u.g",
    "best": "SELECT id, x FROM t ORDER BY x DESC, id LIMIT 3",
    "whole": "SELECT count(*) AS n, max(x) AS most FROM t",
}


@pytest.fixture
def db(tmp_path: Path, sail: Engine) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "t.ev", create=True) as db:
        db.engines.use(sail)
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, g STRING, x INT)")
        db.sql("CREATE TABLE u (g STRING PRIMARY KEY, name STRING)")
        for name, query in VIEWS.items():
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        db.maintain()
        yield db


def change(db: ev.Database, rng: random.Random) -> None:
    """Random rows come, change and go."""
    for _ in range(rng.randrange(1, 12)):
        id_, group = rng.randrange(20), rng.choice([None, "a", "b", "ü"])
        if rng.random() < 0.3:
            db.table("t").delete([id_])
        else:
            db.table("t").put({"id": id_, "g": group, "x": rng.choice([None, 1, 2, 3])})
    if rng.random() < 0.3:
        db.table("u").put({"g": rng.choice("abü"), "name": rng.choice(["one", "two", None])})


def frozen(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.values())


def rows_of(db: ev.Database, view: str) -> Counter[tuple[Any, ...]]:
    return Counter(map(frozen, db.view(view).scan()))


def applied(copy: Counter[tuple[Any, ...]], batches: Iterable[pa.RecordBatch | pa.Table]) -> int:
    """Apply changes to a copy; returns the last epoch."""
    epoch = 0
    for batch in batches:
        for row in batch.to_pylist():
            assert row["epoch"] >= epoch, "epochs come in their order"
            epoch = row["epoch"]
            assert (
                row["op"]
                == {
                    (False, True): "insert",
                    (True, False): "delete",
                    (True, True): "update",
                }[row["before"] is not None, row["after"] is not None]
            )
            assert row["before"] != row["after"]
            if row["before"] is not None:
                assert copy[frozen(row["before"])] > 0, "what goes was there"
                copy[frozen(row["before"])] -= 1
            if row["after"] is not None:
                copy[frozen(row["after"])] += 1
    copy += Counter()
    return epoch


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_is_the_view_at_every_epoch(db: ev.Database, seed: int) -> None:
    rng = random.Random(seed)
    change(db, rng)
    db.maintain()
    copies = {name: rows_of(db, name) for name in VIEWS}
    after = {name: db.view(name).register("copy") for name in VIEWS}
    assert set(after.values()) == {db.view("totals").epoch}
    for _ in range(15):
        change(db, rng)
        db.maintain(batch=rng.choice([1, 3, 1000]))
        for name in rng.sample(list(VIEWS), 3):
            view = db.view(name)
            after[name] = applied(copies[name], view.changes(after[name])) or after[name]
            assert copies[name] == rows_of(db, name)
            if rng.random() < 0.5:
                view.acknowledge("copy", after[name])
    for name in VIEWS:
        applied(copies[name], db.view(name).changes(after[name]))
        assert copies[name] == rows_of(db, name)


def test_a_copy_stays_the_view_on_spark(tmp_path: Path, spark: Engine) -> None:
    with ev.open(tmp_path / "t.ev", create=True) as db:
        db.engines.use(spark)
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, g STRING, x INT)")
        db.sql(f"CREATE MATERIALIZED VIEW totals AS {VIEWS['totals']}")
        db.maintain()
        after, copy = db.view("totals").register("copy"), Counter[tuple[Any, ...]]()
        for id_ in range(4):
            db.table("t").put({"id": id_ % 3, "g": "ab"[id_ % 2], "x": id_})
            db.maintain()
            after = applied(copy, db.view("totals").changes(after))
            assert copy == rows_of(db, "totals")


def test_every_epoch_can_be_shown_as_it_was(db: ev.Database) -> None:
    start = db.view("totals").register("copy")
    shown = {start: rows_of(db, "totals")}
    for id_ in range(4):
        db.table("t").put({"id": id_, "g": "a", "x": id_})
        db.maintain()
        shown[db.view("totals").epoch] = rows_of(db, "totals")
    copy = shown[start]
    for batch in db.view("totals").changes(start):
        epoch = applied(copy, [batch])
        assert copy == shown[epoch]


@pytest.mark.parametrize("further", [-1, 1], ids=["repeats", "skips"])
def test_a_log_that_repeats_or_skips_an_epoch_is_caught(
    db: ev.Database, monkeypatch: pytest.MonkeyPatch, further: int
) -> None:
    """The check of this file is able to fail."""
    log = EmbeddedShard.log
    copy, after = rows_of(db, "totals"), db.view("totals").register("copy")
    ids = count()

    def follow() -> None:
        nonlocal after
        for _ in range(3):
            db.table("t").put({"id": next(ids), "g": "a", "x": 1})
            db.maintain()
            after = applied(copy, db.view("totals").changes(after)) or after
            assert copy == rows_of(db, "totals")

    follow()
    monkeypatch.setattr(
        EmbeddedShard, "log", lambda self, after, upto: log(self, after + further, upto)
    )
    with pytest.raises(AssertionError):
        follow()


def test_without_followers_there_is_no_log(db: ev.Database) -> None:
    view = db.view("totals")
    with pytest.raises(LogError, match=r"nobody follows view totals.*register"):
        list(view.changes())
    view.register("a")
    db.table("t").put({"id": 1, "g": "a", "x": 1})
    db.maintain()
    assert [row["op"] for batch in view.changes() for row in batch.to_pylist()] == ["insert"]
    view.unregister("a")
    with pytest.raises(LogError, match="nobody follows"):
        list(view.changes())
    db.table("t").put({"id": 1, "g": "a", "x": 2})
    db.maintain()
    record = db.store.catalog.get(following.VIEWS["totals"])
    assert record is not None
    shards = [db.store.states.shard(record.rows, number) for number in record.shards]
    assert [log for shard in shards for log in shard.log(0, 1000)] == []


def test_the_log_stays_for_the_slowest(db: ev.Database) -> None:
    view = db.view("totals")
    start = view.register("slow")
    assert view.register("quick") == start
    epochs = []
    for id_ in range(3):
        db.table("t").put({"id": id_, "g": "a", "x": 1})
        db.maintain()
        epochs.append(view.epoch)
        view.acknowledge("quick", view.epoch)
    assert [batch["epoch"][0].as_py() for batch in view.changes(start)] == epochs
    view.acknowledge("slow", epochs[1])
    with pytest.raises(LogTrimmed, match=f"begins after epoch {epochs[1]}.*all rows of the view"):
        list(view.changes(start))
    assert [batch["epoch"][0].as_py() for batch in view.changes(epochs[1])] == epochs[2:]
    assert view.register("slow") == epochs[1], "it goes on where it was"
    with pytest.raises(LogTrimmed):
        view.register("late", after=start)
    with pytest.raises(LogError, match="has not come to epoch"):
        view.register("early", after=1000)
    with pytest.raises(LogError, match="has not come to epoch"):
        view.acknowledge("slow", 1000)
    with pytest.raises(LogError, match="so not up to"):
        view.acknowledge("quick", start)
    with pytest.raises(UnknownConsumer, match="stranger does not follow view totals"):
        view.acknowledge("stranger", start)


def test_who_registers_while_an_epoch_runs_begins_after_it(db: ev.Database) -> None:
    epoch = db.store.catalog.epoch
    db.store.catalog.write({INTENT: Epoch(epoch.number + 1, epoch.positions)})
    assert db.view("totals").register("copy") == epoch.number + 1
    db.store.catalog.write({INTENT: None})


@pytest.mark.parametrize("how", ["replace", "rebuild"])
def test_changes_do_not_go_on_over_a_new_load(db: ev.Database, how: str) -> None:
    view = db.view("totals")
    db.table("t").put({"id": 1, "g": "a", "x": 1})
    db.maintain()
    start = view.register("copy")
    if how == "replace":
        query = "SELECT g, min(x) AS m FROM t GROUP BY g"
        db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW totals AS {query}")
        db.maintain()
    else:
        db.rebuild("totals")
    with pytest.raises(LogTrimmed):
        list(view.changes(start))
    copy, after = rows_of(db, "totals"), view.register("another")
    assert after == view.epoch > start
    db.table("t").put({"id": 2, "g": "b", "x": 7})
    db.maintain()
    applied(copy, view.changes(after))
    assert copy == rows_of(db, "totals")


def test_followers_go_with_a_renamed_view_and_not_with_a_dropped_one(db: ev.Database) -> None:
    start = db.view("totals").register("copy")
    db.sql("ALTER VIEW totals RENAME TO sums")
    db.table("t").put({"id": 1, "g": "a", "x": 1})
    db.maintain()
    assert sum(batch.num_rows for batch in db.view("sums").changes(start)) == 1
    db.sql("DROP VIEW sums")
    assert db.store.catalog.all(FOLLOWERS) == {}


def test_a_feed_begins_with_all_rows_and_goes_on(db: ev.Database) -> None:
    db.table("t").put([{"id": 1, "g": "a", "x": 1}, {"id": 2, "g": "a", "x": 1}])
    db.maintain()
    copy = Counter[tuple[Any, ...]]()
    with db.view("copies").follow(every=0.01) as feed:
        steps = iter(feed)
        applied(copy, [next(steps).changes])
        assert copy == rows_of(db, "copies") == {("a", 1): 2}
        for id_ in (1, 3):
            db.table("t").delete([id_])
            db.table("t").put({"id": id_ + 10, "g": None, "x": None})
            db.maintain()
            step = next(steps)
            applied(copy, [step.changes])
            assert (step.epoch, copy) == (db.view("copies").epoch, rows_of(db, "copies"))
        feed.stop()
        assert list(steps) == []
    assert db.store.catalog.all(FOLLOWERS) == {}


def test_a_feed_whose_process_is_gone_is_forgotten(
    db: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "FEED_SECONDS", -1.0)
    feed = db.view("totals").follow("now")
    assert len(db.store.catalog.all(FOLLOWERS)) == 1
    db.table("t").put({"id": 1, "g": "a", "x": 1})
    db.maintain()
    assert db.store.catalog.all(FOLLOWERS) == {}
    feed.close()


def test_what_has_no_changes_says_so(db: ev.Database) -> None:
    db.sql("CREATE MATERIALIZED VIEW new AS SELECT id FROM t")
    with pytest.raises(NotLoaded, match="no rows yet"):
        db.view("new").register("copy")
    with db.pin() as at, pytest.raises(ReadOnly, match="follow the view of the database"):
        at.view("totals").register("copy")
    with pytest.raises(LogError, match="'snapshot', 'now' or an epoch"):
        db.view("totals").follow("then")  # type: ignore[arg-type]
    view = db.view("totals")
    view.register("copy")
    db.sql("DROP VIEW totals")
    with pytest.raises(ViewNotFound):
        list(view.changes())


def test_an_epoch_that_is_repeated_is_in_the_log_once(
    db: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = db.view("totals").register("copy")
    db.table("t").put({"id": 1, "g": "a", "x": 1})
    write = type(db.store.catalog).write

    def fails(self: Any, changes: Any, *args: Any, **named: Any) -> None:
        if EPOCH in changes:
            raise KeyboardInterrupt
        write(self, changes, *args, **named)

    with monkeypatch.context() as planted:
        planted.setattr(type(db.store.catalog), "write", fails)
        with pytest.raises(KeyboardInterrupt):
            db.maintain()
    assert list(db.view("totals").changes(start)) == [], "it is not committed"
    db.maintain()
    (batch,) = db.view("totals").changes(start)
    assert batch.to_pylist() == [
        {
            "epoch": start + 1,
            "op": "insert",
            "before": None,
            "after": {"g": "a", "total": 1, "n": 1},
        }
    ]
