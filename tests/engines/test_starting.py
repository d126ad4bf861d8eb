"""Whoever waits for Spark to start is told so: once, and only if someone watches."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from everview import starting
from everview.engines import sessions


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tells_itself", "is_starting", "_was_announced"):
        monkeypatch.setattr(starting, name, False)


def start_twice() -> None:
    for _ in range(2):
        with starting.announcing():
            assert starting.is_starting
        assert not starting.is_starting


def test_a_terminal_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    start_twice()
    assert terminal.getvalue() == f"{starting.TEXT} ...\n"


def test_a_notebook_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    start_twice()
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (f"{starting.TEXT} ...\n", "")


def test_nobody_is_told_who_does_not_watch_or_is_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start_twice()
    monkeypatch.setattr(starting, "tells_itself", True)
    monkeypatch.setattr(starting, "_was_announced", False)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    start_twice()
    assert terminal.getvalue() == ""
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_it_is_told_when_a_jvm_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    class Launched(Exception):
        pass

    def active() -> None:
        raise sessions.PySparkRuntimeError("none", messageParameters={})

    def launch() -> None:
        assert starting.is_starting
        raise Launched

    monkeypatch.setattr(sessions.SparkSession, "active", active)
    monkeypatch.setattr(sessions, "_launch", launch)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with pytest.raises(Launched):
        sessions._spark()
    assert terminal.getvalue().count("starting Spark") == 1
