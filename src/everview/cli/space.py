"""Commands about the space that a database takes, and the pins that keep it: compact, pins."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from datetime import datetime

import click
import pyarrow as pa

import everview
from everview import PinNote, Space
from everview.cli.output import RewrittenLine, Seconds, duration
from everview.readable import readable_bytes
from everview.results.result import render

MUCH = 1 << 20  # bytes that are worth a word


@click.command()
@click.argument("db", type=click.Path())
def compact(db: str) -> None:
    """Give free space in the files of DB back to the file system.

    A file of DB never becomes shorter. A replaced or deleted row leaves space in it, and later
    writes use that space. After you deleted many rows, or kept a pin open for long, much of a file
    may be free. The command gives it back as holes: `ls -l` shows the same length as before, `du`
    and `everview status` show what the file really takes.

    Others may read, write and maintain meanwhile, and you may kill the command at any moment. Space
    that a pin or another reader still needs stays; run the command again later.

    \b
    Example:
      everview init shop.ev
      everview compact shop.ev
    """
    line = RewrittenLine()

    def watch(path: str, done: int, parts: int) -> None:
        if sys.stderr.isatty():
            line.write(f"compacting {done + 1:,} of {parts:,}: {path}")

    with everview.open(db) as database:
        try:
            report = database.compact(watch)
        finally:
            line.clear()
        before, after = report.before.bytes, report.after.bytes
        click.echo(
            f"{db}: {readable_bytes(before)} -> {readable_bytes(after)}; "
            f"{readable_bytes(report.given_back)} given back"
        )
        for text in readers_of_much(report.after, database.pins()):
            click.echo(text)
    for path, reason in report.skipped.items():
        click.echo(f"{path} is left as it is: {reason}", err=True)
    sys.exit(1 if report.skipped else 0)


@click.command()
@click.argument("db", type=click.Path())
@click.option(
    "--limit",
    type=Seconds(min=0, min_open=True),
    help="End every pin that is opened from now on after so many seconds.",
)
@click.option("--no-limit", is_flag=True, help="Remove the limit.")
@click.option("--json", "as_json", is_flag=True, help="All details, as JSON.")
def pins(db: str, limit: float | None, no_limit: bool, as_json: bool) -> None:
    """Show the open pins of DB, and the limit after which a pin ends.

    A pin (db.pin() in Python) reads one epoch for as long as it is open. Meanwhile the database
    can't use the space of replaced rows again. A pin that reaches the limit ends, and reads through
    it raise PinExpired. There is no limit until you set one.

    \b
    Example:
      everview init shop.ev
      everview pins shop.ev --limit 3600
      everview pins shop.ev
    """
    if limit is not None and no_limit:
        raise click.UsageError("give --limit or --no-limit, not both")
    with everview.open(db, readonly=limit is None and not no_limit) as database:
        if limit is not None or no_limit:
            database.limit_pins(limit)
        open_pins, greatest = database.pins(), database.pin_limit
    if as_json:
        click.echo(
            json.dumps({"pins": list(map(dataclasses.asdict, open_pins)), "limit": greatest})
        )
        return
    columns = {
        "process": pa.array([pin.process for pin in open_pins], pa.int64()),
        "epoch": pa.array([pin.epoch for pin in open_pins], pa.int64()),
        "open for": pa.array([duration(time.time() - pin.since) for pin in open_pins], pa.string()),
        "limit": pa.array([_limit(pin.max_age) for pin in open_pins], pa.string()),
    }
    click.echo(render(pa.table(columns), max(1, len(open_pins))))
    click.echo(f"limit for new pins: {_limit(greatest)}")


def _limit(seconds: float | None) -> str:
    return "none" if seconds is None else duration(seconds)


def space_notes(space: Space, pins: list[PinNote], db: str) -> Iterator[str]:
    """Notes about space for the status: which processes keep much of it, and how much is free."""
    yield from readers_of_much(space, pins)
    if space.free > max(MUCH, space.bytes // 2):
        yield (
            f"{readable_bytes(space.free)} of {readable_bytes(space.bytes)} on disk are free; "
            f"everview compact {db} gives them back"
        )


def readers_of_much(space: Space, pins: list[PinNote]) -> Iterator[str]:
    """A note for each process whose reads keep much space from being used again."""
    for process, size in space.held.items():
        if size > MUCH:
            own_pins = [pin for pin in pins if pin.process == process]
            since = [
                f"epoch {pin.epoch} since {datetime.fromtimestamp(pin.since):%Y-%m-%d %H:%M:%S}"
                for pin in own_pins
            ]
            cause = f"a pin of {', '.join(since)}" if since else "a read that has not ended"
            yield (
                f"process {process} keeps {readable_bytes(size)} of old rows alive, with {cause}; "
                "the space is free when that ends"
            )
