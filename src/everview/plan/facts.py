"""Facts that rules may use about the tables that a plan reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from everview.plan.cost import Constants
from everview.plan.estimates import Estimates


@dataclass(frozen=True)
class TableFacts:
    """The primary key of a table, and whether its rows are never changed or deleted."""

    key: tuple[str, ...]
    append_only: bool = False


@dataclass(frozen=True)
class Costs:
    """What rules need to compare plans: estimates of nodes, the constants of an engine, how changes
    are spread over tables and how many rows each has in a delta, the identities of operators whose
    state is stored already, and the number of shards.
    """

    estimates: Estimates
    constants: Constants
    shares: Mapping[str, float]
    rows_of_change: Mapping[str, float]
    stored: frozenset[str]
    shards: int


@dataclass(frozen=True)
class Facts:
    """Facts by table; the views that a plan reads are not among them. `members` is the table of the
    members, if the plan is of a view with parameters; `adds_up` says whether they may share what is
    added up, and not just rows."""

    tables: Mapping[str, TableFacts] = field(default_factory=dict)
    costs: Costs | None = None
    members: str | None = None
    adds_up: bool = True

    def key_of(self, table: str) -> tuple[str, ...] | None:
        facts = self.tables.get(table)
        return facts.key if facts else None

    def is_append_only(self, table: str) -> bool:
        facts = self.tables.get(table)
        return facts is not None and facts.append_only
