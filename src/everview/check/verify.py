"""Verify: recompute a view at its epoch, with Spark from the store, and compare."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everview.run.engine import start

if TYPE_CHECKING:
    from everview.database import Database


@dataclass(frozen=True)
class Verdict:
    """Whether a view equals its recomputation; rows that only one of them has, with counts."""

    view: str
    epoch: int
    missing: dict[Any, int]
    extra: dict[Any, int]

    @property
    def equal(self) -> bool:
        return not self.missing and not self.extra


def verify(db: Database, name: str) -> Verdict:
    """Compare as multisets, at the epoch that is committed now."""
    view = db.view(name)
    epoch = db.store.document("epoch") or {"number": 0, "positions": {}}
    at = {table: epoch["positions"][table] for table in view.plan.tables()}
    wanted = Counter(_rows(start("spark").select_at(db.path, view.sql, at)))
    found = Counter(_rows(view.to_arrow()))
    return Verdict(view.name, epoch["number"], dict(wanted - found), dict(found - wanted))


def _rows(table: Any) -> list[tuple[str, ...]]:
    return [tuple(map(str, row.values())) for row in table.to_pylist()]
