"""Aggregate functions, one file each or one for a close family: each has them as FUNCTIONS, and is
found here by that."""

from __future__ import annotations

from collections.abc import Iterator
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


def of_catalyst(kind: str, pretty: str) -> AggregateFunction | None:
    """The function that a class of Catalyst means, which Catalyst calls `pretty`; None if there is
    none."""
    found = [function for function in BY_NAME.values() if kind in function.catalyst]
    return next((one for one in found if one.name == pretty), found[0] if found else None)


__all__ = ["BY_NAME", "AggregateFunction", "function_of", "of_catalyst"]
