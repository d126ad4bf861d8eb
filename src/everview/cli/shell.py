"""The command shell: runs SQL statement by statement, and keeps the engine running meanwhile."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import click

import everview
from everview import advice
from everview.cli.databases import show_status
from everview.cli.live import LiveLine, interruptible
from everview.cli.output import tell
from everview.cli.statements import beginning, decode
from everview.cli.views import ENGINE, NO_VIEWS
from everview.cli.waiting import waiting_for
from everview.database import EngineName
from everview.errors import EverviewError

PROMPT, MORE = "everview> ", "     ...> "
HELP = """\
Type SQL and end it with a semicolon; it may have several lines. CREATE TABLE, INSERT INTO, SELECT,
CREATE MATERIALIZED VIEW, SHOW TABLES, SHOW VIEWS, DESCRIBE, EXPLAIN, VERIFY and others work here.
  maintain  load new views, and bring all views up to date with their tables
  status    show tables and views
  help      show this text
  quit      leave the shell, as Ctrl-D does
Ctrl-C discards what you typed, or cancels what runs."""
_LEAVE = ("quit", "exit", "\\q")


@click.command()
@click.argument("db", type=click.Path())
@click.option("--engine", type=ENGINE, default="spark", show_default=True)
def shell(db: str, engine: EngineName) -> None:
    """Run SQL on DB, statement by statement, as you type it.

    The shell starts the engine once, when a statement needs it. A statement ends with a semicolon
    and may have several lines. Besides SQL there are the commands maintain, status, help and quit.
    After an error the shell goes on, but it ends if it reads from a pipe.

    \b
    Example:
      everview init shop.ev
      everview shell shop.ev
    """
    with advice.given_in(advice.SHELL), everview.open(db, engine=engine) as database:
        session = Session(database)
        if sys.stdin.isatty():
            _remember_lines()
            click.echo(
                f"everview {everview.__version__}, {db}; type help for help, Ctrl-D to leave"
            )
            _converse(session)
        elif all(session.take(decode(line)) for line in sys.stdin.buffer):
            session.run()  # the last semicolon may be missing


class Session:
    """The lines typed so far, and the statements that they complete."""

    def __init__(self, database: everview.Database) -> None:
        self.database = database
        self.pending_text = ""

    def take(self, line: str) -> bool:
        """Run the command in a line, or the statements that it completes; False means leave."""
        # The parser is large; the other commands do without it.
        from everview.sql import is_complete

        word = line.strip().rstrip(";").strip().lower()
        if not self.pending_text.strip() and word in _LEAVE:
            return False
        if not self.pending_text.strip() and word in _WORDS:
            _WORDS[word](self.database)
            return True
        self.pending_text += line
        if is_complete(self.pending_text):
            self.run()
        return True

    def run(self) -> None:
        """Run the statements typed so far, up to the first that fails."""
        from everview.sql import split

        script, self.pending_text = self.pending_text, ""
        for statement in split(script):
            work = partial(self.database.sql, statement)
            click.echo(waiting_for(beginning(statement), work, self._interrupt))

    def _interrupt(self) -> bool:
        """Cancel the query; if that is impossible, wait, so that nothing runs at the prompt."""
        self.database.interrupt()
        return True


def _converse(session: Session) -> None:
    while True:
        try:
            line = input(MORE if session.pending_text.strip() else PROMPT)
            if not session.take(f"{line}\n"):
                return
        except EOFError:
            click.echo()
            return
        except EverviewError as error:
            tell(f"error[{error.code}]: {error}", error)
        except KeyboardInterrupt as error:
            session.pending_text = ""
            click.echo()
            tell("interrupted", error)


def _remember_lines() -> None:
    """Make the arrow keys work, and offer the lines of earlier shells."""
    with suppress(ImportError, OSError):
        import atexit
        import readline

        path = os.path.expanduser("~/.everview_history")
        with suppress(FileNotFoundError):
            readline.read_history_file(path)
        atexit.register(_save_lines, partial(readline.write_history_file, path))


def _save_lines(save: Callable[[], None]) -> None:
    with suppress(OSError):
        save()


def _maintain(database: everview.Database) -> None:
    if not database.views:
        click.echo(NO_VIEWS)
        return
    live = LiveLine()
    try:
        live.show("starting the engine ...")
        interruptible(lambda: _report(database, live), live.finish)
    finally:
        live.end()


def _report(database: everview.Database, live: LiveLine) -> None:
    report = database.maintain(watch=live)
    if not (report.epochs or report.loaded or report.failed):
        live.say("nothing is pending")


_WORDS: dict[str, Callable[[everview.Database], None]] = {
    "help": lambda database: click.echo(HELP),
    "maintain": _maintain,
    "status": show_status,
}
