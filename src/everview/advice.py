"""What a user can do next, in the words of the place where the user works.

Python, the commands and the shell give the same messages. A remedy in a message must work where
the user reads it, so it comes from here. The commands and the shell say where they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """The remedies of one place; `{name}` stands for a table or view."""

    maintain: str
    read_table: str
    read_view: str


PYTHON = Place("db.maintain()", "db.table('{name}')", "SELECT or db.view('{name}')")
COMMANDS = Place("everview run DB --once", "everview scan DB {name}", "everview scan DB {name}")
SHELL = Place("the command maintain", "SELECT * FROM {name}", "SELECT * FROM {name}")
_place = PYTHON


@contextmanager
def given_in(place: Place) -> Iterator[None]:
    """Inside the block, the whole process gives the remedies of this place."""
    global _place
    before, _place = _place, place
    try:
        yield
    finally:
        _place = before


def how_to_maintain() -> str:
    """How to load new views and bring the others up to date."""
    return _place.maintain


def how_to_read_table(name: str) -> str:
    return _place.read_table.format(name=name)


def how_to_read_view(name: str) -> str:
    return _place.read_view.format(name=name)
