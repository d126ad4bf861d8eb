"""Records of views: what defines them, where their state is, and what they have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from everview.catalog.records import (
    Document,
    Positions,
    positions_from_json,
    positions_to_json,
)
from everview.plan.nodes import Node, Order, node_of

NEW, LIVE, STOPPED = "new", "live", "stopped"
LOAD_NOTES = 2  # the newest version, see ViewRecord
LOAD_LAG = 2.0  # seconds, see ViewRecord
SLOTS, MOST_SLOTS = 64, 1024  # of a database, unless its maker says otherwise, and at the most
ROWS = "view"  # stands for the rows of a view among the identities of its operators


@dataclass(frozen=True)
class Like:
    """What views have in common that differ in constants only: the tokens of their query, the key
    of each and the order of its rows. `first` is the name of the first one. `apart` and `together`
    are the seconds that 1,000 changes were expected to take for so many `views`."""

    tokens: str
    key: tuple[str, ...]
    order: tuple[Order, ...]
    first: str
    views: int
    apart: float
    together: float

    def to_document(self) -> Document:
        return {**vars(self), "key": list(self.key), "order": _order_to_json(self.order)}

    @classmethod
    def from_document(cls, document: Document) -> Self:
        key, order = tuple(document["key"]), _order_from_json(document["order"])
        return cls(**{**document, "key": key, "order": order})


@dataclass(frozen=True)
class Family:
    """What makes a view a family: its query as users wrote it, with `:name` for each parameter, and
    the table with a row for each member, whose columns are the parameters. They are the first
    columns of the view, too. `sharing` says what members share: `full`, also what is added up;
    `selection`, no more than a join shares. A family that Everview made of views that are alike
    has `like`; users see these views, and not the family."""

    text: str
    members: str
    parameters: tuple[str, ...]
    sharing: str = "full"
    like: Like | None = None

    def to_document(self) -> Document:
        like = {} if self.like is None else {"like": self.like.to_document()}
        parameters = list(self.parameters)
        return {
            "text": self.text,
            "members": self.members,
            "parameters": parameters,
            "sharing": self.sharing,
            **like,
        }

    @classmethod
    def from_document(cls, document: Document) -> Self:
        like = document.get("like")
        return cls(
            document["text"],
            document["members"],
            tuple(document["parameters"]),
            document.get("sharing", "full"),
            None if like is None else Like.from_document(like),
        )


@dataclass(frozen=True)
class Definition:
    """The definition of a view: its query, its own names for the columns, if any, and whether the
    engine computes the whole query anew in every epoch that may change it.

    The query of a family reads the table of its members instead of parameters.
    """

    query: str
    columns: tuple[str, ...] = ()
    is_full: bool = False
    family: Family | None = None

    @property
    def text(self) -> str:
        """The query as users wrote it."""
        return self.query if self.family is None else self.family.text


@dataclass(frozen=True)
class ViewRecord:
    """A view: its definition, its plan, where its state is, and how it is doing.

    Its state lies in `slots`, by the hashes of keys, and these in `shards`, in turn: both are the
    same for all views of a database.

    `tables` are those it reads, itself or through views; `widths` tells for the tables in its query
    how many columns they had. `views` are the names of the views it reads, by what its query calls
    them. `states` tells for each operator, by identity, where its state is, and under `ROWS` where
    the view's rows are. `positions` and `stopped_at` are what a stopped view has. `loaded_at` is
    the epoch it was loaded at. `load_notes` is the version of the notes in which its operators said
    that their load had ended: below `LOAD_NOTES`, state may lack rows. While it is `rebuilding`, it
    has no rows to read. Its load gives way to other views that are more than `load_lag` seconds
    behind. It moves together with the views of its `group`; the main group has no name.
    """

    name: str
    definition: Definition
    consistency: str
    plan_text: str
    tables: tuple[str, ...]
    views: Mapping[str, str]
    key: tuple[str, ...]
    order: tuple[Order, ...]
    is_open: bool
    shards: tuple[int, ...]
    widths: Mapping[str, int] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)
    status: str = NEW
    error: str | None = None
    stopped_at: int | None = None
    positions: Positions | None = None
    loaded_at: int = 0
    load_notes: int = 0
    rebuilding: bool = False
    load_lag: float = LOAD_LAG
    slots: int = SLOTS
    group: str = ""

    @cached_property
    def plan(self) -> Node:
        return node_of(self.plan_text)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of a family, which are the first columns of its key."""
        family = self.definition.family
        return () if family is None else family.parameters

    @property
    def like(self) -> Like | None:
        """What its views have in common, if Everview made it of views that are alike."""
        family = self.definition.family
        return None if family is None else family.like

    @property
    def title(self) -> str:
        """What users know it by: its name, or that of the first view of a family that Everview
        made."""
        return self.name if self.like is None else f"{self.like.first} and views like it"

    @property
    def hidden_table(self) -> str | None:
        """The table of the members of a family that Everview made."""
        family = self.definition.family
        return None if family is None or family.like is None else family.members

    @property
    def is_live(self) -> bool:
        return self.status == LIVE

    @property
    def is_loaded(self) -> bool:
        """Whether there are rows to read; a view that was stopped after its load has them too."""
        return self.is_live or bool(self.stopped_at)

    @property
    def rows(self) -> str:
        """The state that has the view's rows."""
        return self.states[ROWS]

    @property
    def operators(self) -> dict[str, str]:
        """The states of its operators, by identity."""
        return {identity: state for identity, state in self.states.items() if identity != ROWS}

    def anew(self) -> ViewRecord:
        """The view with no state, to be loaded again."""
        return replace(
            self,
            status=NEW,
            rebuilding=True,
            states={},
            error=None,
            stopped_at=None,
            positions=None,
        )

    def live(self, epoch: int) -> ViewRecord:
        """The view once it is loaded."""
        return replace(self, status=LIVE, load_notes=LOAD_NOTES, loaded_at=epoch, rebuilding=False)

    def stopped(self, epoch: int, positions: Positions, error: str) -> ViewRecord:
        """The view stopped at an epoch, with the reason; epoch 0: it was never loaded."""
        own_positions = {table: p for table, p in positions.items() if table in self.tables}
        return replace(self, status=STOPPED, stopped_at=epoch, positions=own_positions, error=error)

    def to_document(self) -> Document:
        optional = {
            "error": self.error,
            "stopped_at": self.stopped_at,
            "positions": None if self.positions is None else positions_to_json(self.positions),
            "loaded_at": self.loaded_at or None,
            "noted": self.load_notes or None,
            "rebuilding": self.rebuilding or None,
            "load_lag": None if self.load_lag == LOAD_LAG else self.load_lag,
            "slots": None if self.slots == SLOTS else self.slots,
            "group": self.group or None,
            "family": family.to_document() if (family := self.definition.family) else None,
        }
        return {
            "name": self.name,
            "sql": self.definition.query,
            "columns": list(self.definition.columns),
            "refresh": "full" if self.definition.is_full else "incremental",
            "consistency": self.consistency,
            "plan": self.plan_text,
            "tables": list(self.tables),
            "widths": dict(self.widths),
            "views": dict(self.views),
            "key": list(self.key),
            "order": _order_to_json(self.order),
            "open": self.is_open,
            "shards": list(self.shards),
            "states": dict(self.states),
            "status": self.status,
            **{name: value for name, value in optional.items() if value is not None},
        }

    @classmethod
    def from_document(cls, document: Document) -> Self:
        positions = document.get("positions")
        return cls(
            name=document["name"],
            definition=Definition(
                document["sql"],
                tuple(document.get("columns", ())),
                document.get("refresh") == "full",
                None
                if (family := document.get("family")) is None
                else Family.from_document(family),
            ),
            consistency=document["consistency"],
            plan_text=document["plan"],
            tables=tuple(document["tables"]),
            views=document["views"],
            key=tuple(document["key"]),
            order=_order_from_json(document["order"]),
            is_open=document["open"],
            shards=tuple(document["shards"]),
            widths=document.get("widths", {}),
            states=document["states"],
            status=document["status"],
            error=document.get("error"),
            stopped_at=document.get("stopped_at"),
            positions=None if positions is None else positions_from_json(positions),
            loaded_at=document.get("loaded_at", 0),
            load_notes=int(document.get("noted", 0)),
            rebuilding=document.get("rebuilding", False),
            load_lag=document.get("load_lag", LOAD_LAG),
            slots=document.get("slots", SLOTS),
            group=document.get("group", ""),
        )


