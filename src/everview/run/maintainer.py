"""The maintainer: loads new views, and runs epochs until nothing is pending.

Progress is in the store alone: the document `epoch` has the committed epoch and its positions in
every table's log; `intent` has the epoch that was begun. An intent without its commit is run again
with the same ranges; what was applied already answers from its outbox.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from everview.plan.nodes import Node
from everview.run.engine import Engine, readable
from everview.run.rounds import Step, program

if TYPE_CHECKING:
    from everview.stores.embedded import EmbeddedStore

Positions = dict[str, dict[int, int]]
CONSUMER = "everview"


@dataclass
class Report:
    """What `maintain` did."""

    epochs: int = 0
    changes: int = 0
    rows: int = 0
    seconds: float = 0.0
    loaded: list[str] = field(default_factory=list)


def maintain(store: EmbeddedStore, engine: Engine) -> Report:
    """Bring every view up to the newest change; waits while another process does so."""
    report, begun = Report(), time.monotonic()
    with store.maintaining():
        try:
            _load_new(store, engine, report)
            while _run_epoch(store, engine, report):
                pass
        except PySparkException as error:
            raise readable(error) from error
    report.seconds = time.monotonic() - begun
    return report


def forget_view(store: EmbeddedStore, name: str) -> str:
    """Stop maintaining a view, and keeping the logs of tables that no other view reads.

    Returns where its state is, which nothing uses any more.
    """
    with store.maintaining():
        views = store.documents("view/")
        gone = views.pop(f"view/{name.lower()}")
        unused = _tables(gone) - {table for view in views.values() for table in _tables(view)}
        changes: dict[str, dict[str, Any] | None] = {f"view/{name.lower()}": None}
        epoch = store.document("epoch")
        if epoch is not None and unused:
            kept = {t: p for t, p in epoch["positions"].items() if t not in unused}
            changes["epoch"] = epoch | {"positions": kept}
        store.store_documents(changes)
    for table in unused:
        store.unregister(table, CONSUMER)
    return str(gone["state"])


def _load_new(store: EmbeddedStore, engine: Engine, report: Report) -> None:
    """Load views that were just created, as of the committed epoch."""
    for name, view in store.documents("view/").items():
        if view["status"] != "new":
            continue
        epoch = store.document("epoch") or {"number": 1, "positions": {}}
        positions = _read_positions(epoch["positions"])
        for table in _tables(view):
            if table not in positions:
                positions[table] = {r: held.last for r, held in store.log(table).items()}
                store.register(table, CONSUMER, positions[table])
        store.store_documents({"epoch": _epoch(epoch["number"], positions)})
        report.rows += _run(store, engine, [view], epoch["number"], None, positions)
        store.store_documents({name: view | {"status": "live"}})
        report.loaded.append(view["name"])


def _run_epoch(store: EmbeddedStore, engine: Engine, report: Report) -> bool:
    """Run one epoch, or the one that was not finished; False if nothing is pending."""
    views = [v for v in store.documents("view/").values() if v["status"] == "live"]
    epoch = store.document("epoch")
    if not views or epoch is None:
        return False
    start = _read_positions(epoch["positions"])
    intent = store.document("intent")
    if intent is None or intent["number"] <= epoch["number"]:
        used = {table for view in views for table in _tables(view)}
        end = {t: {r: held.last for r, held in store.log(t).items()} for t in used}
        end = {t: end.get(t, start[t]) for t in start}
        if end == start:
            return False
        intent = _epoch(epoch["number"] + 1, end)
        store.store_documents({"intent": intent})
    begun = _read_positions(intent["positions"])
    end = {table: begun.get(table, start[table]) for table in start}
    touched = [view for view in views if any(start[t] != end[t] for t in _tables(view))]
    report.rows += _run(store, engine, touched, intent["number"], start, end)
    store.store_documents({"epoch": _epoch(intent["number"], end), "intent": None})
    for table, positions in end.items():
        store.acknowledge(table, CONSUMER, positions)
    report.epochs += 1
    report.changes += sum(end[t][r] - start[t][r] for t in start for r in start[t])
    return True


def _run(
    store: EmbeddedStore,
    engine: Engine,
    views: list[dict[str, Any]],
    number: int,
    start: Positions | None,
    end: Positions,
) -> int:
    """One Spark program for all the views; returns the view rows touched."""
    frames = []
    for view in views:
        step = Step(store.path, view["state"], view["shards"], number, start, end)
        plan = Node.from_json(view["plan"])
        frames.append(program(engine.session, plan, tuple(view["key"]), step))
    if not frames:
        return 0
    whole = reduce(lambda one, other: one.union(other), frames)
    return sum(row["touched"] for row in whole.collect())


def _tables(view: Mapping[str, Any]) -> set[str]:
    return Node.from_json(view["plan"]).tables()


def _epoch(number: int, positions: Positions) -> dict[str, Any]:
    return {"number": number, "positions": positions}


def _read_positions(document: Mapping[str, Mapping[str, int]]) -> Positions:
    return {t: {int(r): s for r, s in regions.items()} for t, regions in document.items()}
