"""How much one epoch may take: so many changes, so many bytes, the changes of so much time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta

from everview.errors import DataError

Limit = int | str | timedelta
_UNITS_OF_TIME = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_UNITS_OF_SIZE = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_UNITS_OF_SIZE |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_LIMIT = re.compile(r"(\d[\d_]*(?:\.\d+)?)\s*([A-Za-z]*)")


def seconds_of(text: str) -> float | None:
    """The seconds in a text such as '2 s' or '500ms'; None if it is no time above 0."""
    match = _LIMIT.fullmatch(text.strip())
    if match is None or match[2].lower() not in _UNITS_OF_TIME:
        return None
    return float(match[1].replace("_", "")) * _UNITS_OF_TIME[match[2].lower()] or None


@dataclass(frozen=True)
class Batch:
    """The limits of an epoch. It ends before the first change that would pass one of them.

    Changes that were made at one moment stay together, so an epoch may have more if a single
    write does. `seconds` is between the first and the last change of an epoch; None is any.
    """

    changes: int = 500_000
    bytes: int = 512 << 20
    seconds: float | None = None

    @classmethod
    def of(cls, limits: Batch | Limit | Iterable[Limit] | None) -> Batch:
        """The limits that a user wrote: 50_000, '64MB', '1s', a timedelta, or several of them."""
        if isinstance(limits, Batch):
            return limits
        if limits is None:
            return cls()
        several = [limits] if isinstance(limits, Limit) else limits
        batch = cls()
        for limit in several:
            batch = batch._with(limit)
        return batch

    def _with(self, limit: Limit) -> Batch:
        if isinstance(limit, timedelta):
            return self._with(f"{limit.total_seconds():f}s")
        match = _LIMIT.fullmatch(str(limit).strip())
        if match is not None and not isinstance(limit, bool):
            number, unit = float(match[1].replace("_", "")), match[2]
            seconds = seconds_of(match[0])
            if not unit and number >= 1 and number.is_integer():
                return replace(self, changes=int(number))
            if seconds is not None:
                return replace(self, seconds=seconds)
            if unit.upper() in _UNITS_OF_SIZE and number > 0:
                return replace(self, bytes=max(1, int(number * _UNITS_OF_SIZE[unit.upper()])))
        raise DataError(
            f"a batch can't be {limit!r}; give a number of changes (50000), a time (1s, 500ms), or "
            "a size (64MB)"
        )


USUAL = Batch()  # where the user sets no limit
