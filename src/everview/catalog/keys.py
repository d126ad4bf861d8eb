"""Keys of records: a kind has many records, by name; a key names one of them, and its type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from everview.catalog.epochs import Changes, Epoch
from everview.catalog.followers import Followers
from everview.catalog.loads import LoadRecord, Pace
from everview.catalog.records import (
    Arrivals,
    Constants,
    LeaseRecord,
    PinLimit,
    Record,
    Slots,
    Unsynced,
    Waiting,
)
from everview.catalog.views import NamedMember, Replacement, ViewRecord

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Kind(Generic[R]):
    """Records of one type; `prefix` begins the texts of their keys."""

    prefix: str
    record: type[R]

    def __getitem__(self, name: str) -> Key[R]:
        """The key of a name, whatever its case."""
        return Key(self.prefix + name.lower(), self)

    def parse(self, document: dict[str, Any]) -> R:
        return self.record.from_document(document)


@dataclass(frozen=True)
class Key(Generic[R]):
    """The key of one record; `text` is the name of its document."""

    text: str
    kind: Kind[R]

    def __hash__(self) -> int:
        return hash(self.text)  # records are looked up by key many times in an epoch

    @property
    def name(self) -> str:
        return self.text[len(self.kind.prefix) :]


def _only(text: str, record: type[R]) -> Key[R]:
    """The key of a record that is the only one of its kind."""
    return Key(text, Kind(text, record))


VIEWS = Kind("view/", ViewRecord)
NAMED = Kind("named/", NamedMember)
ARRIVALS = Kind("arrivals/", Arrivals)
REPLACEMENTS = Kind("replacement/", Replacement)
CHANGES = Kind("changes/", Changes)
CHANGES_OF_GROUPS = Kind("group changes/", Changes)
FOLLOWERS = Kind("followers/", Followers)
CONSTANTS = Kind("constants/", Constants)
EPOCH = _only("epoch", Epoch)
INTENT = _only("intent", Epoch)
EPOCHS = Kind("epoch/", Epoch)  # of groups other than the main one, as all of `groups`
INTENTS = Kind("intent/", Epoch)
LOAD = _only("load", LoadRecord)
PACE = _only("pace", Pace)
WAITING = _only("waiting", Waiting)
PIN_LIMIT = _only("pins", PinLimit)
NUMBER_OF_SLOTS = _only("slots", Slots)
UNSYNCED = _only("unsynced", Unsynced)
LEASE = _only("lease", LeaseRecord)
