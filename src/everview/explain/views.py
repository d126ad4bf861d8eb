"""How a view is maintained: its plan, with the size of its state and the views that share it."""

from __future__ import annotations

from everview.catalog import VIEWS, Positions, ViewRecord, title_of
from everview.catalog.views import ROWS
from everview.explain.plan import Document, explain
from everview.plan.nodes import Node
from everview.stores.base import Reader


def explain_view(store: Reader, view: ViewRecord) -> Document:
    """How a view is maintained, or would be if it is not in the catalog."""
    views = store.catalog.all(VIEWS).values()
    others = [other for other in views if other.name != view.name]
    live = [other for other in others if other.is_live and other.group == view.group]
    states = {identity: state for other in live for identity, state in other.operators.items()}
    states |= view.states if view.is_loaded else {}

    def size(node: Node | None) -> tuple[int, int] | None:
        state = states.get(ROWS if node is None else node.identity)
        if state is None:
            return None
        sizes = [store.states.shard(state, number).size() for number in view.shards]
        return sum(rows for rows, _ in sizes), sum(size for _, size in sizes)

    def shared(node: Node) -> list[str]:
        identity = node.identity
        state = states.get(identity)
        return sorted(v.name for v in others if state and v.states.get(identity) == state)

    is_created = store.catalog.get(VIEWS[view.name]) is not None
    return {
        "view": view.name,
        "status": view.status if is_created else "not created",
        "epoch": epoch_of(store, view) if is_created else None,
        "group": title_of(view.group),
        "error": view.error,
        "query": view.definition.query,
        "order": [str(by) for by in view.order],
        "shards": len(view.shards),
        **explain(view.plan, view.key, size, shared),
    }


def epoch_of(store: Reader, view: ViewRecord) -> int:
    """The newest committed epoch of its group, or the last before the view was stopped."""
    committed = store.catalog.epoch_of(view.group).number
    return committed if view.stopped_at is None else min(committed, view.stopped_at)


def positions_of(store: Reader, view: ViewRecord) -> Positions:
    """How far it follows the logs of tables: as far as its group, or up to where it was stopped."""
    positions = view.positions
    return store.catalog.epoch_of(view.group).positions if positions is None else positions
