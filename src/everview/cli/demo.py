"""The command that shows Everview at work."""

from __future__ import annotations

import click

from everview.demo import run


@click.command()
@click.option("--scale", default=0.02, show_default=True, help="TPC-H scale factor.")
@click.option("--seconds", default=5.0, show_default=True, help="How long to change rows.")
def demo(scale: float, seconds: float) -> None:
    """Load a small TPC-H set, change it for a few seconds, and read it through Spark.

    Works in a temporary directory and leaves nothing behind.

    \b
    Example:
      everview demo --scale 0.01 --seconds 2
    """
    run(click.echo, scale, seconds)
