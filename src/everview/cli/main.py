"""The group of all commands, with their errors and exit codes.

Exit codes: 0 is success, 1 an error, 2 wrong usage, 3 a view that is wrong, 130 an interrupt. If
the reader of a pipe goes away (| head), that is success.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

import everview
from everview import advice, starting
from everview.cli import interrupting
from everview.cli.calibrate import calibrate
from everview.cli.check import check
from everview.cli.databases import init, status
from everview.cli.demo import demo
from everview.cli.interrupting import INTERRUPTED
from everview.cli.loading import load
from everview.cli.output import tell
from everview.cli.rows import delete, get, put, scan
from everview.cli.shell import shell
from everview.cli.space import compact, pins
from everview.cli.statements import sql
from everview.cli.tail import tail
from everview.cli.views import explain, run, verify
from everview.errors import EverviewError


class Commands(click.Group):
    """Commands that show an error as a line on standard error, and never a traceback."""

    def main(self, args: Sequence[str] | None = None, *positional: Any, **options: Any) -> Any:
        """Run the command in `args`. Without `args`, run that of this process, and then exit."""
        if args is not None:
            return super().main(args, *positional, **options)
        try:
            interrupting.begin()
            starting.tells_itself = True
            result = super().main(None, *positional, **options | {"standalone_mode": False})
            code = result if isinstance(result, int) else 0
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        except (click.Abort, KeyboardInterrupt):
            click.echo("interrupted", err=True)
            code = INTERRUPTED
        except SystemExit as ending:
            code = ending.code if isinstance(ending.code, int) else 0
        interrupting.end(code)

    def invoke(self, ctx: click.Context) -> Any:
        _write_any_text()
        try:
            with advice.given_in(advice.COMMANDS):
                result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except EverviewError as error:
            tell(f"error[{error.code}]: {error}", error)
            ctx.exit(1)
        except KeyboardInterrupt as error:
            tell("interrupted", error)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            _silence_stdout()
            ctx.exit(0)
        except OSError as error:  # standard output, for one, on a full disk
            _silence_stdout()
            click.echo(f"error: {error}", err=True)
            ctx.exit(1)


def _write_any_text() -> None:
    """Write UTF-8 into files and pipes, since `load` reads UTF-8.

    A terminal with another encoding shows escapes for characters that it lacks.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="backslashreplace")
        else:
            sys.stdout.reconfigure(encoding="utf-8")


def _silence_stdout() -> None:
    """Keep Python from failing again when it flushes standard output at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(everview.__version__, prog_name="everview")
def main() -> None:
    """Everview keeps SQL views over key-value tables always current.

    The first argument of every command, except demo and check, is DB: the directory of a database.
    """


for _command in (
    init,
    sql,
    shell,
    load,
    put,
    delete,
    get,
    scan,
    tail,
    status,
    demo,
    run,
    verify,
    explain,
    calibrate,
    compact,
    pins,
    check,
):
    main.add_command(_command)
