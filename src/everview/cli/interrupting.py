"""Ctrl-C in the process of a command: exit code 130 at any moment, and no traceback.

While a command works, Ctrl-C raises KeyboardInterrupt in the main thread. If it comes in the middle
of a destructor or a callback, Python prints the exception and forgets it; here it is raised again.
In the middle of a write it is raised when the write is done.
After the command has ended, a first Ctrl-C changes nothing. The process then ends without Python's
own shutdown, so threads that an interrupted command leaves behind do no harm, such as one that
waits for a JVM.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

from everview.finishing import is_finishing

INTERRUPTED = 130
_MOMENT = 0.01  # seconds


def begin() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt, wherever it comes."""
    sys.unraisablehook = _raise_again
    signal.signal(signal.SIGALRM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if is_finishing():
        signal.setitimer(signal.ITIMER_REAL, _MOMENT)
        return
    while frame is not None:
        if frame.f_code is _raise_again.__code__:  # it would be lost in there
            signal.setitimer(signal.ITIMER_REAL, _MOMENT)
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _raise_again(unraisable: sys.UnraisableHookArgs) -> None:
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, _MOMENT)
    else:
        sys.__unraisablehook__(unraisable)


def end(code: int) -> NoReturn:
    """Tidy up and end the process; a second Ctrl-C meanwhile ends it at once."""
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, _once_more)
    if code == INTERRUPTED:  # nobody needs to know what fails now
        sys.excepthook = sys.unraisablehook = _be_quiet
        threading.excepthook = _be_quiet
    atexit._run_exitfuncs()
    _end_at_once(code)


def _once_more(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, lambda number, frame: _end_at_once(INTERRUPTED))


def _end_at_once(code: int) -> NoReturn:
    """End the process without Python's own shutdown, which would stop handling signals early."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, RuntimeError):
            stream.flush()
    os._exit(code)


def _be_quiet(*failed: Any) -> None:
    pass
