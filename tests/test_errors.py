"""The tree of errors, as its module draws it."""

from __future__ import annotations

import re

from everview import errors
from everview.errors import EverviewError

LINE = re.compile(r"^ {4}(?P<branch>[│├└─ ]*)(?P<name>[A-Z]\w+) +(?P<code>EV\d{3})$", re.MULTILINE)


def all_errors(base: type[EverviewError] = EverviewError) -> list[type[EverviewError]]:
    return [base, *(below for error in base.__subclasses__() for below in all_errors(error))]


def drawn() -> dict[str, tuple[str, str]]:
    """The code and the base of each class in the docstring."""
    found: dict[str, tuple[str, str]] = {}
    above = {-1: "Exception"}
    for line in LINE.finditer(errors.__doc__ or ""):
        depth = len(line["branch"]) // 4
        above[depth] = line["name"]
        found[line["name"]] = line["code"], above[depth - 1]
    return found


def test_the_docstring_draws_every_error_with_its_code_below_its_base() -> None:
    there = {
        error.__name__: (error.code, error.__base__.__name__)
        for error in all_errors()
        if error.__module__ == errors.__name__ and error.__base__ is not None
    }
    assert drawn() == there


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [error.code for error in all_errors() if error.__module__ == errors.__name__]
    assert len(set(codes)) == len(codes)
