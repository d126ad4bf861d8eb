"""What `everview run` shows: on a terminal a line rewritten in place, on a pipe a line an epoch."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

import click

import everview
from everview.cli.output import duration

T = TypeVar("T")
_SECONDS_BETWEEN_LOOKS = 0.1
_MAIN = "main"  # the group of views that name none


class Finishing(Exception):
    """The user ended a run that only waits, so there is no epoch to finish."""


class LiveLine(everview.Watcher):
    """Shows each step of the maintainer; reports views that stop on standard error."""

    def __init__(self) -> None:
        self.finishing = threading.Event()
        self._turn = threading.RLock()
        self._width = 0
        self._waiting = ""
        self._groups: set[str] = set()  # that had an epoch

    def finish(self) -> None:
        """Let the maintainer end after the epoch in progress."""
        self.finishing.set()
        self.show("finishing the epoch in progress (Ctrl-C again ends at once) ...")

    def goes_on(self) -> bool:
        return not self.finishing.is_set()

    def waiting(self, holder: str) -> None:
        if self.finishing.is_set():
            raise Finishing
        text = f"waiting: {holder} maintains this database"
        if text != self._waiting:
            self._waiting = text
            self.say(text)

    def recovering(self, reason: str) -> None:
        self.warn(reason)

    def loading(self, view: str, number: int, of: int) -> None:
        self.note(f"loading {view}" + f" ({number} of {of})" * (of > 1) + " ...")

    def progress(self, progress: everview.Progress) -> None:
        self.show(f"{', '.join(progress.views)}: {progress}")

    def awaits_loads(self) -> bool:
        return not self.finishing.is_set()

    def loaded(self, view: str, seconds: float) -> None:
        self.say(f"loaded {view} in {seconds:.1f} s")

    def committed(self, epoch: everview.Epoch) -> None:
        self._groups.add(epoch.group)
        are_several = self._groups != {_MAIN}
        group = f"group {epoch.group}  " if are_several else ""
        self.note(
            f"{group}epoch {epoch.number}  {_count(epoch.changes, 'change')}  "
            f"{_count(epoch.rows, 'view row')}  lag {duration(epoch.lag)}  "
            f"{epoch.rate:,.0f} changes/s"
        )

    def stopped(self, view: str, reason: str) -> None:
        self.warn(f"view {view} is stopped: {reason}")

    def kept(self, view: str, reason: str) -> None:
        self.warn(f"view {view} is not replaced: {reason}")

    def warn(self, text: str) -> None:
        """Write a line to standard error."""
        with self._turn:
            self._clear()
            click.echo(text, err=True)

    def say(self, text: str) -> None:
        """Write a line that stays."""
        with self._turn:
            self._clear()
            click.echo(text)
            sys.stdout.flush()

    def note(self, text: str) -> None:
        """Show text in the live line of a terminal; on a pipe write a line that stays."""
        if sys.stdout.isatty():
            self.show(text)
        else:
            self.say(text)

    def show(self, text: str) -> None:
        """Show text in the live line, cut to the width of the terminal; nothing on a pipe."""
        if not sys.stdout.isatty():
            return
        with self._turn:
            text = text[: shutil.get_terminal_size().columns - 1]
            click.echo("\r" + text.ljust(self._width), nl=False)
            self._width = len(text)

    def end(self) -> None:
        """Leave the live line as it is; the next output begins below it."""
        with self._turn:
            if self._width:
                click.echo()
            self._width = 0

    def _clear(self) -> None:
        if self._width:
            click.echo("\r" + " " * self._width + "\r", nl=False)
        self._width = 0


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def end_at_once() -> None:
    """The reaction to Ctrl-C for work that can stop anywhere."""
    raise KeyboardInterrupt


def interruptible(work: Callable[[], T], interrupt: Callable[[], None]) -> T:
    """Run `work` in a thread and return its result.

    The first Ctrl-C calls `interrupt`, the second raises KeyboardInterrupt. In the main thread
    Ctrl-C would interrupt Spark's client in the middle of a message, and the client would then
    write tracebacks to the terminal.
    """
    done = threading.Event()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    def wait() -> None:
        # a signal may go to another thread, and is seen here only now and then
        while not done.wait(_SECONDS_BETWEEN_LOOKS):
            pass

    try:
        threading.Thread(target=run, daemon=True).start()
        wait()
    except KeyboardInterrupt:
        interrupt()
        wait()
    if errors:
        raise errors[0]
    return results[0]
