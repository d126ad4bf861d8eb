"""The command load: loads files, with a progress bar."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack

import click

import everview
from everview.cli.output import RewrittenLine
from everview.load.files import load as load_file
from everview.load.reject import Rejects
from everview.results.result import count_rows

SECONDS_BETWEEN = 0.2
BAR_WIDTH = 20


@click.command()
@click.argument("db", type=click.Path())
@click.argument("table")
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option(
    "--format",
    type=click.Choice(["parquet", "csv", "json"]),
    help="Format of the files; by default that of the suffix. json has one object on each line.",
)
@click.option("--delimiter", help="The separator of CSV fields; by default a comma, in .tsv a tab.")
@click.option(
    "--reject",
    type=click.Path(),
    metavar="FILE",
    help="Write rows that don't fit into this file, and load the others.",
)
def load(
    db: str,
    table: str,
    files: tuple[str, ...],
    format: str | None,
    delimiter: str | None,
    reject: str | None,
) -> None:
    """Load FILES into TABLE: Parquet, CSV with a header line, or JSON lines (also .gz).

    A row replaces the row with the same key. In CSV an empty field is NULL, and "" is the empty
    string. The files are loaded one after the other; an error says what was stored before it.

    With --reject, a row that doesn't fit is no error. It goes to a new file as it is, with its line
    number and the reason. You can correct the rows in that file and load it. Rows of CSV files
    become CSV, others JSON lines. If all rows fit, there is no file.

    \b
    Example:
      everview init shop.ev
      everview sql shop.ev "CREATE TABLE IF NOT EXISTS items (id INT PRIMARY KEY, name STRING)"
      printf 'id,name\\n1,pen\\n2,ink\\n' > items.csv
      everview load shop.ev items items.csv
    """
    with everview.open(db) as database, ExitStack() as closing:
        target = database.table(table)
        rejects = closing.enter_context(Rejects(reject)) if reject else None
        for file in files:
            start, before = time.monotonic(), rejects.count if rejects else 0
            line = ProgressLine(file)
            try:
                rows = load_file(target, file, format, line.show, delimiter, rejects)
            finally:
                line.clear()
            seconds = time.monotonic() - start
            name = f"{file}: " if len(files) > 1 else ""
            click.echo(f"{name}loaded {count_rows(rows)} into {target.name} in {seconds:.1f} s")
            if rejects and rejects.count > before:
                click.echo(f"{name}rejected {count_rows(rejects.count - before)} into {reject}")


class ProgressLine(RewrittenLine):
    """A progress bar on standard error, if that is a terminal."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.start = self.last_shown = time.monotonic()

    def show(self, rows: int, part: float | None) -> None:
        """Show how many rows are stored, and which part of the file that is, if it is known."""
        now = time.monotonic()
        if not sys.stderr.isatty() or now - self.last_shown < SECONDS_BETWEEN:
            return
        self.last_shown = now
        rate = rows / (now - self.start)
        self.write(f"{self.name}  {_bar(part)}{rows:,} rows  {rate:,.0f} rows/s")


def _bar(part: float | None) -> str:
    if part is None:
        return ""
    return f"[{('#' * int(part * BAR_WIDTH)).ljust(BAR_WIDTH)}] {part:4.0%}  "
