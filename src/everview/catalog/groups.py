"""Groups: views that move together. Each group has its own committed epoch, intent and changes.

The main group has the records `epoch`, `intent` and `changes/`, which are there in every database;
those of other groups have the name of the group in their keys.
"""

from __future__ import annotations

from everview.catalog.epochs import Changes, Epoch
from everview.catalog.keys import (
    CHANGES,
    CHANGES_OF_GROUPS,
    EPOCH,
    EPOCHS,
    INTENT,
    INTENTS,
    Key,
)

MAIN = ""  # the group of views that name none


def title_of(group: str) -> str:
    """What users call a group."""
    return group or "main"


def epoch_key(group: str) -> Key[Epoch]:
    """The key of the group's committed epoch."""
    return EPOCHS[group] if group else EPOCH


def intent_key(group: str) -> Key[Epoch]:
    """The key of the epoch that the maintainer works on for the group."""
    return INTENTS[group] if group else INTENT


def changes_key(group: str, table: str) -> Key[Changes]:
    """The key of the group's last epochs that changed a table."""
    return CHANGES_OF_GROUPS[f"{group}/{table}"] if group else CHANGES[table]
