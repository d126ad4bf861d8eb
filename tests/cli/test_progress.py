"""The progress bar of load on a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from everview.cli.loading import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_rewritten_in_place_and_cleared(monkeypatch: pytest.MonkeyPatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    line = ProgressLine("a.csv")
    line.show(10, 0.1)  # too early
    assert terminal.getvalue() == ""
    line.last_shown -= 1
    line.start -= 2
    line.show(1000, 0.5)
    assert terminal.getvalue().startswith("\ra.csv  [##########          ]  50%  1,000 rows  ")
    line.clear()
    assert terminal.getvalue().endswith(" \r")


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]):
    line = ProgressLine("a.csv")
    line.last_shown -= 1
    line.show(1000, 0.5)
    line.clear()
    assert capsys.readouterr().err == ""
