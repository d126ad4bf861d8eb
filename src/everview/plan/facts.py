"""What rules may know of the tables that a plan reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from everview.plan.cost import Constants
from everview.plan.estimates import Estimates


@dataclass(frozen=True)
class TableFacts:
    """Of one table: its primary key, and whether its rows are neither changed nor deleted."""

    key: tuple[str, ...]
    append_only: bool = False


@dataclass(frozen=True)
class Costs:
    """What rules that weigh plans go by: estimates of nodes, the constants of an engine, how
    changes are spread over tables and how many rows each has in a delta, which operators have
    their state already, and in how many shards.
    """

    estimates: Estimates
    constants: Constants
    shares: Mapping[str, float]
    rows_of_change: Mapping[str, float]
    kept: frozenset[str]
    shards: int


@dataclass(frozen=True)
class Facts:
    """By table; views that a plan reads are not among them."""

    tables: Mapping[str, TableFacts] = field(default_factory=dict)
    costs: Costs | None = None

    def key_of(self, table: str) -> tuple[str, ...] | None:
        found = self.tables.get(table)
        return found.key if found else None

    def is_append_only(self, table: str) -> bool:
        found = self.tables.get(table)
        return found is not None and found.append_only
