"""What maintenance does first: after a crash of the machine, or with files that don't belong
together."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from everview.catalog import UNSYNCED, VIEWS, Epoch, Key, Record, epoch_key, intent_key
from everview.errors import WriteError
from everview.maintain.cut import time_now
from everview.maintain.views import states_of, without_load
from everview.stores.base import Store

QUIET_SECONDS = 30.0


def recover(store: Store, token: int) -> str | None:
    """After a crash of the machine, mark all views to be loaded again from the tables, and say
    why."""
    if not store.states.is_suspect:
        return None
    catalog = store.catalog
    epochs = {group: catalog.epoch_of(group) for group in catalog.groups()}
    losses = [what for epoch in epochs.values() for what in ahead_of_logs(store, epoch).values()]
    lost = [f"; {what}" for what in dict.fromkeys(losses)]
    views = catalog.all(VIEWS)
    store.states.renew(states_of(views.values()))
    changes: dict[Key[Any], Record | None] = {key: view.anew() for key, view in views.items()}
    for group, epoch in epochs.items():
        changes |= {epoch_key(group): replace(epoch, positions={}), intent_key(group): None}
    catalog.write({**changes, UNSYNCED: None, **without_load(store)}, token)
    return (
        f"the machine crashed before the state of all views was on disk{''.join(lost)}; all views "
        "are loaded again from the tables"
    )


def ahead_of_logs(store: Store, epoch: Epoch) -> dict[str, str]:
    """The changes that an epoch has but the logs lack, in words by table."""
    losses = {}
    tables = store.tables()
    for table, positions in epoch.positions.items():
        log = store.log(table) if table in tables else {}
        for region, position in positions.items():
            if region in log and log[region].last < position:
                losses[table] = (
                    f"table {table}, region {region}: its log ends at change {log[region].last}, "
                    f"but views had all changes up to {position}: those between are lost"
                )
    return losses


def settle_if_quiet(store: Store, token: int) -> None:
    """Sync all state if the last epoch was a while ago; if that fails, the status says so."""
    catalog = store.catalog
    newest = max(catalog.epoch_of(group).time for group in catalog.groups())
    if time_now() - newest > QUIET_SECONDS * 1e6:
        with suppress(WriteError):
            store.states.settle(token)
