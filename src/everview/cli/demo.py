"""The command that shows Everview at work."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

import click

from everview.database import EngineName
from everview.demo import run


@click.command()
@click.option("--scale", default=0.01, show_default=True, help="TPC-H scale factor.")
@click.option("--seconds", default=16.0, show_default=True, help="How long to change rows.")
@click.option(
    "--engine",
    type=click.Choice(["spark", "sail", "both"]),
    default="both",
    show_default=True,
    help="What maintains the views; both, one after the other, if Sail is installed.",
)
def demo(scale: float, seconds: float, engine: EngineName | Literal["both"]) -> None:
    """Let TPC-H views follow a stream of changes, then compare them with a recomputation.

    Works in a temporary directory and leaves nothing behind.

    \b
    Example:
      everview demo --scale 0.01 --seconds 2
    """
    both: list[EngineName] = ["spark", "sail"] if find_spec("pysail") else ["spark"]
    run(click.echo, scale, seconds, both if engine == "both" else [engine])
