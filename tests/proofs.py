"""What the fault tests have shown, as a table at the end of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Protocol

import pytest

_PROPERTY = "proof"
_HEADS = ("proof", "how often", "recovery p50", "max", "lost", "twice", "")


class Prove(Protocol):
    """`recovery` has the seconds until views moved on; `lost` and `twice` count records."""

    def __call__(
        self,
        name: str,
        often: str,
        recovery: Sequence[float] = (),
        lost: int | None = None,
        twice: int | None = None,
    ) -> None: ...


def proof_recorded(record: Callable[[str, object], None]) -> Prove:
    def prove(
        name: str,
        often: str,
        recovery: Sequence[float] = (),
        lost: int | None = None,
        twice: int | None = None,
    ) -> None:
        times = [f"{time:.2f} s" for time in (median(recovery), max(recovery))] if recovery else []
        counts = ["" if count is None else f"{count:,}" for count in (lost, twice)]
        record(_PROPERTY, [name, often, *(times or ["", ""]), *counts])

    return prove


def show_proofs(terminal: pytest.TerminalReporter) -> None:
    rows: list[tuple[Any, ...]] = [
        (*shown, outcome)
        for outcome in ("passed", "failed")
        for report in terminal.stats.get(outcome, [])
        for name, shown in getattr(report, "user_properties", ())
        if name == _PROPERTY and report.when == "call"
    ]
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(_HEADS, *rows, strict=True)]
    terminal.section("proofs")
    for row in (_HEADS, *rows):
        first, often, *rest = (
            cell.ljust(width) if place < 2 or place == len(_HEADS) - 1 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        terminal.write_line("  ".join([first, often, *rest]).rstrip())
