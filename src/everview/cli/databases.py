"""Commands for a whole database: init, status."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

import click
import pyarrow as pa

import everview
from everview.cli.output import duration
from everview.cli.space import space_notes
from everview.errors import NotADatabase
from everview.results.result import render


@click.command()
@click.argument("db", type=click.Path())
@click.option(
    "--slots",
    type=int,
    help="In how many slots the state of views lies: a multiple of 4; by default 64.",
)
def init(db: str, slots: int | None) -> None:
    """Create a database in the directory DB.

    If DB is a database already, the command changes nothing.

    \b
    Example:
      everview init shop.ev
      everview init large.ev --slots 256
    """
    is_old = os.path.isdir(db) and _is_database(db)
    everview.open(db, create=True, slots=slots).close()
    click.echo(f"{db} is a database already" if is_old else f"created {db}")


@click.command()
@click.argument("db", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="All details, as JSON.")
def status(db: str, as_json: bool) -> None:
    """Show the tables and views of DB, and what is wrong with them.

    Of a table it shows the rows, the changes in the log, the bytes on disk and the regions. Of a
    view it shows the status, the epoch, and how far it is behind: the age of the oldest change that
    it does not show yet; of a view with parameters also how many members it has; and its group, if
    there are groups beside the main one. Views that are alike and maintained together are one line.
    Notes below the tables say why a view is stopped, waiting, suspect or not replaced, which files
    can't be synced, which process keeps much space from being used again, and how much space is
    free.

    \b
    Example:
      everview init shop.ev
      everview sql shop.ev "CREATE TABLE IF NOT EXISTS items (id INT PRIMARY KEY, name STRING)"
      everview status shop.ev
      everview status shop.ev --json
    """
    with everview.open(db, readonly=True) as database:
        show_status(database, as_json)


def show_status(database: everview.Database, as_json: bool = False) -> None:
    """Print tables, views, and what is wrong with them."""
    tables, space, pins = database.status(), database.space(), database.pins()
    views = _view_documents(database)
    sync_errors = database.failed_syncs()
    if as_json:
        document = {
            "tables": [dataclasses.asdict(table) for table in tables],
            "views": views,
            "failed_syncs": sync_errors,
            "space": dataclasses.asdict(space),
            "pins": [dataclasses.asdict(pin) for pin in pins],
        }
        click.echo(json.dumps(document))
        return
    columns = {
        "table": pa.array([table.name for table in tables], pa.string()),
        "rows": pa.array([table.rows for table in tables], pa.int64()),
        "changes": pa.array([table.changes for table in tables], pa.int64()),
        "bytes": pa.array([table.bytes for table in tables], pa.int64()),
        "regions": pa.array([len(table.regions) for table in tables], pa.int32()),
        "append only": pa.array([_yes(table.append_only) for table in tables], pa.string()),
    }
    click.echo(render(pa.table(columns), max(1, len(tables))))
    if views:
        click.echo(render(_table_of(views), len(views)))
    for view in views:
        if view["progress"]:
            click.echo(f"{view['name']} is {view['progress']['text']}")
        if view["error"]:
            state = "not replaced" if view["status"] in ("new", "live") else view["status"]
            click.echo(f"{view['name']} is {state}: {view['error']}")
    for directory, error in sync_errors.items():
        click.echo(f"{directory} can't be synced and may not survive a crash: {error}")
    for text in space_notes(space, pins, database.path):
        click.echo(text)


def _yes(value: bool) -> str:
    return "yes" if value else ""


def _view_documents(database: everview.Database) -> list[dict[str, Any]]:
    """A document for each view; one for views that are alike and maintained together, if there are
    several."""
    together: dict[str, list[everview.View]] = {}
    for view in map(database.view, database.views):
        together.setdefault(view.family or view.name, []).append(view)
    documents = []
    for first, *others in together.values():
        document = _view_document(first)
        if others:
            document["name"] += f" and {len(others):,} like it"
            document["members"] = 1 + len(others)
        documents.append(document)
    return documents


def _view_document(view: everview.View) -> dict[str, Any]:
    return {
        "name": view.name,
        "status": view.status,
        "progress": None if (progress := view.progress) is None else _progress_document(progress),
        "consistency": view.consistency,
        "group": view.group,
        "members": len(view.members) if view.parameters else None,
        "epoch": view.epoch if view.is_loaded else None,
        "freshness": view.freshness.total_seconds(),
        "error": view.error,
    }


def _progress_document(progress: everview.Progress) -> dict[str, Any]:
    return dataclasses.asdict(progress) | {
        "share": progress.share,
        "rate": progress.rate,
        "seconds_left": progress.seconds_left,
        "text": str(progress),
    }


def _table_of(views: list[dict[str, Any]]) -> pa.Table:
    """The table of views; the reason why one stopped is too long for it."""
    columns = {
        "view": pa.array([view["name"] for view in views], pa.string()),
        "status": pa.array([view["status"] for view in views], pa.string()),
        "consistency": pa.array([view["consistency"] for view in views], pa.string()),
        "group": pa.array([view["group"] for view in views], pa.string()),
        "members": pa.array([view["members"] for view in views], pa.int64()),
        "epoch": pa.array([view["epoch"] for view in views], pa.int64()),
        "behind by": pa.array([duration(view["freshness"]) for view in views], pa.string()),
    }
    if columns["members"].null_count == len(views):
        del columns["members"]
    if {view["group"] for view in views} == {"main"}:
        del columns["group"]
    return pa.table(columns)


def _is_database(path: str) -> bool:
    try:
        everview.open(path).close()
    except NotADatabase:
        return False
    return True
