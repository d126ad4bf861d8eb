"""Limits of epochs, as users write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner

import everview as ev
from everview.batch import Batch
from everview.cli.main import main
from everview.errors import DataError


@pytest.mark.parametrize(
    ("limits", "batch"),
    [
        (None, Batch()),
        (50_000, Batch(changes=50_000)),
        ("50000", Batch(changes=50_000)),
        ("50_000", Batch(changes=50_000)),
        ("1s", Batch(seconds=1.0)),
        ("500 ms", Batch(seconds=0.5)),
        ("1.5 min", Batch(seconds=90.0)),
        (timedelta(milliseconds=250), Batch(seconds=0.25)),
        ("64MB", Batch(bytes=64_000_000)),
        ("64 MiB", Batch(bytes=64 << 20)),
        (["1000", "2s", "1gb"], Batch(1000, 10**9, 2.0)),
        (Batch(changes=7), Batch(changes=7)),
    ],
    ids=str,
)
def test_limits_are_changes_times_and_sizes(limits: Any, batch: Batch) -> None:
    assert Batch.of(limits) == batch


@pytest.mark.parametrize(
    "limit", [0, -5, 1.5, True, "", "many", "5 parsecs", "0s", "-1s", "1e3", timedelta(0), "1.5"]
)
def test_what_is_no_limit_is_refused_with_examples(limit: Any) -> None:
    with pytest.raises(DataError, match=r"50000\), a time \(1s, 500ms\), or a size \(64MB"):
        Batch.of([limit])


def test_the_command_refuses_it_as_a_wrong_use(db: ev.Database) -> None:
    shown = CliRunner().invoke(main, ["run", str(db.path), "--once", "--batch", "5 parsecs"])
    assert shown.exit_code == 2
    assert "a batch can't be '5 parsecs'" in shown.output
