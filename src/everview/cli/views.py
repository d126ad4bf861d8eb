"""Commands about views: run, verify, explain."""

from __future__ import annotations

import sys
import time

import click

import everview

DIVERGES = 3
_ENGINE = click.Choice(["spark", "sail"])


@click.command()
@click.argument("db", type=click.Path())
@click.option("--once", is_flag=True, help="Stop when nothing is pending.")
@click.option("--engine", type=_ENGINE, default="spark", show_default=True)
@click.option("--every", default=1.0, show_default=True, help="Seconds between looks at the log.")
def run(db: str, once: bool, engine: str, every: float) -> None:
    """Maintain the views of DB: load new ones, then follow the changes of their tables.

    \b
    Example:
      everview init shop.ev
      everview sql shop.ev "CREATE TABLE IF NOT EXISTS items (id INT PRIMARY KEY, name STRING)"
      everview run shop.ev --once --engine sail
    """
    with everview.open(db, engine=engine) as database:  # type: ignore[arg-type]
        while True:
            report = database.maintain()
            for name in report.loaded:
                click.echo(f"loaded {name}")
            if report.epochs:
                number = (database.store.document("epoch") or {})["number"]
                rate = report.changes / report.seconds
                click.echo(
                    f"epoch {number}  {report.changes:,} changes  {report.rows:,} rows  "
                    f"{report.seconds:.2f} s  {rate:,.0f} changes/s"
                )
            if once:
                return
            time.sleep(every)


@click.command()
@click.argument("db", type=click.Path())
@click.argument("views", nargs=-1)
def verify(db: str, views: tuple[str, ...]) -> None:
    """Recompute VIEWS of DB (default: all) at their epoch with Spark and compare.

    Exits with 3 if one differs, and shows rows that do.

    \b
    Example:
      everview init shop.ev
      everview verify shop.ev
    """
    different = False
    with everview.open(db) as database:
        for name in views or database.views():
            verdict = database.verify(name)
            different |= not verdict.equal
            click.echo(f"{name}: {'equal' if verdict.equal else 'DIFFERENT'} at {verdict.epoch}")
            for what, rows in (("missing", verdict.missing), ("extra", verdict.extra)):
                for row, count in list(rows.items())[:10]:
                    click.echo(f"  {what} {count}x: {row}")
    sys.exit(DIVERGES if different else 0)


@click.command()
@click.argument("db", type=click.Path())
@click.argument("view")
def explain(db: str, view: str) -> None:
    """Show how VIEW of DB is maintained.

    \b
    Example:
      everview init shop.ev
      everview sql shop.ev "CREATE TABLE IF NOT EXISTS items (id INT PRIMARY KEY, name STRING)"
      everview sql shop.ev "CREATE MATERIALIZED VIEW names AS SELECT name FROM items"
      everview explain shop.ev names
    """
    with everview.open(db, readonly=True) as database:
        click.echo(database.explain(view))
