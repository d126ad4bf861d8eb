"""Records of the catalog: frozen, and the same after a round trip through JSON.

A field that older databases lack has a default, so that their records are still read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

Document = dict[str, Any]
Positions = Mapping[str, Mapping[int, int]]  # by table and region: the sequence of a change


class Record(Protocol):
    """A record of the catalog, stored under a key."""

    def to_document(self) -> Document: ...

    @classmethod
    def from_document(cls, document: Document) -> Self: ...


class Flat:
    """A record whose fields are its document as they are."""

    def to_document(self) -> Document:
        return dict(vars(self))

    @classmethod
    def from_document(cls, document: Document) -> Self:
        return cls(**document)


@dataclass(frozen=True)
class Waiting(Flat):
    """Why the engine fails, so that no view can be brought up to date; with `groups`, those of
    these groups alone."""

    why: str
    groups: tuple[str, ...] | None = None

    def holds(self, group: str) -> bool:
        """Whether the views of a group wait."""
        return self.groups is None or group in self.groups

    def to_document(self) -> Document:
        return {"why": self.why} | ({} if self.groups is None else {"groups": list(self.groups)})

    @classmethod
    def from_document(cls, document: Document) -> Self:
        groups = document.get("groups")
        return cls(document["why"], None if groups is None else tuple(groups))


@dataclass(frozen=True)
class PinLimit(Flat):
    """How many seconds old a pin may become."""

    max_age: float


@dataclass(frozen=True)
class Slots(Flat):
    """In how many slots the state of views is to lie, if the maker of a database has said it."""

    number: int


@dataclass(frozen=True)
class Constants:
    """Constants of the cost model by name, as they were measured for an engine."""

    values: Mapping[str, Any]

    def to_document(self) -> Document:
        return dict(self.values)

    @classmethod
    def from_document(cls, document: Document) -> Self:
        return cls(document)


@dataclass(frozen=True)
class Unsynced(Flat):
    """The boot of the machine that wrote state which may not be on the device yet."""

    boot: str


@dataclass(frozen=True)
class LeaseRecord(Flat):
    """How many maintainers took over, and whether earlier ones are shut out of all state."""

    token: int = 1
    fenced: bool = True


@dataclass(frozen=True)
class Arrivals(Flat):
    """How often named members came to a family; whoever deletes it expects that none came."""

    number: int = 0


def positions_to_json(positions: Positions) -> Document:
    return {
        table: {str(region): sequence for region, sequence in regions.items()}
        for table, regions in positions.items()
    }


def positions_from_json(document: Mapping[str, Mapping[str, int]]) -> Positions:
    return {
        table: {int(region): sequence for region, sequence in regions.items()}
        for table, regions in document.items()
    }
