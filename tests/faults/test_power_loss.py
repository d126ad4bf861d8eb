"""A crash of the machine: what was not synced may be older on disk than what was.

It is played with copies of files: those of an open database, and of some of them an earlier copy,
opened as if in another boot of the machine.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import everview as ev
from everview.catalog import UNSYNCED, Unsynced
from everview.cli.main import main
from everview.engines.engine import Engine
from everview.errors import NotLoaded
from everview.maintain import loads, recovery, views
from everview.spark.source import EverviewDataSource
from everview.stores.embedded import states as stored
from everview.stores.embedded.shard import EmbeddedShard
from tests.records import records

from . import bank

Open = Callable[..., ev.Database]


@pytest.fixture
def open_(sail: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens a database, in a boot of the machine if one is given."""
    opened = list[ev.Database]()

    def open_(path: Path, boot: str | None = None, **options: Any) -> ev.Database:
        if boot is not None:
            monkeypatch.setattr(stored, "boot_id", lambda: boot)
        db = ev.open(path, **options)
        db.engines.use(sail)
        opened.append(db)
        return db

    yield open_
    for db in opened:
        db.close()


@pytest.fixture
def path(sail: Engine, tmp_path: Path) -> Path:
    """A bank that was closed after an epoch."""
    with created(sail, tmp_path):
        return tmp_path / "bank.ev"


def created(sail: Engine, directory: Path, **options: Any) -> ev.Database:
    db = bank.create(str(directory / "bank.ev"), **options)
    db.engines.use(sail)
    bank.work(db, random.Random(1), 0, 100)
    db.maintain()
    return db


def crash(path: Path, db: ev.Database, *older: str) -> Path:
    """A copy of an open database after more epochs; some directories are as they were before."""
    before, after = path.parent / "before.ev", path.parent / "after.ev"
    shutil.copytree(path, before)
    made = 60
    for seed in range(3):
        made = bank.work(db, random.Random(seed), made, 50)
        db.maintain()
    shutil.copytree(path, after)
    for name in older:
        shutil.rmtree(after / name)
        shutil.copytree(before / name, after / name)
    return after


def states(db: ev.Database) -> dict[str, Any]:
    return {view.name: view.states for view in records(db)}


def from_spark(db: ev.Database) -> pa.Table:
    source = EverviewDataSource({"db": db.path, "table": "credits"})
    reader = source.reader(source.shape())  # type: ignore[arg-type]
    return pa.Table.from_batches([b for one in reader.partitions() for b in reader.read(one)])


READS: list[Callable[[ev.Database], object]] = [
    lambda db: db.view("credits").get(1),
    lambda db: list(db.view("credits").scan()),
    lambda db: db.view("credits").to_arrow(),
    lambda db: db.pin(),
    lambda db: db.pin("transfers"),
    from_spark,
]


def test_state_that_is_older_than_the_epoch_is_noticed_and_made_anew(
    open_: Open, path: Path
) -> None:
    after = crash(path, open_(path), "state")
    with open_(after) as db:
        assert bank.faults(db)[1] != [], "else there would be nothing to notice"
    with open_(after, "another boot") as db:
        for read in READS:
            with pytest.raises(NotLoaded, match=r"the machine crashed .* db.maintain\(\)"):
                read(db)
        assert {db.view(name).status for name in db.views()} == {"suspect"}
        shown = CliRunner().invoke(main, ["status", str(after)]).output
        assert "credits is suspect: the machine crashed" in shown
        before = states(db)
        report = db.maintain()
        assert "all views are loaded again" in (report.recovered or "")
        assert sorted(report.loaded) == sorted(bank.VIEWS)
        assert not {s for v in before.values() for s in v.values()} & set(db.store.states.names())
        assert bank.faults(db)[1] == []
        bank.work(db, random.Random(7), 500, 50)
        assert db.maintain().recovered is None
        assert bank.faults(db)[1] == []


def test_a_run_says_why_it_makes_all_views_anew(open_: Open, path: Path) -> None:
    after = crash(path, open_(path), "state")
    open_(after, "another boot").close()
    said = CliRunner().invoke(main, ["run", str(after), "--once", "--engine", "sail"])
    assert said.exit_code == 0, said.output
    assert "the machine crashed before the state of all views was on disk" in said.stderr
    assert "loaded credits" in said.output


