"""The kinds of stored type that conversion tells apart, their limits, and what doesn't fit."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import pyarrow as pa
import pyarrow.types as types

Kind = Literal[
    "boolean",
    "integer",
    "floating",
    "decimal",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "interval",
    "array",
    "struct",
    "map",
]
# A column on its way in: an Arrow array, chunked or not.
Array = Any

FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31 in days since 1970
DAY_US = 86_400_000_000
FIRST_US, LAST_US = FIRST_DAY * DAY_US, (LAST_DAY + 1) * DAY_US - 1


class Unfit(Exception):
    """The value at `position` of a column can't be stored.

    Where only a part of it can't, `path` says which, `value` is that part and `target` its type.
    """

    def __init__(
        self, position: int, value: Any, target: pa.DataType | None = None, path: str = ""
    ) -> None:
        super().__init__(position, value)
        self.position = position
        self.value = value
        self.target = target
        self.path = path


def plain(value: Any) -> Any:
    """A Python value to show; text for an Arrow scalar that Python has no value for."""
    if not isinstance(value, pa.Scalar):
        return value
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return value.cast(pa.string()).as_py()


@lru_cache(maxsize=256)
def kind(target: pa.DataType) -> Kind:
    """The kind of a stored type."""
    if types.is_timestamp(target):
        return "timestamp" if target.tz else "timestamp_ntz"
    tests: dict[Kind, Any] = {
        "boolean": types.is_boolean,
        "integer": types.is_integer,
        "floating": types.is_floating,
        "decimal": types.is_decimal,
        "string": types.is_string,
        "binary": types.is_binary,
        "date": types.is_date,
        "interval": types.is_duration,
        "array": types.is_list,
        "struct": types.is_struct,
        "map": types.is_map,
    }
    return next(name for name, test in tests.items() if test(target))


def is_text(source: pa.DataType) -> bool:
    return bool(
        types.is_string(source) or types.is_large_string(source) or types.is_string_view(source)
    )


def is_bytes(source: pa.DataType) -> bool:
    return bool(
        types.is_binary(source)
        or types.is_large_binary(source)
        or types.is_binary_view(source)
        or types.is_fixed_size_binary(source)
    )


def is_naive(source: pa.DataType) -> bool:
    return bool(types.is_timestamp(source) and source.tz is None)


def integer_range(target: pa.DataType) -> tuple[int, int]:
    half = 1 << (target.bit_width - 1)
    return -half, half - 1
