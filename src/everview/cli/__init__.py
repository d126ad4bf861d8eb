"""The command line: `everview COMMAND DATABASE ...`, one module for each group of commands."""

from everview.cli.main import main

__all__ = ["main"]
