"""Whether a crash of the machine may have cost state of views.

State is synced late, unless durability is "always": it can be made again. While some of it is not
on the device, the document `unsynced` names the boot of the machine in which it was written; that
document itself is synced before. Who finds the name of another boot knows that state may be lost.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everview.errors import EverviewError, WriteError
from everview.stores.embedded.environment import SYNC_FAILED, sync_file
from everview.stores.embedded.lease import WORK

if TYPE_CHECKING:
    from everview.stores.embedded.store import EmbeddedStore

DOCUMENT = "unsynced"
SUSPECT = (
    "the machine crashed before the state of all views was on disk, so they may lack changes; "
    "the next `everview run DB --once` or db.maintain() loads them again from the tables"
)


@cache
def boot_id() -> str:
    """Names the time since the machine was started; empty where that is not to be had."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def this_boot() -> dict[str, Any]:
    """The document, for state that is written now."""
    return {"boot": boot_id()}


def is_suspect(document: dict[str, Any] | None) -> bool:
    return document is not None and document != this_boot()


def mark(store: EmbeddedStore, token: int) -> None:
    """Before state is written: note that it is not synced, durably."""
    store.settles = True
    if store.durability != "always" and store.document(DOCUMENT) is None:
        store.store_documents({DOCUMENT: this_boot()}, token)
        hand_over(os.path.join(store.path, "catalog"))


def settle(store: EmbeddedStore, token: int) -> None:
    """Sync the state of all views, and note that it is; with the lease held."""
    if store.document(DOCUMENT) == this_boot():
        for state in store.states():
            hand_over(os.path.join(store.path, "state", state))
        hand_over(os.path.join(store.path, "catalog"))
        store.store_documents({DOCUMENT: None}, token)


def settle_if_free(store: EmbeddedStore) -> None:
    """The same if nobody maintains views now; if it can't be done, the note stays."""
    with suppress(EverviewError), store.leases.held_if_free(WORK) as token:
        if token is not None:
            settle(store, token)


def hand_over(path: str) -> None:
    """Hand what any process has written in LMDB environments below a directory to the device."""
    for directory, _, names in os.walk(path):
        parts = [os.path.join(directory, "data.mdb")] if "data.mdb" in names else []
        note = os.path.join(directory, SYNC_FAILED)
        try:
            for part in (*parts, directory):
                sync_file(part)
        except OSError as error:
            with suppress(OSError):
                Path(note).write_text(str(error))
            raise WriteError(
                f"{directory} could not be synced: {error}. The data is written, but may not "
                "survive a crash of the machine."
            ) from error
        with suppress(OSError):
            os.unlink(note)
