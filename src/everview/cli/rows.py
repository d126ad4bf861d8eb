"""Commands for rows: put, delete, get, scan."""

from __future__ import annotations

import sys
from typing import Any

import click
import pyarrow as pa

import everview
from everview import BATCH_ROWS
from everview.cli.keys import parse_bound, parse_keys
from everview.cli.loading import ProgressLine
from everview.cli.output import FORMATS, print_rows
from everview.errors import DataError, UnknownColumn
from everview.intake import documents_to_arrow
from everview.intake.documents import format_document, parse_document
from everview.intake.explain import short_repr
from everview.load.files import put_batches
from everview.load.json_lines import read_json_lines
from everview.results.result import count_rows, count_unchanged

# A key may begin with a minus sign.
_KEYS = {"ignore_unknown_options": True}


@click.command()
@click.argument("db", type=click.Path())
@click.argument("table")
@click.argument("rows", nargs=-1, required=True)
def put(db: str, table: str, rows: tuple[str, ...]) -> None:
    """Insert ROWS into TABLE; a row replaces the row with the same key.

    ROWS are JSON objects or arrays of objects. With - the command reads one object from each line
    of standard input, and puts batches of up to 65,536 lines. Write decimals and dates as strings,
    and BINARY as base64. A column that is left out is NULL.

    \b
    Example:
      everview init shop.ev
      everview sql shop.ev "CREATE TABLE IF NOT EXISTS items (id INT PRIMARY KEY, name STRING)"
      everview put shop.ev items '{"id": 1, "name": "pen"}' '{"id": 2, "name": "ink"}'
    """
    with everview.open(db) as database:
        target = database.table(table)
        if rows == ("-",):
            count, note = _put_lines(target), ""
        else:
            documents = [document for text in rows for document in _documents(text)]
            report = target.put(documents_to_arrow(target.schema, documents))
            count, note = report.rows, count_unchanged(report.unchanged)
    click.echo(f"{count_rows(count)} put{note}")


@click.command(context_settings=_KEYS)
@click.argument("db", type=click.Path())
@click.argument("table")
@click.argument("keys", nargs=-1, required=True)
def delete(db: str, table: str, keys: tuple[str, ...]) -> None:
    """Delete the rows with these KEYS from TABLE. A key without a row is no error.

    A key of several columns is a JSON array, such as '[1, "a"]'.

    \b
    Example:
      everview init shop.ev
      everview sql shop.ev "CREATE TABLE IF NOT EXISTS items (id INT PRIMARY KEY, name STRING)"
      everview put shop.ev items '{"id": 1, "name": "pen"}'
      everview delete shop.ev items 1
    """
    with everview.open(db) as database:
        target = database.table(table)
        count = target.delete(parse_keys(target.schema, list(keys))).rows
    click.echo(f"{count_rows(count)} deleted")


@click.command(context_settings=_KEYS)
@click.argument("db", type=click.Path())
@click.argument("table")
@click.argument("key")
@click.pass_context
def get(ctx: click.Context, db: str, table: str, key: str) -> None:
    """Print the row of TABLE with this KEY as JSON. TABLE may be a view.

    The command exits with 1 if there is no such row.

    A key of several columns is a JSON array, such as '[1, "a"]'.

    \b
    Example:
      everview init shop.ev
      everview sql shop.ev "CREATE TABLE IF NOT EXISTS items (id INT PRIMARY KEY, name STRING)"
      everview put shop.ev items '{"id": 1, "name": "pen"}'
      everview get shop.ev items 1
    """
    with everview.open(db, readonly=True) as database:
        view = _view(database, table)
        if view is None:
            source = database.table(table)
            schema = source.schema
            row, columns = source.get(parse_keys(schema, [key])[0]), schema.arrow
        else:
            row = view.get(parse_keys(view.key_schema, [key])[0])
            columns = view.schema
    if row is None:
        kind = "table" if view is None else "view"
        click.echo(f"{kind} {table} has no row with key {key}", err=True)
        ctx.exit(1)
    click.echo(format_document(row, columns))


@click.command()
@click.argument("db", type=click.Path())
@click.argument("table")
@click.option("--start", metavar="KEY", help="The first key, or its leading columns.")
@click.option("--stop", metavar="KEY", help="The key to stop before, or its leading columns.")
@click.option("--columns", metavar="A,B", help="Columns to show, separated by commas.")
@click.option("--limit", type=click.IntRange(0), help="The number of rows to show.")
@click.option("--format", type=FORMATS, default="table", show_default=True)
def scan(
    db: str,
    table: str,
    start: str | None,
    stop: str | None,
    columns: str | None,
    limit: int | None,
    format: str,
) -> None:
    """Print rows of TABLE in key order, from --start and before --stop. TABLE may be a view.

    The formats json (one object on each line) and csv lose nothing, and put and load can read them.
    In csv an empty field is NULL, and "" is the empty string.

    \b
    Example:
      everview init shop.ev
      everview sql shop.ev "CREATE TABLE IF NOT EXISTS items (id INT PRIMARY KEY, name STRING)"
      everview put shop.ev items '{"id": 1, "name": "pen"}' '{"id": 2, "name": "ink"}'
      everview scan shop.ev items --start 2 --columns name
      everview scan shop.ev items --format json
    """
    names = [name.strip() for name in columns.split(",")] if columns else None
    with everview.open(db, readonly=True) as database:
        if (view := _view(database, table)) is not None:
            if start is not None or stop is not None:
                raise click.UsageError("--start and --stop are for tables; a view has no key order")
            rows = _columns_of(view, names)
            print_rows(rows.schema, iter(rows.to_batches()), format, limit)
            return
        source = database.table(table)
        schema = source.schema
        arrow = pa.schema([schema.arrow.field(i) for i in schema.positions(names)])
        batches = source.batches(
            parse_bound(schema, start),
            parse_bound(schema, stop),
            arrow.names,
            batch_rows=BATCH_ROWS if limit is None else min(BATCH_ROWS, limit + 1),
        )
        print_rows(arrow, batches, format, limit)


def _view(database: everview.Database, name: str) -> everview.View | None:
    """The view of that name, or None. Writes its note, if it has one, to standard error."""
    if name.lower() not in map(str.lower, database.views):
        return None
    view = database.view(name)
    if view.note:
        click.echo(view.note, err=True)
    return view


def _columns_of(view: everview.View, names: list[str] | None) -> pa.Table:
    """The rows of a view, with the named columns or all."""
    rows = view.to_arrow()
    column_names = {name.lower(): name for name in rows.column_names}
    for name in names or ():
        if name.lower() not in column_names:
            raise UnknownColumn(
                f"view {view.name} has no column {name}; it has {', '.join(rows.column_names)}"
            )
    return rows if names is None else rows.select([column_names[name.lower()] for name in names])


def _put_lines(table: everview.Table) -> int:
    """Put the objects on the lines of standard input; returns how many."""
    name = "standard input"
    line = ProgressLine(name)
    batches = read_json_lines(table.schema, sys.stdin.buffer, name)
    try:
        return put_batches(table, ((batch, None) for batch in batches), name, line.show)
    finally:
        line.clear()


def _documents(text: str) -> list[dict[str, Any]]:
    try:
        documents = parse_document(text)
    except ValueError as error:
        raise DataError(
            f"{short_repr(text)} is not JSON: {error}; write an object such as "
            '{"id": 1, "name": "pen"}, in single quotes for the shell'
        ) from None
    return documents if isinstance(documents, list) else [documents]
