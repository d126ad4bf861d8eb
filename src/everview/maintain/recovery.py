"""What maintenance finds when it begins: after a crash of the machine, or with files that don't
belong together."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from everview.catalog import EPOCH, INTENT, UNSYNCED, VIEWS, Epoch
from everview.errors import WriteError
from everview.maintain.cut import time_now
from everview.stores.base import RecordChanges, Store

QUIET_SECONDS = 30.0


def recover(store: Store, token: int) -> str | None:
    """After a crash of the machine have all views made anew, from what the tables have now, and
    say why."""
    if not store.states.is_suspect:
        return None
    epoch = store.catalog.epoch
    lost = [f"; {what}" for what in ahead_of_logs(store, epoch).values()]
    views = {key: view.anew() for key, view in store.catalog.all(VIEWS).items()}
    nothing: RecordChanges = {EPOCH: replace(epoch, positions={}), INTENT: None, UNSYNCED: None}
    store.catalog.write({**views, **nothing}, token)
    return (
        f"the machine crashed before the state of all views was on disk{''.join(lost)}; all views "
        "are loaded again from the tables"
    )


def ahead_of_logs(store: Store, epoch: Epoch) -> dict[str, str]:
    """What an epoch has of tables and the logs don't, in words by table."""
    found = {}
    there = store.tables()
    for table, positions in epoch.positions.items():
        held = store.log(table) if table in there else {}
        for region, position in positions.items():
            if region in held and held[region].last < position:
                found[table] = (
                    f"table {table}, region {region}: its log ends at change {held[region].last}, "
                    f"but views had all changes up to {position}: those between are lost"
                )
    return found


def settle_if_quiet(store: Store, token: int) -> None:
    """Sync all state if the last epoch was a while ago; if that fails, the status tells."""
    epoch = store.catalog.epoch
    if time_now() - epoch.time > QUIET_SECONDS * 1e6:
        with suppress(WriteError):
            store.states.settle(token)
