"""Records of epochs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from everview.catalog.records import (
    Document,
    Positions,
    positions_from_json,
    positions_to_json,
)


@dataclass(frozen=True)
class Epoch:
    """The positions of all tables at a `time` in µs since 1970, up to which the views of a group
    follow them.

    For each group the catalog has the committed epoch, and the one that the maintainer works on
    (the intent). With `joins`, the views of the load that is ready become part of the group in this
    epoch. If it deals slots out, `tasks` says of each slot which task takes it.
    """

    number: int
    positions: Positions = field(default_factory=dict)
    time: int = 0
    joins: bool = False
    tasks: tuple[int, ...] = ()

    def without(self, tables: set[str]) -> Epoch:
        """The epoch of fewer tables."""
        remaining = {table: p for table, p in self.positions.items() if table not in tables}
        return replace(self, positions=remaining)

    def to_document(self) -> Document:
        positions = positions_to_json(self.positions)
        document: Document = {
            "number": self.number,
            "positions": positions,
            "time": self.time,
        }
        if self.joins:
            document["joins"] = True
        if self.tasks:
            document["tasks"] = list(self.tasks)
        return document

    @classmethod
    def from_document(cls, document: Document) -> Self:
        positions = positions_from_json(document["positions"])
        return cls(
            document["number"],
            positions,
            document.get("time", 0),
            document.get("joins", False),
            tuple(document.get("tasks", ())),
        )


NO_EPOCH = Epoch(0)  # of a database in which no view was ever loaded


@dataclass(frozen=True)
class Changes:
    """The last epochs that changed a table, the newest last: (epoch, how many changes)."""

    epochs: tuple[tuple[int, int], ...] = ()

    def to_document(self) -> Document:
        return {"epochs": [list(pair) for pair in self.epochs]}

    @classmethod
    def from_document(cls, document: Document) -> Self:
        return cls(tuple((epoch, number) for epoch, number in document["epochs"]))
