"""A line on the terminal during long work: what the command waits for, and for how long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Self, TypeVar

from everview import starting
from everview.cli.live import interruptible
from everview.cli.output import RewrittenLine
from everview.closing import Closing

T = TypeVar("T")
SECONDS_BEFORE = 1.0


def waiting_for(text: str, work: Callable[[], T], interrupt: Callable[[], bool]) -> T:
    """Run `work` and return its result; after a second, a terminal shows `text`.

    Ctrl-C calls `interrupt`, which cancels the work or returns False. After the work has ended,
    KeyboardInterrupt is raised. It is raised at once if the work can't be cancelled, or after a
    second Ctrl-C.
    """
    results: list[T] = []
    interrupted = threading.Event()

    def end() -> None:
        interrupted.set()
        line.text = f"ending {text} (Ctrl-C again ends at once)"
        if not interrupt():
            raise KeyboardInterrupt

    with WaitingLine(text) as line:
        try:
            interruptible(lambda: results.append(work()), end)
        except Exception:  # engines raise many kinds when work is cancelled
            if not interrupted.is_set():
                raise
    if interrupted.is_set():
        ending = KeyboardInterrupt()
        if results:
            ending.add_note(f"{text}: it ended before the interrupt")
        raise ending
    return results[0]


class WaitingLine(Closing):
    """A line on standard error that shows every second how long the wait is; only on a terminal."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def _show(self) -> None:
        start, line = time.monotonic(), RewrittenLine()
        while not self._is_over.wait(SECONDS_BEFORE):
            text = starting.TEXT if starting.is_starting else self.text
            line.write(f"{text} ... {time.monotonic() - start:.0f} s")
        line.clear()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._thread.start()
        return self

    def close(self) -> None:
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
