"""What a terminal shows while one waits, and how Ctrl-C ends that."""

from __future__ import annotations

import io
import re
import signal
import sys
import threading
import time

import pytest

from everview import starting
from everview.cli import waiting
from everview.cli.waiting import waiting_for
from everview.errors import InvalidSql, SqlError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def nothing() -> bool:
    return False


def test_a_terminal_is_told_what_takes_long_and_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(waiting, "SECONDS_BEFORE", 0.02)
    assert waiting_for("SELECT 1", lambda: time.sleep(0.2) or 7, nothing) == 7
    *shown, gap, end = terminal.getvalue().split("\r")
    assert re.fullmatch(r"(SELECT 1 \.\.\. 0 s)+", "".join(shown))
    assert gap.isspace()
    assert end == ""


def test_what_is_quick_or_not_watched_is_not_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "SECONDS_BEFORE", 0.02)
    waiting_for("SELECT 1", lambda: time.sleep(0.1), nothing)
    assert capsys.readouterr().err == ""
    terminal = Terminal()
    monkeypatch.setattr(waiting, "SECONDS_BEFORE", 60)
    monkeypatch.setattr(sys, "stderr", terminal)
    waiting_for("SELECT 1", nothing, nothing)
    assert terminal.getvalue() == ""


def test_while_spark_starts_that_is_what_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(waiting, "SECONDS_BEFORE", 0.02)
    monkeypatch.setattr(starting, "is_starting", True)
    waiting_for("SELECT 1", lambda: time.sleep(0.1), nothing)
    shown = terminal.getvalue().split("\r")[1]
    assert shown == f"{starting.TEXT} ... 0 s"
    assert len(shown) < 80, "a line that wraps can't be written over"


def test_an_error_of_the_work_is_an_error() -> None:
    def work() -> None:
        raise InvalidSql("no")

    with pytest.raises(InvalidSql, match="no"):
        waiting_for("SELECT 1", work, nothing)


@pytest.mark.parametrize("error", [SqlError("cancelled"), AssertionError()])
def test_ctrl_c_has_the_work_ended_whatever_that_makes_it_fail_with(error: Exception) -> None:
    asked = threading.Event()

    def work() -> None:
        press_ctrl_c()
        assert asked.wait(10)
        raise error

    def interrupt() -> bool:
        asked.set()
        return True

    with pytest.raises(KeyboardInterrupt):
        waiting_for("SELECT 1", work, interrupt)


def test_ctrl_c_does_not_wait_for_what_can_not_be_ended() -> None:
    released = threading.Event()

    def work() -> None:
        press_ctrl_c()
        released.wait(10)

    with pytest.raises(KeyboardInterrupt):
        waiting_for("SELECT 1", work, nothing)
    assert not released.is_set()
    released.set()


def test_what_was_done_in_spite_of_ctrl_c_is_said_to_be_so() -> None:
    asked = threading.Event()

    def work() -> None:
        press_ctrl_c()
        assert asked.wait(10)

    def interrupt() -> bool:
        asked.set()
        return True

    with pytest.raises(KeyboardInterrupt) as interrupted:
        waiting_for("INSERT", work, interrupt)
    assert interrupted.value.__notes__ == ["INSERT: it ended before the interrupt"]


def press_ctrl_c() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
