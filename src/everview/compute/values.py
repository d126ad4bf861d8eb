"""What the parts of an expression have in common: typed values, an array or one for all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

Values = Any  # an array, or a scalar for all rows
Function = Callable[..., Values]


class EngineNeeded(Exception):
    """These values can't be computed here as Spark does."""


@dataclass(frozen=True)
class Argument:
    """The type of an argument, and its value if it is a constant."""

    type: pa.DataType
    constant: Any = None
    is_constant: bool = False

    @property
    def text(self) -> str | None:
        """A constant text; None if it is something else, or NULL."""
        return self.constant if isinstance(self.constant, str) else None

    @property
    def number(self) -> int | None:
        """A constant integer; None if it is something else, or NULL."""
        return self.constant if isinstance(self.constant, int) else None


@dataclass(frozen=True)
class Step:
    """One part of an expression: the type of its values, and how they follow from others."""

    type: pa.DataType
    function: Function


Builder = Callable[[Sequence[Argument]], Step | None]
"""Makes the step of a form for some arguments; None if Arrow's answer may differ from Spark's."""


def are_alike(arguments: Sequence[Argument]) -> bool:
    """Whether all arguments have one type."""
    return len({argument.type for argument in arguments}) == 1
