"""Readers in other processes see books that balance at every moment."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from everview.run.engine import Engine
from tests.proofs import Prove

from . import bank

READERS = 2


def test_credits_equal_debits_at_every_read(
    sail: Engine, tmp_path: Path, proof: Prove, request: pytest.FixtureRequest
) -> None:
    """Each read is of one pin: four views, and now and then the table."""
    transfers, reads = (
        (1_000_000, 1_000_000) if request.config.getoption("--long") else (20_000, 4000)
    )
    with bank.create(str(tmp_path / "bank.ev")) as db:
        db._engine = sail
        db.maintain()
        readers = [
            subprocess.Popen(
                [sys.executable, bank.__file__, db.path, str(reads // READERS)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(READERS)
        ]
        chance, made, changes = random.Random(5), 0, 0
        while changes < transfers or any(reader.poll() is None for reader in readers):
            made = bank.work(db, chance, made, 200)
            changes += db.maintain().changes
        said = [reader.communicate()[0] for reader in readers]
        assert [text.partition(" reads")[0] for text in said] == [str(reads // READERS)] * READERS
        assert all(reader.returncode == 0 for reader in readers)
        epochs = [int(text.split()[-2]) for text in said]
        assert min(epochs) > 20, f"readers saw too few epochs to tell: {epochs}"
        assert bank.faults(db)[1] == []
        lost, twice = bank.verified(db)
        often = f"{changes:,} changes, {reads:,} reads"
        proof("books balance at every read", often, lost=lost, twice=twice)
        assert (lost, twice) == (0, 0)
