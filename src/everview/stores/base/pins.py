"""Pins: a database as of one committed epoch, for as long as someone reads it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from everview.catalog import Key, Kind, Record
from everview.stores.base.catalog import CatalogReader
from everview.stores.base.reader import Reader

R = TypeVar("R", bound=Record)
MAX_AGE = 10**6  # seconds, which a clock can wait


@dataclass(frozen=True)
class PinNote:
    """A pin that a process holds; `since` in seconds since 1970, `max_age` in seconds, None if it
    has no limit."""

    process: int
    epoch: int
    since: float
    max_age: float | None


class PinnedCatalog(CatalogReader):
    """Records as they were when they were pinned."""

    def __init__(self, records: Mapping[Key[Any], Any]) -> None:
        self._records = records

    def get(self, key: Key[R]) -> R | None:
        return self._records.get(key)

    def all(self, kind: Kind[R]) -> dict[Key[R], R]:
        return {key: record for key, record in self._records.items() if key.kind == kind}


class PinnedStore(Reader):
    """Views and tables as of one epoch; reads repeat exactly until it is closed."""

    @property
    @abstractmethod
    def positions(self) -> Mapping[str, Mapping[int, int]]:
        """The position in the log of each region of each table."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the epoch; reads fail from now on. Closing twice is fine."""


class Pins(ABC):
    @abstractmethod
    def pin(
        self,
        views: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        max_age: float | None = None,
    ) -> PinnedStore:
        """Views and tables, by default all, as of the newest epoch.

        After `max_age` seconds it ends by itself, and reads raise `PinExpired`. Raises `NotLoaded`
        if state is suspect.
        """

    @abstractmethod
    def note(self, epoch: int, max_age: float | None) -> Callable[[], None]:
        """Let others see that this process holds a pin; returns what removes the note."""

    @abstractmethod
    def notes(self) -> list[PinNote]:
        """The pins of all processes, the oldest first."""
