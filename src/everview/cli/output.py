"""Rows on standard output: as a table for people, or without loss as JSON lines or CSV.

`everview put DB TABLE -` and `everview load` read these JSON lines and this CSV.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import click
import pyarrow as pa

from everview.intake.documents import format_document, format_interval, format_value
from everview.results.result import SHOWN_ROWS, check_names, render, values_of
from everview.schema import is_nested

FORMATS = click.Choice(["table", "json", "csv"])
_LONGEST = 10**6


class Seconds(click.FloatRange):
    """A number of seconds; not NaN, and not more than a clock can wait."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = float(super().convert(value, param, ctx))
        if not seconds <= _LONGEST:
            self.fail(f"{value} is not a number of seconds up to {_LONGEST:,}", param, ctx)
        return seconds


def tell(text: str, error: BaseException) -> None:
    """Write an error and its notes to standard error."""
    click.echo(text, err=True)
    for note in getattr(error, "__notes__", ()):
        click.echo(f"  {note}", err=True)


class RewrittenLine:
    """A line on standard error that new text replaces, and that is cleared at the end."""

    def __init__(self) -> None:
        self._width = 0

    def write(self, text: str) -> None:
        click.echo("\r" + text.ljust(self._width), nl=False, err=True)
        self._width = len(text)

    def clear(self) -> None:
        if self._width:
            click.echo("\r" + " " * self._width + "\r", nl=False, err=True)


def print_rows(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], format: str, limit: int | None
) -> None:
    """Print rows up to `limit`; a table without a limit shows the first few."""
    if format == "table":
        print_table(schema, batches, SHOWN_ROWS if limit is None else limit)
        return
    if format == "json":
        check_names(schema.names)
    if format == "csv":
        click.echo(",".join(_csv_cell(name) for name in schema.names))
    for batch in _first(batches, limit):
        click.echo("\n".join(_lines(batch, format)))


def print_table(schema: pa.Schema, batches: Iterator[pa.RecordBatch], limit: int) -> None:
    table = pa.Table.from_batches(list(_first(batches, limit + 1)), schema)
    click.echo(render(table.slice(0, limit), max(1, limit)))
    if table.num_rows > limit:
        click.echo("there are more rows; --limit N shows N rows, --format csv or json shows all")


def duration(seconds: float) -> str:
    """0.04 s, 12 s, 3 min, 5 h, 2 d"""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 or not seconds else f"{seconds:.2f} s"


def _first(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows and (limit is None or limit > 0):
            yield batch if limit is None else batch.slice(0, limit)
        if limit is not None and (limit := limit - batch.num_rows) <= 0:
            return


def _lines(batch: pa.RecordBatch, format: str) -> Iterator[str]:
    if format == "json":
        rows = zip(*map(values_of, batch.columns), strict=True)
        names = batch.schema.names
        return (format_document(dict(zip(names, row, strict=True)), batch.schema) for row in rows)
    columns = [_csv_cells(column) for column in batch.columns]
    return map(",".join, zip(*columns, strict=True))


def cell(value: Any, type: pa.DataType) -> str:
    """A value in a line of text; arrays, structs and maps are JSON."""
    if value is None:
        return "NULL"
    return _csv_cell(format_value(value, type) if is_nested(type) else value)


def _csv_cells(column: pa.Array) -> Iterator[str]:
    """The column's cells; arrays, structs and maps are JSON."""
    values = values_of(column)
    if is_nested(column.type):
        values = [None if value is None else format_value(value, column.type) for value in values]
    return map(_csv_cell, values)


def _csv_cell(value: Any) -> str:
    """NULL is an empty field, the empty string a quoted one."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        value = base64.b64encode(value).decode("ascii")
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return format_interval(value)
    text = str(value)
    if text and not set(text) & set(',"\r\n') and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'
