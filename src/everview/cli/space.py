"""Commands about the space that a database takes, and about who keeps it: compact, pins."""

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
    """Give space back to the file system that is free in the files of DB.

    A file never becomes shorter: what is replaced or deleted leaves space in it that later writes
    use. After much was deleted or trimmed, or a pin was open for long, that may be most of it. It
    is given back as holes: `ls -l` shows the same length, `du` and `everview status` what is left.

    Runs beside readers, writers and `everview run`, and may be killed at any moment. What a pin or
    another reader still needs stays; run it again when that has ended.

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
        for text in held_by(report.after, database.pins()):
            click.echo(text)
    for path, why in report.skipped.items():
        click.echo(f"{path} is left as it is: {why}", err=True)
    sys.exit(1 if report.skipped else 0)


@click.command()
@click.argument("db", type=click.Path())
@click.option(
    "--limit",
    type=Seconds(min=0, min_open=True),
    help="Let no pin that is opened from now on become older than so many seconds.",
)
@click.option("--no-limit", is_flag=True, help="Let pins become as old as they like.")
@click.option("--json", "as_json", is_flag=True, help="All details, as JSON.")
def pins(db: str, limit: float | None, no_limit: bool, as_json: bool) -> None:
    """Show the pins that processes hold on DB, and the greatest age that they may have.

    A pin, db.pin() in Python, reads one epoch for as long as it is open. Meanwhile the space of
    what is replaced is not used again. A pin that reaches the limit ends, and reads through it fail
    with an error that says so. There is no limit unless you set one.

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
        found, greatest = database.pins(), database.pin_limit
    if as_json:
        click.echo(json.dumps({"pins": list(map(dataclasses.asdict, found)), "limit": greatest}))
        return
    columns = {
        "process": pa.array([pin.process for pin in found], pa.int64()),
        "epoch": pa.array([pin.epoch for pin in found], pa.int64()),
        "open for": pa.array([duration(time.time() - pin.since) for pin in found], pa.string()),
        "limit": pa.array([_limit(pin.max_age) for pin in found], pa.string()),
    }
    click.echo(render(pa.table(columns), max(1, len(found))))
    click.echo(f"limit for new pins: {_limit(greatest)}")


def _limit(seconds: float | None) -> str:
    return "none" if seconds is None else duration(seconds)


def notable(space: Space, pins: list[PinNote], db: str) -> Iterator[str]:
    """What whoever looks at the status should know about space."""
    yield from held_by(space, pins)
    if space.free > max(MUCH, space.bytes // 2):
        yield (
            f"{readable_bytes(space.free)} of {readable_bytes(space.bytes)} on disk are free; "
            f"everview compact {db} gives them back"
        )


def held_by(space: Space, pins: list[PinNote]) -> Iterator[str]:
    """Who keeps much space from being used again."""
    for process, size in space.held.items():
        if size > MUCH:
            of_it = [pin for pin in pins if pin.process == process]
            since = [
                f"epoch {pin.epoch} since {datetime.fromtimestamp(pin.since):%Y-%m-%d %H:%M:%S}"
                for pin in of_it
            ]
            what = f"a pin of {', '.join(since)}" if since else "a read that has not ended"
            yield (
                f"process {process} keeps {readable_bytes(size)} of old rows alive, with {what}; "
                "when that ends, they can be given back"
            )
