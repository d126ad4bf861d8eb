"""What `everview run` shows, on a terminal and on a pipe, and how it ends."""

from __future__ import annotations

import dataclasses
import io
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import everview
from everview.cli import main, views
from everview.cli.live import LiveLine
from everview.cli.output import duration
from everview.errors import DatabaseError, StoreFull
from everview.maintain.report import Report

EPOCH = everview.Epoch(number=7, changes=1_200, rows=34, seconds=0.5, lag=0.814)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def shop(tmp_path: Path) -> str:
    path = str(tmp_path / "shop.ev")
    everview.open(path, create=True).close()
    return path


def watched(*steps: Any) -> Any:
    """A maintain that does these steps and then, like a user, presses Ctrl-C."""
    left = list(steps)

    def maintain(db: everview.Database, watch: Any, **options: Any) -> Report:
        if left:
            left.pop(0)(watch)
        else:
            press_ctrl_c()
            assert watch.finishing.wait(10)
            assert not watch.goes_on()
        return Report(epochs=1)

    return maintain


def press_ctrl_c() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_on_a_pipe_there_is_a_line_for_each_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    line = LiveLine()
    line.show("starting the engine ...")
    line.loading("q3", 1, 2)
    line.loaded("q3", 1.26)
    line.committed(EPOCH)
    line.stopped("q4", "sum(x) does not fit")
    line.end()
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "loading q3 (1 of 2) ...",
        "loaded q3 in 1.3 s",
        "epoch 7  1,200 changes  34 view rows  lag 0.81 s  2,400 changes/s",
    ]
    assert shown.err == "view q4 is stopped: sum(x) does not fit\n"


def test_lines_name_the_group_once_there_is_another(capsys: pytest.CaptureFixture[str]) -> None:
    line = LiveLine()
    for group in ("main", "slow", "main"):
        line.committed(dataclasses.replace(EPOCH, group=group))
    shown = [text.split("  ")[:2] for text in capsys.readouterr().out.splitlines()]
    assert shown[0][0] == "epoch 7"
    assert shown[1:] == [["group slow", "epoch 7"], ["group main", "epoch 7"]]


def test_on_a_terminal_the_line_is_rewritten_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((60, 24)))
    line = LiveLine()
    line.loading("q3", 1, 1)
    line.loaded("q3", 1.26)
    line.committed(EPOCH)
    line.committed(EPOCH)
    line.end()
    loading = "loading q3 ..."
    cleared = "\r" + " " * len(loading) + "\r"
    epoch = "\repoch 7  1,200 changes  34 view rows  lag 0.81 s  2,400 cha"
    assert terminal.getvalue() == f"\r{loading}{cleared}loaded q3 in 1.3 s\n{epoch * 2}\n"
    assert len(epoch.strip()) == 59, "less than the terminal is wide"


def test_ctrl_c_ends_a_run_politely(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [lambda watch: watch.committed(EPOCH), lambda watch: watch.stopped("q4", "why")]
    monkeypatch.setattr(everview.Database, "maintain", watched(*steps))
    result = CliRunner().invoke(main, ["run", shop, "--every", "0"])
    assert result.exit_code == 130
    assert result.stdout.splitlines() == [
        "epoch 7  1,200 changes  34 view rows  lag 0.81 s  2,400 changes/s",
        "stopped; the next run continues from here",
    ]
    assert result.stderr == "view q4 is stopped: why\n"


def test_a_run_that_has_nothing_to_do_says_so_on_a_pipe_too(
    shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def maintain(db: everview.Database, watch: Any, **options: Any) -> Report:
        threading.Timer(0.1, press_ctrl_c).start()
        return Report()

    monkeypatch.setattr(everview.Database, "maintain", maintain)
    result = CliRunner().invoke(main, ["run", shop, "--every", "60"])
    assert result.stdout.splitlines() == [
        "nothing is pending; waiting for changes (Ctrl-C ends)",
        "stopped; the next run continues from here",
    ]


def test_a_second_ctrl_c_ends_it_at_once(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def maintain(db: everview.Database, watch: Any, **options: Any) -> Report:
        press_ctrl_c()
        assert watch.finishing.wait(10)
        time.sleep(0.2)  # the main thread waits for this one again
        press_ctrl_c()
        released.wait(10)
        raise DatabaseError("which no one hears of")

    monkeypatch.setattr(everview.Database, "maintain", maintain)
    result = CliRunner().invoke(main, ["run", shop])
    released.set()
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"


def test_an_error_of_the_maintainer_is_one_line(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def maintain(db: everview.Database, watch: Any, **options: Any) -> Report:
        raise DatabaseError("broken")

    monkeypatch.setattr(everview.Database, "maintain", maintain)
    result = CliRunner().invoke(main, ["run", shop])
    assert result.exit_code == 1
    assert result.stderr == "error[EV100]: broken\n"


def test_a_run_goes_on_when_there_is_room_again(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(watch: Any) -> None:
        raise StoreFull("nothing fits")

    monkeypatch.setattr(views, "SECONDS_BETWEEN_TRIES", 0.01)
    steps = [full, full, lambda watch: watch.committed(EPOCH)]
    monkeypatch.setattr(everview.Database, "maintain", watched(*steps))
    result = CliRunner().invoke(main, ["run", shop, "--every", "0"])
    assert result.exit_code == 130
    assert result.stderr.count("nothing fits; trying again every 0.01 s\n") == 2
    assert "epoch 7" in result.stdout


def test_a_run_without_views_says_so(shop: str) -> None:
    result = CliRunner().invoke(main, ["run", shop, "--once"])
    assert result.exit_code == 0
    assert result.stdout == "there are no views yet; create one with CREATE MATERIALIZED VIEW\n"


def test_wrong_use_is_told_without_a_traceback(tmp_path: Path, shop: str) -> None:
    for arguments, code, said in [
        (["run", str(tmp_path / "nope.ev"), "--once"], 1, "error[EV101]"),
        (["run", shop, "--engine", "flink"], 2, "'flink' is not one of 'spark', 'sail'"),
        (["run", shop, "--every", "-1"], 2, "-1.0 is not in the range"),
        (["explain", shop, "nope"], 1, "error[EV204]: there is no view nope; there are no views"),
        (["verify", shop, "nope"], 1, "error[EV204]: there is no view nope"),
    ]:
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == code, result.output
        assert said in result.stderr
        assert "Traceback" not in result.stderr


def test_durations_are_short() -> None:
    shown = [duration(seconds) for seconds in (0, 0.044, 3.2, 42.4, 130, 9_000, 1_000_000)]
    assert shown == ["0 s", "0.04 s", "3.20 s", "42 s", "2 min", "2 h", "12 d"]
