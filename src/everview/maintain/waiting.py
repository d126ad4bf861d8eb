"""Which views wait to be loaded, and which of them at once, between two epochs."""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import TopologicalSorter

from everview.catalog import REPLACEMENTS, VIEWS, ViewRecord
from everview.catalog.records import NEW
from everview.plan.nodes import Node, Refresh, Replace, Source
from everview.stores.base import Store

SMALL_ROWS = 20_000  # to be read for a load; it takes no longer than an epoch


@dataclass(frozen=True)
class Group:
    """Views that are loaded together, each after those that it reads. They are new; or they are new
    definitions, which take the place of the old ones together: then `root` is the view that CREATE
    OR REPLACE named."""

    views: list[ViewRecord]
    root: str | None = None


def waiting(store: Store) -> list[Group]:
    """The views to load: new ones first, each by itself, then groups of new definitions."""
    new = [view for view in store.catalog.all(VIEWS).values() if view.status == NEW]
    replacing: dict[str, list[ViewRecord]] = {}
    for replacement in store.catalog.all(REPLACEMENTS).values():
        replacing.setdefault(replacement.root, []).append(replacement.view)
    return [
        *(Group([view]) for view in _in_order(new)),
        *(Group(_in_order(views), root) for root, views in replacing.items()),
    ]


def _in_order(views: list[ViewRecord]) -> list[ViewRecord]:
    """Each view after those that it reads."""
    named = {view.name.lower(): view for view in views}
    over = {name: map(str.lower, view.views.values()) for name, view in named.items()}
    return [named[name] for name in TopologicalSorter(over).static_order() if name in named]


def is_small(store: Store, group: Group) -> bool:
    """Whether a group is loaded between two epochs: it takes no longer than an epoch; or the engine
    computes a part of it that a live view has too, and may compute it otherwise the next time."""
    return rows_to_read(store, group.views) <= SMALL_ROWS or shares_recomputed(store, group.views)


def rows_to_read(store: Store, views: list[ViewRecord]) -> int:
    """The rows of all tables that the views read, as often as they do."""
    nodes = [node for view in views for node in view.plan.walk()]
    nodes += [source for node in nodes if isinstance(node, Refresh) for source in node.sources]
    sources = {node.identity: node.table for node in nodes if isinstance(node, Source)}
    rows = {
        table: sum(region.rows for region in store.status(table)) for table in set(sources.values())
    }
    return sum(rows[table] for table in sources.values())


def shares_recomputed(store: Store, views: list[ViewRecord]) -> bool:
    """Whether a live view has an operator of these whose rows the engine computes."""
    live = {
        identity
        for view in store.catalog.all(VIEWS).values()
        if view.is_live
        for identity in view.operators
    }
    return any(node.identity in live for view in views for node in recomputed(view.plan))


def recomputed(plan: Node) -> list[Node]:
    """The operators of a plan whose rows the engine computes, perhaps otherwise the next time."""
    return [node for node in plan.walk() if isinstance(node, Replace)]
