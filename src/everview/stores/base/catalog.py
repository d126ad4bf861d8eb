"""The catalog: typed records of views and epochs, which change together or not at all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from everview.catalog import (
    EPOCHS,
    MAIN,
    NAMED,
    NO_EPOCH,
    NUMBER_OF_SLOTS,
    VIEWS,
    Epoch,
    Key,
    Kind,
    Positions,
    Record,
    epoch_key,
)
from everview.catalog.views import SLOTS

R = TypeVar("R", bound=Record)
RecordChanges = Mapping[Key[Any], Record | None]


class CatalogReader(ABC):
    """Records to read: as they are now, or as a pin has them."""

    @abstractmethod
    def get(self, key: Key[R]) -> R | None:
        """The record of a key; None if there is none."""

    @abstractmethod
    def all(self, kind: Kind[R]) -> dict[Key[R], R]:
        """All records of a kind, in the order of their keys."""

    def view_names(self) -> list[str]:
        """The names of all views that users see, sorted: not of families that Everview made."""
        seen = {view.name for view in self.all(VIEWS).values() if view.like is None}
        return sorted(seen | {named.name for named in self.all(NAMED).values()})

    def hidden_tables(self) -> set[str]:
        """The tables of the members of families that Everview made."""
        return {view.hidden_table for view in self.all(VIEWS).values() if view.hidden_table}

    @property
    def epoch(self) -> Epoch:
        """The committed epoch of the main group; `NO_EPOCH` if there is none."""
        return self.epoch_of(MAIN)

    def epoch_of(self, group: str) -> Epoch:
        """The committed epoch of a group; `NO_EPOCH` if there is none."""
        return self.get(epoch_key(group)) or NO_EPOCH

    def groups(self) -> list[str]:
        """The groups that have views or an epoch, the main one first; it is always there."""
        of_views = {view.group for view in self.all(VIEWS).values()}
        return sorted({MAIN, *of_views, *(key.name for key in self.all(EPOCHS))})

    def positions_in(self, groups: Sequence[str]) -> Positions:
        """How far groups follow the tables; the first that follows a table counts."""
        positions: dict[str, Mapping[int, int]] = {}
        for group in reversed(groups):
            positions |= self.epoch_of(group).positions
        return positions

    @property
    def slots(self) -> int:
        """In how many slots the state of views lies."""
        for view in self.all(VIEWS).values():
            return view.slots
        slots = self.get(NUMBER_OF_SLOTS)
        return SLOTS if slots is None else slots.number


class Catalog(CatalogReader):
    """Records to read and write."""

    @abstractmethod
    def write(
        self,
        changes: RecordChanges,
        token: int | None = None,
        *,
        expected: RecordChanges | None = None,
        tables: Mapping[str, bool] | None = None,
    ) -> None:
        """Set records (None removes one), all in one durable step that nobody sees a part of.

        Nothing changes unless all of these hold at that moment; the error says which does not:
        `token` is that of the lease (`Superseded`); each key of `expected` has that record, or none
        (`Conflict`); each of the `tables` is there, or is not (`TableNotFound`, `TableExists`).
        """
