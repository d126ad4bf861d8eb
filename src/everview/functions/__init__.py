"""Aggregate functions: one file for each, or for a close family. This module collects the FUNCTIONS
of all files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules

from everview.errors import FormatMismatch
from everview.functions.base import AggregateFunction


def _all() -> Iterator[AggregateFunction]:
    for module in iter_modules(__path__):
        yield from getattr(import_module(f"{__name__}.{module.name}"), "FUNCTIONS", ())


BY_NAME = {function.name: function for function in _all()}


def function_of(name: str) -> AggregateFunction:
    """The function of a plan. Raises `FormatMismatch` if this version has no such function."""
    if name not in BY_NAME:
        raise FormatMismatch(
            f"a plan has the aggregate function {name}, which this version of Everview doesn't; "
            "use the version that made it"
        )
    return BY_NAME[name]


def of_catalyst(kind: str, name_of_call: Callable[[], str]) -> AggregateFunction | None:
    """The function that a class of Catalyst means, if there is one. If there are several, it is the
    one with the name of the call in Catalyst, else the first."""
    matches = [function for function in BY_NAME.values() if kind in function.catalyst]
    if len(matches) < 2:
        return matches[0] if matches else None
    name = name_of_call()
    return next((function for function in matches if function.name == name), matches[0])


__all__ = ["BY_NAME", "AggregateFunction", "function_of", "of_catalyst"]
