"""Pins, as other processes see them: a file for each says who holds which epoch, since when.

The file of a process that was killed stays until another process lists the pins. Where the
directory can't be written, pins work but are not listed.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from everview.stores.base import PinnedStore, PinNote, Pins
from everview.stores.embedded.pinned import EmbeddedPin

if TYPE_CHECKING:
    from everview.stores.embedded.store import EmbeddedStore

_DIRECTORY = "pins"


class EmbeddedPins(Pins):
    """The pins of a store; it keeps the store open as long as it is used."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store

    def pin(
        self,
        views: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        max_age: float | None = None,
    ) -> PinnedStore:
        return EmbeddedPin(self._store, views, tables, max_age)

    def note(self, epoch: int, max_age: float | None) -> Callable[[], None]:
        file = _write_note(self._store.path, epoch, max_age)
        return partial(_remove_note, file, os.getpid())

    def notes(self) -> list[PinNote]:
        notes = []
        for file in Path(self._store.path, _DIRECTORY).glob("*.*"):
            with suppress(OSError, ValueError, TypeError):
                note = PinNote(**json.loads(file.read_text()))
                if not _is_alive(note.process):
                    file.unlink()
                elif note.max_age is None or time.time() < note.since + note.max_age:
                    notes.append(note)
        return sorted(notes, key=lambda note: note.since)


def _write_note(home: str, epoch: int, max_age: float | None) -> Path | None:
    """Note a pin of this process; returns its file, or None if it can't be written."""
    note = PinNote(os.getpid(), epoch, time.time(), max_age)
    file = Path(home, _DIRECTORY, f"{note.process}.{uuid.uuid4().hex[:8]}")
    try:
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(asdict(note)))
    except OSError:
        return None
    return file


def _remove_note(file: Path | None, process: int) -> None:
    """Remove a pin's file, if this is the process that pinned and not a child of it."""
    if file is not None and os.getpid() == process:
        with suppress(OSError):
            file.unlink()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
