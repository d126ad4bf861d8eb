"""A full disk at every stage of an epoch: it is told, reads go on, and so do views later."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

import lmdb
import pytest
from click.testing import CliRunner

import everview as ev
from everview.catalog import EPOCH, INTENT, VIEWS
from everview.cli.main import main
from everview.engines.engine import Engine
from everview.errors import StoreFull, WriteError
from everview.maintain import background, epochs
from everview.maintain.background import BackgroundMaintainer
from everview.stores.base import RecordChanges
from everview.stores.embedded import EmbeddedStore
from everview.stores.embedded.catalog import EmbeddedCatalog
from everview.stores.embedded.environment import Environment
from everview.stores.embedded.shard import EmbeddedShard
from everview.stores.embedded.states import EmbeddedStates
from tests.proofs import Prove
from tests.records import all_states

from . import bank

PATIENCE = 30.0
PAGE = 4096
TOGETHER = "together"
LOADING = ("state of a new view", "logs of a new view", "start of a load", "load", "end of a load")
STAGES = ("intent", "shards", "commit", "acknowledgement", "trimming", *LOADING)


class Disk:
    """Full for what is written at one stage of an epoch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full_at = ""
        self.refused = 0
        self._local = threading.local()
        self._patch = monkeypatch
        self._stage(EmbeddedCatalog, "write", self._of_records)
        self._stage(EmbeddedStore, "acknowledge", lambda *_: "acknowledgement")
        self._stage(EmbeddedStore, "trim", lambda *_: "trimming")
        self._stage(EmbeddedStore, "register", lambda *_: "logs of a new view")
        self._stage(EmbeddedStates, "create", lambda *_: LOADING[0])
        self._stage(EmbeddedShard, "apply", lambda *_: "shards")
        self._stage(EmbeddedShard, "load", lambda *_: "load")
        self._stage(EmbeddedStates, "together", lambda *_: TOGETHER)
        writing, fallocate = Environment.writing, os.posix_fallocate

        @contextmanager
        def write(environment: Environment) -> Iterator[Any]:
            with writing(environment) as txn:
                yield txn
                if self._is_full():
                    raise lmdb.DiskError("mdb_txn_commit: No space left on device")

        def allocate(*given: int) -> None:
            if self._is_full():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            fallocate(*given)

        monkeypatch.setattr(Environment, "writing", write)
        monkeypatch.setattr(os, "posix_fallocate", allocate)

    def _stage(self, of: type, name: str, stage: Callable[..., str]) -> None:
        method = getattr(of, name)

        @wraps(method)
        def call(*given: Any, **named: Any) -> Any:
            before, now = getattr(self._local, "stage", ""), stage(*given, **named)
            self._local.stage = now
            try:
                return method(*given, **named)
            finally:  # what is done together is written when that ends
                self._local.stage = now if before == TOGETHER else before

        self._patch.setattr(of, name, call)

    def _of_records(
        self, catalog: EmbeddedCatalog, changes: RecordChanges, token: int | None = None, **_: Any
    ) -> str:
        if changes.get(INTENT):
            return "intent"
        if INTENT in changes:
            return "commit"
        if EPOCH in changes and token is not None:
            return "start of a load"
        live = any(key.kind == VIEWS and view for key, view in changes.items())
        return "end of a load" if live and token is not None else ""

    def _is_full(self) -> bool:
        full = bool(self.full_at) and getattr(self._local, "stage", "") == self.full_at
        self.refused += full
        return full


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def wait_until_told(
    stage: str, db: ev.Database, running: BackgroundMaintainer, disk: Disk, work: Callable[[], None]
) -> StoreFull:
    """Write on until the maintainer has said twice that the disk is full; reads go on."""
    until, told = time.monotonic() + PATIENCE, dict[int, StoreFull]()
    while len(told) < 2:
        assert time.monotonic() < until, f"{stage}: refused {disk.refused} times, {told}"
        work()
        assert bank.faults(db)[1] == []
        if isinstance(running.error, StoreFull):
            told[id(running.error)] = running.error
            assert "StoreFull" in repr(running)
        else:
            assert running.error is None, running.error
    return next(iter(told.values()))


def wait_until_current(db: ev.Database, running: BackgroundMaintainer | None = None) -> float:
    """How long it takes until the views have everything."""
    began = time.monotonic()
    views = [db.view(name) for name in db.views()]
    while any(not view.is_loaded or view.freshness.total_seconds() for view in views):
        assert time.monotonic() < began + PATIENCE, running
        time.sleep(0.01)
    return time.monotonic() - began


