"""Pins, as other processes see them: a file for each says who holds which epoch, since when.

A file of a process that was killed stays, and is removed by who looks next. Pins work without:
where the directory can't be written, they are just not listed.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

DOCUMENT = "pins"  # in the catalog: `max_age`, in seconds
MAX_AGE = 10**6  # seconds, which a clock can wait
_DIRECTORY = "pins"


@dataclass(frozen=True)
class PinNote:
    """A pin that a process holds; `since` in seconds since 1970, `max_age` in seconds, None if it
    has no limit."""

    process: int
    epoch: int
    since: float
    max_age: float | None


def write_note(home: str, epoch: int, max_age: float | None) -> Path | None:
    """Note a pin of this process; gives its file, or None if there can't be one."""
    note = PinNote(os.getpid(), epoch, time.time(), max_age)
    file = Path(home, _DIRECTORY, f"{note.process}.{uuid.uuid4().hex[:8]}")
    try:
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(asdict(note)))
    except OSError:
        return None
    return file


def remove_note(file: Path, process: int) -> None:
    """Remove a pin's file, if this is the process that pinned and not a child of it."""
    if os.getpid() == process:
        with suppress(OSError):
            file.unlink()


def notes(home: str) -> list[PinNote]:
    """The pins of all processes, the oldest first."""
    found = []
    for file in Path(home, _DIRECTORY).glob("*.*"):
        with suppress(OSError, ValueError, TypeError):
            note = PinNote(**json.loads(file.read_text()))
            if not _is_alive(note.process):
                file.unlink()
            elif note.max_age is None or time.time() < note.since + note.max_age:
                found.append(note)
    return sorted(found, key=lambda note: note.since)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
