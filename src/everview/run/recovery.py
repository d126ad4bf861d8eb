"""What maintenance finds when it begins: after a crash of the machine, or with files that don't
belong together; and the documents of epochs, which tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from everview.errors import WriteError
from everview.run.cut import Positions, time_now
from everview.stores.embedded import unsynced

if TYPE_CHECKING:
    from everview.stores.embedded import EmbeddedStore

View = dict[str, Any]
QUIET_SECONDS = 30.0


def recover(store: EmbeddedStore, token: int) -> str | None:
    """After a crash of the machine have all views made anew, from what the tables have now, and
    say why."""
    if not unsynced.is_suspect(store.document(unsynced.DOCUMENT)):
        return None
    views, epoch = store.documents("view/"), store.document("epoch") or epoch_document(1, {}, 0)
    lost = [f"; {what}" for what in ahead_of_logs(store, epoch).values()]
    nothing = {"epoch": epoch | {"positions": {}}, "intent": None, unsynced.DOCUMENT: None}
    store.store_documents({key: anew(view) for key, view in views.items()} | nothing, token)
    return (
        f"the machine crashed before the state of all views was on disk{''.join(lost)}; all views "
        "are loaded again from the tables"
    )


def anew(view: View) -> View:
    """The document of a view that is to be loaded again."""
    kept = {k: v for k, v in view.items() if k not in ("stopped_at", "positions", "error")}
    return kept | {"status": "new", "rebuilding": True, "states": {}}


def ahead_of_logs(store: EmbeddedStore, epoch: Mapping[str, Any]) -> dict[str, str]:
    """What epochs have of tables and the logs don't, told by table."""
    found = {}
    there = store.tables()
    for table, positions in read_positions(epoch.get("positions", {})).items():
        held = store.log(table) if table in there else {}
        for region, position in positions.items():
            if region in held and held[region].last < position:
                found[table] = (
                    f"table {table}, region {region}: its log ends at change {held[region].last}, "
                    f"but views had all changes up to {position}: those between are lost"
                )
    return found


def settle_if_quiet(store: EmbeddedStore, token: int) -> None:
    """Sync all state if the last epoch was a while ago; if that fails, the status tells."""
    epoch = store.document("epoch") or epoch_document(1, {}, 0)
    if time_now() - int(epoch["time"]) > QUIET_SECONDS * 1e6:
        with suppress(WriteError):
            unsynced.settle(store, token)


def epoch_document(number: int, positions: Positions, time: int) -> dict[str, Any]:
    """What is written of an epoch: the positions it goes to, which are those of a time in µs."""
    return {"number": number, "positions": positions, "time": time}


def read_positions(document: Mapping[str, Mapping[str, int]]) -> Positions:
    return {t: {int(r): s for r, s in regions.items()} for t, regions in document.items()}
