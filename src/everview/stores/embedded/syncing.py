"""When and how what was written is handed to the device."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import lmdb

from everview.errors import WriteError
from everview.stores.embedded import process_locks

SYNC_SECONDS = 1.0
SYNC_FAILED = "sync-failed"  # a file beside LMDB's, while data can't be synced


class SyncSchedule:
    """Since when an environment has writes that are not synced, and when to sync them.

    Threads may share a schedule; one of them syncs at a time.
    """

    def __init__(self, path: str) -> None:
        self.unsynced_since: float | None = None
        self._path = path
        self._sync_at = 0.0
        self._turn = threading.Lock()

    def add_write(self, patience: float) -> None:
        """Something was written now.

        With patience, what is written again and again is synced later: by then its pages are
        written, else a sync would wait for each.
        """
        now = time.monotonic()
        since = self.unsynced_since = self.unsynced_since or now
        self._sync_at = min(now, since + patience) + SYNC_SECONDS

    def sync(self, hand_over: Callable[[], None], until: float | None) -> bool:
        """Hand the writes to the device, if that is due; False if it is not due by `until`.

        After a `WriteError` it stays to be synced, and a file beside it says why.
        """
        with self._turn:
            if self.unsynced_since is None:
                return True
            if until is not None and self._sync_at > until:
                return False
            self.unsynced_since, since = None, self.unsynced_since
            try:
                with process_locks.fork_lock:
                    hand_over()
            except (lmdb.Error, OSError) as error:
                self.unsynced_since = since
                with suppress(OSError), open(os.path.join(self._path, SYNC_FAILED), "w") as note:
                    note.write(str(error))
                raise WriteError(
                    f"{self._path} could not be synced: {error}. The data is written, but may not "
                    "survive a crash of the machine."
                ) from error
            with suppress(OSError):
                os.unlink(os.path.join(self._path, SYNC_FAILED))
            return True

    def end(self, close: Callable[[], None]) -> None:
        """Close the environment when no sync is under way; a later sync finds nothing to do."""
        with self._turn:
            self.unsynced_since = None
            close()


def sync_file(path: str) -> None:
    """Hand a file, or a directory, to the device."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
