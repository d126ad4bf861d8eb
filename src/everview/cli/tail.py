"""The command tail: what changes in a view, epoch by epoch."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import click
import pyarrow as pa

import everview
from everview.cli.interrupting import INTERRUPTED
from everview.cli.live import interruptible
from everview.cli.output import cell
from everview.intake.documents import format_document
from everview.results.result import values_of

_SIGNS = {"insert": "+", "delete": "-", "update": "~"}
_SECONDS_BETWEEN_LOOKS = 0.2


def _start(ctx: click.Context, option: click.Parameter, text: str) -> str | int:
    if text in ("snapshot", "now"):
        return text
    if text.isdecimal():
        return int(text)
    raise click.BadParameter(f"{text!r} is neither snapshot nor now nor an epoch", ctx, option)


@click.command()
@click.argument("db", type=click.Path())
@click.argument("view")
@click.option(
    "--from",
    "start",
    default="snapshot",
    show_default=True,
    callback=_start,
    metavar="WHERE",
    help="snapshot: first all rows of the view. now: changes only. A number: changes after that "
    "epoch, if the log has them.",
)
@click.option("--epochs", type=click.IntRange(1), help="End after so many epochs.")
@click.option("--format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def tail(db: str, view: str, start: Any, epochs: int | None, format: str) -> None:
    """Print what changes in VIEW, epoch by epoch, until Ctrl-C.

    A row that comes begins with +, one that goes with -, and one that changes with ~ and shows each
    value that is another now. With --from snapshot all rows of the view come first, so that the
    lines together always are the view. In the format json each line has epoch, op, before and
    after.

    The command waits for `everview run` in another terminal, which brings changes into the view. If
    the view is not loaded yet, it waits for that too.

    \b
    Example:
      everview init shop.ev
      everview sql shop.ev "CREATE TABLE IF NOT EXISTS items (id INT PRIMARY KEY, name STRING)"
      everview sql shop.ev "CREATE MATERIALIZED VIEW names AS SELECT DISTINCT name FROM items"
      everview put shop.ev items '{"id": 1, "name": "pen"}' '{"id": 2, "name": "ink"}'
      everview run shop.ev --once --engine sail
      everview tail shop.ev names --epochs 1
    """
    with everview.open(db) as database:
        tailing = _Tail(database.view(view), format)
        interruptible(lambda: tailing.run(start, epochs), tailing.end)
    if tailing.ending.is_set():
        sys.exit(INTERRUPTED)


class _Tail:
    """Prints the changes of a view until it is told to end."""

    def __init__(self, view: everview.View, format: str) -> None:
        self._view = view
        self._format = format
        self._feed: everview.Feed | None = None
        self.ending = threading.Event()

    def run(self, start: Any, epochs: int | None) -> None:
        view = self._view
        if not view.is_loaded:
            click.echo(f"waiting: view {view.name} is not loaded yet", err=True)
            while not view.is_loaded and not self.ending.wait(_SECONDS_BETWEEN_LOOKS):
                pass
        if self.ending.is_set():
            return
        with view.follow(start) as self._feed:
            for number, step in enumerate(self._feed, 1):
                for line in _lines(step.changes, self._format):
                    click.echo(line)
                sys.stdout.flush()
                if number == epochs or self.ending.is_set():
                    break

    def end(self) -> None:
        self.ending.set()
        if self._feed is not None:
            self._feed.stop()


def _lines(changes: pa.Table, format: str) -> Iterator[str]:
    columns = [values_of(column) for column in changes.columns]
    for epoch, op, before, after in zip(*columns, strict=True):
        if format == "json":
            row = {"epoch": epoch, "op": op, "before": before, "after": after}
            yield format_document(row, changes.schema)
        else:
            image = changes.schema.field("after").type
            yield f"epoch {epoch}  {_SIGNS[op]}  {_row(before or after, after or before, image)}"


def _row(before: dict[str, Any], after: dict[str, Any], image: pa.StructType) -> str:
    """The values of a row, and of those that are others now also what they were."""
    parts = []
    for field in image:
        old, new = (cell(row[field.name], field.type) for row in (before, after))
        parts.append(f"{field.name}={old}" + f" -> {new}" * (old != new))
    return "  ".join(parts)
