"""The command sql: runs SQL statements."""

from __future__ import annotations

import sys
from functools import partial
from typing import IO, Literal

import click

import everview
from everview.cli.output import FORMATS, print_rows
from everview.cli.waiting import waiting_for
from everview.errors import InvalidSql
from everview.results.result import SHOWN_WIDTH, Result


@click.command()
@click.argument("db", type=click.Path())
@click.argument("statements", required=False)
@click.option("-f", "--file", type=click.File("rb"), help="Read the statements from a file.")
@click.option("--limit", type=click.IntRange(0), help="The number of rows to show of a query.")
@click.option("--format", type=FORMATS, default="table", show_default=True)
@click.option("--engine", type=click.Choice(["spark", "sail"]), default="spark", show_default=True)
def sql(
    db: str,
    statements: str | None,
    file: IO[bytes] | None,
    limit: int | None,
    format: str,
    engine: Literal["spark", "sail"],
) -> None:
    """Run SQL STATEMENTS, separated by semicolons, one after the other.

    Without STATEMENTS the command reads them from --file or standard input. The first error ends
    the run; the statements before it keep their effect.

    \b
    Example:
      everview init shop.ev
      everview sql shop.ev "CREATE TABLE IF NOT EXISTS items (id INT PRIMARY KEY, name STRING)"
      everview sql shop.ev "INSERT INTO items VALUES (1, 'pen'), (2, 'ink')"
      everview sql shop.ev "SELECT name, count(*) AS n FROM items GROUP BY name"
    """
    # The parser is large; the other commands do without it.
    from everview.sql import batches

    script = _script(statements, file)
    with everview.open(db, engine=engine) as database:
        for batch in batches(script):
            more = f" and {len(batch) - 1:,} more" if len(batch) > 1 else ""
            work = partial(next, database.run_script(batch), None)
            text = beginning(batch[0]) + more
            while (result := waiting_for(text, work, database.interrupt)) is not None:
                _print(result, format, limit)


def _script(statements: str | None, file: IO[bytes] | None) -> str:
    if statements is not None and file is not None:
        raise click.UsageError("give STATEMENTS or --file, not both")
    if statements is not None:
        return statements
    if file is None and sys.stdin.isatty():
        raise click.UsageError("no STATEMENTS; give them, or --file, or pipe them in")
    return decode((file or sys.stdin.buffer).read())


def decode(data: bytes) -> str:
    """The text of statements."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidSql(f"the statements are not UTF-8 text: {error}") from None


def beginning(statement: str) -> str:
    """The statement on one line, shortened."""
    line = " ".join(statement.split())
    return line if len(line) <= SHOWN_WIDTH else line[: SHOWN_WIDTH - 1] + "…"


def _print(result: Result, format: str, limit: int | None) -> None:
    if not result.columns:
        click.echo(result.message, err=format != "table")
        return
    table = result.to_arrow()
    print_rows(table.schema, iter(table.to_batches()), format, limit)
    if result.message:
        click.echo(result.message, err=format != "table")
