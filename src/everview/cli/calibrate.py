"""The command calibrate: measures the constants of the cost model."""

from __future__ import annotations

from functools import partial

import click

import everview
from everview.cli.live import end_at_once, interruptible
from everview.readable import readable_seconds


@click.command()
@click.argument("db", type=click.Path())
@click.option("--engine", type=click.Choice(["spark", "sail"]), default="spark", show_default=True)
def calibrate(db: str, engine: str) -> None:
    """Measure how long rows, state reads and state writes take on this machine.

    The command loads and changes a small temporary database, which takes about half a minute, and
    stores the results in DB. EXPLAIN of a CREATE MATERIALIZED VIEW and the choice of a join order
    use them. Without them they use the numbers of another machine, and EXPLAIN says so.

    \b
    Example:
      everview init shop.ev
      everview calibrate shop.ev --engine sail
    """
    from everview.calibration import calibrate as measure

    with everview.open(db) as database:
        say = partial(click.echo, err=True)
        constants = interruptible(lambda: measure(database, engine, say), end_at_once)
    times = [constants.epoch, constants.operator]
    times += [
        1_000 * seconds
        for seconds in (constants.send + constants.row, constants.read, constants.write)
    ]
    epoch, operator, rows, reads, writes = map(readable_seconds, times)
    click.echo(
        f"{engine}: an epoch takes {epoch}, and {operator} for each operator; 1,000 rows take "
        f"{rows}, 1,000 state reads {reads}, 1,000 state writes {writes}"
    )
