"""Records of views in the catalog, as tests look at them and change them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

import everview as ev
from everview.catalog import VIEWS, Definition, ViewRecord
from everview.plan.nodes import Source
from everview.schema import Column


def record_of(db: ev.Database, view: str) -> ViewRecord:
    record = db.store.catalog.get(VIEWS[view])
    assert record is not None
    return record


def records(db: ev.Database) -> list[ViewRecord]:
    return list(db.store.catalog.all(VIEWS).values())


def change_record(db: ev.Database, view: str, **fields: Any) -> None:
    """Write a view's record with other fields."""
    db.store.catalog.write({VIEWS[view]: replace(record_of(db, view), **fields)})


def change_query(db: ev.Database, view: str, query: str) -> None:
    """Have a view say that it is of another query than it was made from."""
    change_record(db, view, definition=Definition(query))


def all_states(db: ev.Database) -> set[str]:
    """The states that views know."""
    return {state for view in records(db) for state in view.states.values()}


def a_view(name: str = "v", **fields: Any) -> ViewRecord:
    """A view over a table t, which shows one column and has no state unless the fields say so."""
    plan = Source((Column("id", pa.int32()),), "t", ("id",))
    return ViewRecord(
        **{
            "name": name,
            "definition": Definition("SELECT id FROM t"),
            "consistency": "strong",
            "plan_text": plan.text,
            "tables": ("t",),
            "views": {},
            "key": ("id",),
            "order": (),
            "is_open": False,
            "shards": (0,),
            **fields,
        }
    )