@dataclass(frozen=True)
class NamedMember:
    """A view that is a member of a family which Everview made: the view's own query, and its values
    of the family's parameters, a decimal or a date as its text. The family shows its rows when it
    has come to the position `since` of the log of members. Until then a view that was replaced has
    the rows of the values `before`."""

    name: str
    query: str
    family: str
    values: tuple[int | str, ...]
    since: int
    before: tuple[int | str, ...] | None = None

    def to_document(self) -> Document:
        return dict(vars(self))

    @classmethod
    def from_document(cls, document: Document) -> Self:
        before = document["before"]
        values = {"values": tuple(document["values"]), "before": before and tuple(before)}
        return cls(**{**document, **values})


@dataclass(frozen=True)
class Replacement:
    """A view that is to take the place of the one with its name, together with all others that
    have the same `root`: the view that CREATE OR REPLACE named."""

    view: ViewRecord
    root: str

    def to_document(self) -> Document:
        return self.view.to_document() | {"root": self.root}

    @classmethod
    def from_document(cls, document: Document) -> Self:
        return cls(ViewRecord.from_document(document), document["root"])


def _order_to_json(order: tuple[Order, ...]) -> list[list[Any]]:
    return [[by.column, by.descending, by.nulls_first] for by in order]


def _order_from_json(order: list[list[Any]]) -> tuple[Order, ...]:
    return tuple(Order(*by) for by in order)
