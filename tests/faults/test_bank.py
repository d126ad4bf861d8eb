"""Readers in other processes see books that balance at every moment."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import everview as ev
from everview.check import Definition, History, Level, Recorder, check_history
from everview.engines.engine import Engine
from tests.proofs import Prove

from . import bank
from .books import Books

READERS = 2
CHECKED_CHANGES = 10_000


def check(histories: list[Path], last: int, schemas: dict[str, ev.TableSchema]) -> None:
    """Every view, and all together, were strong up to an epoch."""
    history = History.load(*histories)
    reads = [read for read in history.reads if read.epoch is not None and read.epoch <= last]
    assert len({read.epoch for read in reads}) > 10, "too few epochs to tell"
    views = [Definition(name, query) for name, query in bank.VIEWS.items()]
    for verdict in check_history(replace(history, reads=reads), views, schemas):
        assert verdict.holds(Level.STRONG) is True, verdict.counterexample(Level.STRONG)


def test_credits_equal_debits_at_every_read(
    sail: Engine, tmp_path: Path, proof: Prove, request: pytest.FixtureRequest
) -> None:
    """A read is one of several views through a pin. The checker decides over the first changes and
    a sample of the reads meanwhile, which takes it seconds."""
    transfers = reads = 1_000_000 if request.config.getoption("--long") else 10_000
    pins = reads // READERS
    histories = [tmp_path / f"history {number}" for number in range(READERS + 1)]
    seen = Recorder(histories[-1])
    books: Books | None = Books(seen)
    with bank.create(str(tmp_path / "bank.ev"), books) as db:
        db.engines.use(sail)
        db.maintain()
        last = books.committed(db)
        readers = [
            subprocess.Popen(
                [sys.executable, bank.__file__, db.path, str(pins), str(history)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for history in histories[:READERS]
        ]
        chance, made, changes = random.Random(5), 0, 0
        while changes < transfers or any(reader.poll() is None for reader in readers):
            made = bank.work(db, chance, made, 200, books)
            changes += db.maintain().changes
            if books is not None:
                last = books.committed(db)
                if changes >= CHECKED_CHANGES:
                    bank.faults(db, seen=seen)
                    books = None
        said = [reader.communicate()[0] for reader in readers]
        assert [text.partition(" pins")[0] for text in said] == [str(pins)] * READERS
        assert all(reader.returncode == 0 for reader in readers)
        epochs = [int(text.split()[-2]) for text in said]
        assert min(epochs) > 20, f"readers saw too few epochs to tell: {epochs}"
        assert bank.faults(db)[1] == []
        lost, twice = bank.verified(db)
        often = f"{changes:,} changes, {reads:,} reads"
        proof("books balance at every read", often, lost=lost, twice=twice)
        assert (lost, twice) == (0, 0)
        schemas = {name: db.table(name).schema for name in db.tables()}
    seen.close()
    check(histories, last, schemas)
