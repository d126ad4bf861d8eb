"""Commands about views: run, verify, explain."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import click

import everview
from everview import LEASE_SECONDS
from everview.batch import Batch
from everview.cli.interrupting import INTERRUPTED
from everview.cli.live import Finishing, LiveLine, interruptible
from everview.cli.output import Seconds
from everview.cli.waiting import waiting_for
from everview.errors import PASSING, SECONDS_BETWEEN_TRIES, Damaged, DataError, NotLoaded
from everview.explain.plan import WIDTH, as_text

if TYPE_CHECKING:
    from everview import Report

NO_VIEWS = "there are no views yet; create one with CREATE MATERIALIZED VIEW"
DIVERGES = 3
SHOWN = 10
_NARROWEST = 80
Maintain = Callable[[], "Report"]
ENGINE = click.Choice(["spark", "sail"])
_SECONDS = Seconds(min=0)


def _limits(ctx: click.Context, option: click.Parameter, limits: tuple[str, ...]) -> Batch:
    try:
        return Batch.of(limits)
    except DataError as error:
        raise click.BadParameter(str(error), ctx, option) from None


@click.command()
@click.argument("db", type=click.Path())
@click.option("--once", is_flag=True, help="End when the views are up to date.")
@click.option("--engine", type=ENGINE, default="spark", show_default=True)
@click.option(
    "--every",
    type=_SECONDS,
    default=0.2,
    show_default=True,
    help="How many seconds to wait before it looks for changes again.",
)
@click.option(
    "--lease",
    type=Seconds(min=1),
    default=LEASE_SECONDS,
    show_default=True,
    help="Take over from a maintainer that gives no sign of life for so many seconds.",
)
@click.option(
    "--batch",
    callback=_limits,
    multiple=True,
    metavar="LIMIT",
    help="The most that an epoch may have: 50000 changes, 64MB, or the changes of 1s. "
    "Give it again for another limit.",
)
def run(db: str, once: bool, engine: str, every: float, lease: float, batch: Batch) -> None:
    """Maintain the views of DB: load new views, then follow the changes of the tables.

    The command shows each epoch: the number of changes, the view rows that they touched, the lag
    (how old the oldest change was when readers could see it) and the changes per second. A view
    that fails stops, with the reason on standard error; the others go on. Ctrl-C ends the command
    after the epoch in progress, a second Ctrl-C ends it at once. Both are safe, and both exit with
    130.

    A second `everview run` on the same DB waits. It takes over at once when the first ends or is
    killed, and after --lease seconds when the first hangs. From then on DB refuses writes of the
    first.

    \b
    Example:
      everview init shop.ev
      everview sql shop.ev "CREATE TABLE IF NOT EXISTS items (id INT PRIMARY KEY, name STRING)"
      everview run shop.ev --once --engine sail
      everview run shop.ev --once --batch 50000 --batch 1s
    """
    live = LiveLine()
    with everview.open(db, engine=engine) as database:  # type: ignore[arg-type]
        try:
            maintain = partial(database.maintain, watch=live, lease=lease, batch=batch)
            work = _once if once else partial(_follow, every=every, lease=lease)
            interruptible(lambda: work(database, live, maintain), live.finish)
        finally:
            live.end()
    if live.finishing.is_set():
        sys.exit(INTERRUPTED)


def _once(database: everview.Database, live: LiveLine, maintain: Maintain) -> None:
    if not database.views:
        live.say(NO_VIEWS)
    elif _is_idle(_maintain(live, maintain)):
        live.say("nothing is pending")


def _follow(
    database: everview.Database, live: LiveLine, maintain: Maintain, every: float, lease: float
) -> None:
    live.show("starting the engine ...")
    assert database.engine  # start it now, so that it is ready after a wait
    with suppress(Finishing):
        while not live.finishing.is_set():
            with database.running(live, lease) as is_current:
                try:
                    if _is_idle(_maintain(live, maintain)):
                        live.note("nothing is pending; waiting for changes (Ctrl-C ends)")
                    while is_current() and not live.finishing.wait(every):
                        maintain()
                except PASSING as error:
                    live.warn(f"{error}; trying again every {SECONDS_BETWEEN_TRIES:g} s")
                    live.finishing.wait(SECONDS_BETWEEN_TRIES)
    live.say("stopped; the next run continues from here")


def _maintain(live: LiveLine, maintain: Maintain) -> Report:
    live.show("starting the engine ...")
    return maintain()


def _is_idle(report: Report) -> bool:
    return not (report.epochs or report.loaded or report.failed)


@click.command()
@click.argument("db", type=click.Path())
@click.argument("views", nargs=-1)
@click.option("--repair", is_flag=True, help="Load wrong, stopped and damaged views again.")
def verify(db: str, views: tuple[str, ...], repair: bool) -> None:
    """Recompute VIEWS of DB (default: all) at their epoch with Spark, and compare the rows.

    The command shows rows that differ, and exits with 3 if there are any. With --repair it loads
    such a view again from its tables and compares it once more. It does the same with a view that
    is stopped, or whose state is damaged.

    \b
    Example:
      everview init shop.ev
      everview verify shop.ev
      everview verify shop.ev --repair
    """
    different = False
    with everview.open(db) as database:
        if not (views or database.views):
            click.echo(NO_VIEWS)
        for name in views or database.views:
            try:
                if not repair:
                    different |= not _verify_view(database, name)
                elif not _is_sound(database, name):
                    _rebuild(database, name)
                    different |= not _verify_view(database, name)
            except NotLoaded as error:
                if views:
                    raise
                click.echo(f"{name}: {error}", err=True)
    sys.exit(DIVERGES if different else 0)


def _is_sound(database: everview.Database, name: str) -> bool:
    """Whether the view is not stopped and equals its recomputation."""
    if database.view(name).status == "stopped":
        return False
    try:
        return _verify_view(database, name)
    except Damaged as error:
        click.echo(f"{name}: {error}", err=True)
        return False


def _rebuild(database: everview.Database, name: str) -> None:
    click.echo(f"{name}: loading it again ...", err=True)
    work = partial(database.rebuild, name)
    report = waiting_for(f"loading {name} again", work, database.interrupt)
    for view, reason in report.failed.items():
        click.echo(f"view {view} is stopped: {reason}", err=True)


def _verify_view(database: everview.Database, name: str) -> bool:
    work = partial(database.verify, name)
    verdict = waiting_for(f"verifying {name} with Spark", work, database.interrupt)
    click.echo(verdict)
    for kind, rows in (("missing", verdict.missing), ("extra", verdict.extra)):
        for row, count in list(rows.items())[:SHOWN]:
            click.echo(f"  {kind} {count}x: {', '.join(row)}")
        if len(rows) > SHOWN:
            click.echo(f"  and {len(rows) - SHOWN:,} more {kind}")
    return verdict.equal


@click.command()
@click.argument("db", type=click.Path())
@click.argument("view")
@click.option("--analyze", is_flag=True, help="Show the work of the last epochs by operator.")
@click.option("--json", "as_json", is_flag=True, help="Print all details as JSON.")
def explain(db: str, view: str, analyze: bool, as_json: bool) -> None:
    """Show how VIEW of DB is maintained: its plan as a tree, with the state of each operator.

    VIEW is the name of a view, or a whole CREATE MATERIALIZED VIEW statement. The statement is not
    run; the command shows what the view would cost. With --analyze each operator shows the work of
    the last epochs, up to 20: rows in and out, reads and writes of state, time, and the rows of the
    busiest shard compared with the mean.

    \b
    Example:
      everview init shop.ev
      everview sql shop.ev "CREATE TABLE IF NOT EXISTS items (id INT PRIMARY KEY, name STRING)"
      everview sql shop.ev "CREATE MATERIALIZED VIEW names AS SELECT name FROM items"
      everview explain shop.ev names
      everview explain shop.ev names --analyze
      everview explain shop.ev "CREATE MATERIALIZED VIEW all AS SELECT * FROM items" --json
    """
    with everview.open(db, readonly=True) as database:
        document = waiting_for(
            "planning with Spark",
            lambda: database.explain(view, json=True, analyze=analyze),
            database.interrupt,
        )
    if as_json:
        click.echo(json.dumps(document))
    else:
        columns = shutil.get_terminal_size((WIDTH, 24)).columns
        click.echo(as_text(document, max(columns, _NARROWEST)))