def test_a_full_disk_at_any_stage_is_told_and_over_when_there_is_room(
    spark: Engine,
    sail: Engine,
    tmp_path: Path,
    disk: Disk,
    proof: Prove,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setattr(background, "SECONDS_BETWEEN_TRIES", 0.02)
    monkeypatch.setattr(epochs, "TRIM_EVERY", 1)
    monkeypatch.setattr(epochs, "TRIMMED_SECONDS", 0.0)
    rounds = 20 if request.config.getoption("--long") else 1
    chance, made, recovery = random.Random(3), 0, list[float]()

    with bank.create(str(tmp_path / "bank.ev")) as db:
        db.engines.use(sail)
        db.create_table("notes", {"id": "INT"}, key="id").put([{"id": 1}])

        def work() -> None:
            nonlocal made
            made = bank.work(db, chance, made, 40)

        work()
        db.maintain()
        with db.maintainer(every=0.01) as running:
            for stage in STAGES * rounds:
                disk.full_at, disk.refused = stage, 0
                if stage in LOADING:
                    db.sql("CREATE MATERIALIZED VIEW noted AS SELECT * FROM notes")
                told = wait_until_told(stage, db, running, disk, work)
                assert str(db.path) in str(told)
                assert "No space left on device" in str(told)
                assert "make room" in str(told)
                shown = CliRunner().invoke(main, ["status", db.path])
                assert shown.exit_code == 0
                assert "stopped" not in shown.output
                disk.full_at = ""
                recovery.append(wait_until_current(db, running))
                assert bank.faults(db)[1] == []
                if stage in LOADING:
                    db.sql("DROP VIEW noted")
        assert running.report.failed == {}
        lost, twice = bank.verified(db)
        proof("disk full at a stage", f"{len(recovery)} times", recovery, lost, twice)
        assert (lost, twice) == (0, 0)
        assert set(db.store.states.names()) == all_states(db)


@pytest.fixture
def running(small_disk: Path) -> Iterator[tuple[ev.Database, subprocess.Popen[str], Path]]:
    """A bank on a small disk and an `everview run` for it, with what that says in a file."""
    said = small_disk.parent / "said"
    with bank.create(str(small_disk / "bank.ev")) as db, open(said, "w") as file:
        bank.work(db, random.Random(1), 0, 300)
        script = str(Path(sys.executable).with_name("everview"))
        command = [script, "run", db.path, "--engine", "sail"]
        process = subprocess.Popen(command, stdout=file, stderr=file, text=True)
        yield db, process, said
        process.kill()
        process.wait()


def fill(filler: Path) -> None:
    """Use up all the room there is."""
    with open(filler, "ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(PAGE))


def spare(filler: Path, pages: int) -> None:
    os.truncate(filler, max(0, filler.stat().st_size - pages * PAGE))


def test_a_run_on_a_full_disk_goes_on_when_there_is_room(
    spark: Engine,
    sail: Engine,
    running: tuple[ev.Database, subprocess.Popen[str], Path],
    small_disk: Path,
    proof: Prove,
    request: pytest.FixtureRequest,
) -> None:
    """Wherever it is that LMDB finds no page to write to."""
    db, process, said = running
    db.engines.use(sail)
    chance, made, recovery = random.Random(3), 300, list[float]()
    wait_until_current(db)
    for number in range(20 if request.config.getoption("--long") else 2):
        warnings, until = said.read_text().count("trying again"), time.monotonic() + PATIENCE
        while said.read_text().count("trying again") <= warnings + 1:
            assert time.monotonic() < until, said.read_text()
            fill(small_disk / "filler")
            spare(small_disk / "filler", chance.randrange(30))  # so that there comes work to do
            with suppress(WriteError):
                made = bank.work(db, chance, made, 100)
            fill(small_disk / "filler")
            if number % 2 and "again" not in db.views():
                with suppress(WriteError):
                    db.sql(f"CREATE MATERIALIZED VIEW again AS {bank.VIEWS['credits']}")
            assert bank.faults(db)[1] == []
        shown = CliRunner().invoke(main, ["status", db.path])
        assert shown.exit_code == 0
        assert "stopped" not in shown.output
        (small_disk / "filler").unlink()
        recovery.append(wait_until_current(db))
        assert process.poll() is None, said.read_text()
        assert bank.faults(db)[1] == []
    # a part of a page may still have found room: then LMDB calls it an Input/output error
    assert "0 MiB free there); make room and write again" in said.read_text()
    assert "is stopped" not in said.read_text()
    lost, twice = bank.verified(db)
    proof("everview run on a full disk", f"{len(recovery)} times", recovery, lost, twice)
    assert (lost, twice) == (0, 0)
