"""Records of a load beside epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from everview.catalog.records import (
    Document,
    Flat,
    Positions,
    positions_from_json,
    positions_to_json,
)
from everview.catalog.views import ViewRecord

# stages of a load
BEGINNING, LOADING, CATCHING_UP = "beginning", "loading", "catching up"
READY, OVER = "ready", "over"


@dataclass(frozen=True)
class LoadRecord:
    """Views that are loaded beside the epochs of others, and how far they are.

    The views have places for their state, which is of the tables at `positions`; its last epoch is
    `number`. While the load catches up, the next epoch goes to the positions `end`. `outputs` are
    the identities of operators whose output lies in its place already, and `loaded` the names of
    views that have their rows. The state `notes` has how many rows were read. `begun` is when the
    load began, or went on, in seconds since 1970, with `rows_before` rows read and `share_before`
    of its work done before. `root` is as in `Replacement`; None if the views are new.
    """

    views: tuple[ViewRecord, ...]
    root: str | None
    number: int
    positions: Positions
    places: Mapping[str, str]
    notes: str
    expected_rows: int
    begun: float
    rows_before: int = 0
    share_before: float = 0.0
    stage: str = LOADING
    outputs: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()
    end: Positions | None = None

    @property
    def tables(self) -> set[str]:
        return {table for view in self.views for table in view.tables}

    @property
    def group(self) -> str:
        """The group of its views: they become part of one epoch."""
        return self.views[0].group

    @property
    def states(self) -> set[str]:
        """All states that the load needs."""
        if self.stage == OVER:
            return set()
        of_views = {state for view in self.views for state in view.states.values()}
        return {*of_views, *self.places.values(), self.notes}

    def of(self, views: Sequence[ViewRecord]) -> LoadRecord:
        """The load of fewer views."""
        tables = {table for view in views for table in view.tables}
        names = {view.name for view in views}
        return replace(
            self,
            views=tuple(views),
            loaded=tuple(name for name in self.loaded if name in names),
            positions={t: p for t, p in self.positions.items() if t in tables},
            end=self.end and {t: p for t, p in self.end.items() if t in tables},
        )

    def over(self) -> LoadRecord:
        """The load when nobody needs it any more."""
        return replace(self, stage=OVER)

    def to_document(self) -> Document:
        end = None if self.end is None else positions_to_json(self.end)
        return vars(self) | {
            "views": [view.to_document() for view in self.views],
            "positions": positions_to_json(self.positions),
            "places": dict(self.places),
            "outputs": list(self.outputs),
            "loaded": list(self.loaded),
            "end": end,
        }

    @classmethod
    def from_document(cls, document: Document) -> Self:
        end = document["end"]
        return cls(
            **document
            | {
                "views": tuple(map(ViewRecord.from_document, document["views"])),
                "positions": positions_from_json(document["positions"]),
                "outputs": tuple(document["outputs"]),
                "loaded": tuple(document["loaded"]),
                "end": None if end is None else positions_from_json(end),
            }
        )


@dataclass(frozen=True)
class Pace(Flat):
    """Whether the load with these `notes` has to wait, as other views are far behind. Without this
    record, or with another one's, a load has to end."""

    notes: str
    waits: bool = False
