"""The command demo: shows Everview at work."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

import click

from everview.cli.live import end_at_once, interruptible
from everview.cli.output import Seconds
from everview.database import EngineName
from everview.demo import run


@click.command()
@click.option(
    "--scale",
    type=click.FloatRange(min=0.001, max=100),
    default=0.01,
    show_default=True,
    help="TPC-H scale factor.",
)
@click.option(
    "--seconds",
    type=Seconds(min=0),
    default=10.0,
    show_default=True,
    help="How long to change rows.",
)
@click.option(
    "--engine",
    type=click.Choice(["spark", "sail", "both"]),
    help="The engine that maintains the views. By default Sail if it is installed, else Spark.",
)
def demo(scale: float, seconds: float, engine: EngineName | Literal["both"] | None) -> None:
    """Keep TPC-H views current under a stream of changes, then compare them with a recomputation.

    The demo works in a temporary directory and deletes it at the end.

    \b
    Example:
      everview demo --scale 0.01 --seconds 2
    """
    if engine is None:
        engine = "sail" if find_spec("pysail") else "spark"
    engines: list[EngineName] = ["spark", "sail"] if engine == "both" else [engine]
    interruptible(lambda: run(click.echo, scale, seconds, engines), end_at_once)
