"""What rules may know of the tables that a plan reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TableFacts:
    """Of one table: its primary key, and whether its rows are neither changed nor deleted."""

    key: tuple[str, ...]
    append_only: bool = False


@dataclass(frozen=True)
class Facts:
    """By table; views that a plan reads are not among them."""

    tables: Mapping[str, TableFacts] = field(default_factory=dict)

    def key_of(self, table: str) -> tuple[str, ...] | None:
        found = self.tables.get(table)
        return found.key if found else None

    def is_append_only(self, table: str) -> bool:
        found = self.tables.get(table)
        return found is not None and found.append_only
