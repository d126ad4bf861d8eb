"""Which views wait to be loaded, and which of them at once, between two epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from graphlib import TopologicalSorter

from everview.catalog import LOAD, REPLACEMENTS, VIEWS, LoadRecord, ViewRecord
from everview.catalog.views import NEW
from everview.maintain.views import live_operators
from everview.plan.nodes import Node, Refresh, Replace, Source
from everview.stores.base import Store

SMALL_ROWS = 20_000  # to be read for a load; it takes no longer than an epoch


@dataclass(frozen=True)
class Newcomers:
    """Views of one group that are loaded together, each after those that it reads. They are new; or
    they are new definitions, which take the place of the old ones together: then `root` is the view
    that CREATE OR REPLACE named."""

    views: list[ViewRecord]
    root: str | None = None

    @property
    def group(self) -> str:
        return self.views[0].group


def waiting(store: Store) -> list[Newcomers]:
    """The views to load: new ones first, each by itself, then new definitions that replace others
    together."""
    new = [view for view in store.catalog.all(VIEWS).values() if view.status == NEW]
    replacing: dict[str, list[ViewRecord]] = {}
    for replacement in store.catalog.all(REPLACEMENTS).values():
        replacing.setdefault(replacement.root, []).append(replacement.view)
    return [
        *(Newcomers([view]) for view in _in_order(new)),
        *(Newcomers(_in_order(views), root) for root, views in replacing.items()),
    ]


def _in_order(views: list[ViewRecord]) -> list[ViewRecord]:
    """Each view after those that it reads."""
    named = {view.name.lower(): view for view in views}
    over = {name: map(str.lower, view.views.values()) for name, view in named.items()}
    return [named[name] for name in TopologicalSorter(over).static_order() if name in named]


def small_and_large(store: Store) -> tuple[list[Newcomers], list[Newcomers]]:
    """The views to load, apart from those that are being loaded: between two epochs, and beside
    them.

    A load between two epochs takes no longer than an epoch; or the engine computes a part of it
    that a live view has too, and may compute it otherwise the next time.
    """
    load = store.catalog.get(LOAD)
    names = {view.name for view in load.views} if load is not None else set()
    rows_of = cache(partial(_rows_of, store))
    small, large = list[Newcomers](), list[Newcomers]()
    for newcomers in waiting(store):
        if not names.isdisjoint(view.name for view in newcomers.views):
            continue
        is_small = rows_to_read(newcomers.views, rows_of) <= SMALL_ROWS
        is_small = is_small or shares_recomputed(store, newcomers.views)
        (small if is_small else large).append(newcomers)
    return small, large


def _rows_of(store: Store, table: str) -> int:
    return sum(region.rows for region in store.status(table))


def expected_rows(store: Store, views: Sequence[ViewRecord]) -> int:
    """The rows that a load of views has to read."""
    return rows_to_read(views, cache(partial(_rows_of, store)))


def rows_to_read(views: Sequence[ViewRecord], rows_of: Callable[[str], int]) -> int:
    """The rows of all tables that the views read, as often as they do."""
    nodes = [node for view in views for node in view.plan.walk()]
    nodes += [source for node in nodes if isinstance(node, Refresh) for source in node.sources]
    sources = {node.identity: node.table for node in nodes if isinstance(node, Source)}
    return sum(map(rows_of, sources.values()))


def still_waiting(store: Store, load: LoadRecord) -> list[ViewRecord]:
    """The views of a load that wait for it, as they were when it began."""
    return [view for view in load.views if _waiting_view(store, load, view) == _plain(view)]


def _waiting_view(store: Store, load: LoadRecord, view: ViewRecord) -> ViewRecord | None:
    if load.root is None:
        new = store.catalog.get(VIEWS[view.name])
        return None if new is None or new.status != NEW else _plain(new)
    replacement = store.catalog.get(REPLACEMENTS[view.name])
    if replacement is None or replacement.root != load.root:
        return None
    return _plain(replacement.view)


def _plain(view: ViewRecord) -> ViewRecord:
    return replace(view, states={})


def shares_recomputed(store: Store, views: Sequence[ViewRecord]) -> bool:
    """Whether a live view of their group has an operator of these whose rows the engine
    computes."""
    live = {group: live_operators(store, group) for group in {view.group for view in views}}
    return any(
        node.identity in live[view.group] for view in views for node in recomputed(view.plan)
    )


def recomputed(plan: Node) -> list[Node]:
    """The operators of a plan whose rows the engine computes, perhaps otherwise the next time."""
    return [node for node in plan.walk() if isinstance(node, Replace)]
