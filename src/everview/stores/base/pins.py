"""Pins: a database as of one moment, for as long as someone reads it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from everview.catalog import VIEWS, Key, Kind, Positions, Record
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

    @cached_property
    def order(self) -> list[str]:
        """All groups: first those of the views that are pinned, the main one before others.

        A table is as of the first group that follows it. So it fits the views that were pinned
        with it; a table that views of several groups read can fit one of them only.
        """
        pinned = sorted({view.group for view in self.all(VIEWS).values()})
        return [*pinned, *(group for group in self.groups() if group not in pinned)]

    @property
    def positions(self) -> Positions:
        """How far the groups follow the tables, in their `order`."""
        return self.positions_in(self.order)


class PinnedStore(Reader):
    """Views and tables as of one moment; reads repeat exactly until it is closed."""

    @property
    @abstractmethod
    def catalog(self) -> PinnedCatalog:
        """The records as they were at that moment."""

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
        """Views and tables, by default all, as of the newest epoch of each group.

        After `max_age` seconds it ends by itself, and reads raise `PinExpired`. Raises `NotLoaded`
        if state is suspect.
        """

    @abstractmethod
    def note(self, epoch: int, max_age: float | None) -> Callable[[], None]:
        """Let others see that this process holds a pin; returns what removes the note."""

    @abstractmethod
    def notes(self) -> list[PinNote]:
        """The pins of all processes, the oldest first."""
