"""Distributions: by the hash of which columns rows lie in shards.

For each place in the hash a distribution has the names that have its value. () is one shard, None
unknown, UNNAMED that rows lie in shards and no column says any more by what.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from everview.schema import Column, is_nested

Distribution = tuple[frozenset[str], ...] | None
UNNAMED: Distribution = (frozenset(),)


def hashed(columns: Sequence[Column], names: Iterable[str]) -> tuple[frozenset[str], ...]:
    """By some of the columns, as far as equal values have equal hashes on every engine."""
    types = {column.name: column.type for column in columns}
    return tuple(frozenset({name}) for name in names if _hashes_alike(types[name]))


def _hashes_alike(type_: pa.DataType) -> bool:
    """Not so: floats, equal ones of which may differ in their bits; decimals too wide for 64 bits,
    which Spark and Sail hash differently; intervals, which Sail doesn't hash; and arrays, structs
    and maps."""
    wide = pa.types.is_decimal(type_) and type_.precision > 18
    other = pa.types.is_floating(type_) or pa.types.is_duration(type_)
    return not (wide or other or is_nested(type_))


def keyed(
    columns: Sequence[Column], by: Distribution, names: Sequence[str]
) -> tuple[frozenset[str], ...]:
    """One that has rows equal in `names` in one shard: as they lie, if that does."""
    if by is None or not all(place & set(names) for place in by):
        return hashed(columns, names)
    return tuple(place & set(names) for place in by)


def as_it_lies(columns: Sequence[Column], by: Distribution) -> tuple[frozenset[str], ...]:
    """As rows lie by columns, or else by all of them."""
    if by is None or by == UNNAMED:
        return hashed(columns, [column.name for column in columns])
    return by


def renamed_places(made: Iterable[tuple[str, str]], by: Distribution) -> Distribution:
    """A distribution in the names that columns have further up: pairs of old and new ones."""
    if by is None:
        return None
    found: dict[str, set[str]] = {}
    for old, new in made:
        found.setdefault(old, set()).add(new)
    places = [frozenset(n for name in place for n in found.get(name, ())) for place in by]
    return tuple(places) if all(places) else UNNAMED