def test_a_crash_while_views_are_made_anew_is_noticed_too(
    open_: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = crash(path, open_(path), "state")
    with open_(after, "another boot") as db, monkeypatch.context() as patch:
        patch.setattr(loads, "_put_in_place", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            db.maintain()
        shutil.copytree(after, path.parent / "again.ev")
    with open_(path.parent / "again.ev", "a third boot") as db:
        assert db.maintain().recovered
        assert bank.faults(db)[1] == []


@pytest.mark.parametrize("durability", ["interval", "never"])
def test_after_a_clean_close_nothing_is_made_anew(
    sail: Engine, open_: Open, tmp_path: Path, durability: str
) -> None:
    with created(sail, tmp_path, durability=durability) as db:
        assert db.store.catalog.get(UNSYNCED)
        before = states(db)
    with open_(tmp_path / "bank.ev", "another boot", readonly=True) as db:
        assert bank.faults(db)[1] == []
        assert states(db) == before


def test_with_durability_always_nothing_is_made_anew(
    sail: Engine, open_: Open, tmp_path: Path
) -> None:
    with created(sail, tmp_path, durability="always") as db:
        after = crash(tmp_path / "bank.ev", db)
        with open_(after, "another boot", durability="always") as copy:
            assert bank.faults(copy)[1] == []
            assert copy.maintain().recovered is None
            assert states(copy) == states(db)


def test_a_close_while_another_maintains_leaves_the_note(open_: Open, path: Path) -> None:
    db = open_(path)
    bank.work(db, random.Random(2), 60, 50)
    db.maintain()
    with views.maintenance_paused(open_(path).store):
        db.close()
    with open_(path, "another boot") as later:
        assert later.maintain().recovered


def test_state_is_synced_when_no_epoch_came_for_a_while(
    open_: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[str]()
    hand_over = stored.hand_over
    monkeypatch.setattr(stored, "hand_over", lambda path: (synced.append(path), hand_over(path)))
    db = open_(path)
    bank.work(db, random.Random(2), 60, 50)
    db.maintain()
    db.maintain()
    assert db.store.catalog.get(UNSYNCED)
    synced.clear()
    monkeypatch.setattr(recovery, "QUIET_SECONDS", 0.0)
    db.maintain()
    assert db.store.catalog.get(UNSYNCED) is None
    assert {Path(one).name for one in synced} == {
        *os.listdir(path / "state"),
        "catalog",
    }


def test_a_sync_that_fails_leaves_the_note_and_shows_in_the_status(
    open_: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = open_(path)
    bank.work(db, random.Random(2), 60, 50)
    db.maintain()
    monkeypatch.setattr(recovery, "QUIET_SECONDS", 0.0)

    def fail(path: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(stored, "sync_file", fail)
        assert not db.maintain().failed
    assert db.store.catalog.get(UNSYNCED)
    assert "Input/output error" in " ".join(db.failed_syncs().values())
    db.maintain()
    assert db.store.catalog.get(UNSYNCED) is None
    assert not db.failed_syncs()


def test_the_note_is_on_disk_before_any_state_is_written(
    open_: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = list[Unsynced | None]()
    hand_over, apply, load = stored.hand_over, EmbeddedShard.apply, EmbeddedShard.load
    db = open_(path)

    def handed(path: str) -> None:
        hand_over(path)
        if path.endswith("catalog"):
            noted.append(db.store.catalog.get(UNSYNCED))

    def checked(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            assert noted[-1:] == [Unsynced(stored.boot_id())]
            return work(*given)

        return call

    monkeypatch.setattr(stored, "hand_over", handed)
    monkeypatch.setattr(EmbeddedShard, "apply", checked(apply))
    monkeypatch.setattr(EmbeddedShard, "load", checked(load))
    bank.work(db, random.Random(2), 60, 50)
    assert db.maintain().epochs == 1
    monkeypatch.setattr(recovery, "QUIET_SECONDS", 0.0)
    db.maintain()
    assert noted[-1] == Unsynced(stored.boot_id())
    noted.clear()
    db.sql("CREATE MATERIALIZED VIEW copy AS SELECT * FROM transfers")
    assert db.maintain().loaded == ["copy"]


def test_a_log_that_came_back_shorter_is_told(open_: Open, path: Path) -> None:
    """Under 'interval' a table may lose its last second; views are made of what is there."""
    after = crash(path, open_(path), "tables")
    with open_(after, "another boot") as db:
        made = db.maintain().recovered or ""
        assert "table transfers, region" in made
        assert "those between are lost" in made
        for seed in range(2):
            bank.work(db, random.Random(seed), 60, 50)
            db.maintain()
            assert bank.faults(db)[1] == []


def test_views_that_have_more_than_a_log_are_stopped_until_repaired(
    open_: Open, path: Path
) -> None:
    """Without a crash of the machine: files that don't belong together."""
    after = crash(path, open_(path), "tables")
    with open_(after) as db:
        failed = db.maintain().failed
        assert sorted(failed) == sorted(bank.VIEWS)
        assert "table transfers, region" in failed["total"]
        assert "but views had all changes up to" in failed["total"]
        assert db.view("total").status == "stopped"
        for name in bank.VIEWS:
            assert not db.rebuild(name).failed
        bank.work(db, random.Random(7), 60, 50)
        assert not db.maintain().failed
        assert bank.faults(db)[1] == []
