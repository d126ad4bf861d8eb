"""Distributions: the columns whose hash decides in which shard a row lies.

For each place in the hash, a distribution has the names of columns that have its value. () stands
for one shard, None for unknown. UNNAMED means that rows lie in shards, but the columns of the hash
are not there any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from everview.schema import Column, is_nested

Distribution = tuple[frozenset[str], ...] | None
UNNAMED: Distribution = (frozenset(),)


def hashed(columns: Sequence[Column], names: Iterable[str]) -> tuple[frozenset[str], ...]:
    """A distribution by those of the columns that every engine hashes alike."""
    types = {column.name: column.type for column in columns}
    return tuple(frozenset({name}) for name in names if _hashes_alike(types[name]))


def _hashes_alike(type_: pa.DataType) -> bool:
    """Whether equal values have equal hashes on every engine. Not so floats, as equal ones may
    differ in their bits; decimals too wide for 64 bits, which Spark and Sail hash differently;
    intervals, which Sail doesn't hash; and arrays, structs and maps."""
    wide = pa.types.is_decimal(type_) and type_.precision > 18
    other = pa.types.is_floating(type_) or pa.types.is_duration(type_)
    return not (wide or other or is_nested(type_))


def keyed(
    columns: Sequence[Column], by: Distribution, names: Sequence[str]
) -> tuple[frozenset[str], ...]:
    """A distribution that puts rows which are equal in `names` in one shard: `by`, if it does."""
    if by is None or not all(place & set(names) for place in by):
        return hashed(columns, names)
    return tuple(place & set(names) for place in by)


def as_it_lies(columns: Sequence[Column], by: Distribution) -> tuple[frozenset[str], ...]:
    """The distribution of rows, if columns say it, or one by all columns."""
    if by is None or by == UNNAMED:
        return hashed(columns, [column.name for column in columns])
    return by


def renamed_places(pairs: Iterable[tuple[str, str]], by: Distribution) -> Distribution:
    """A distribution in the names that columns have further up; `pairs` are old and new names."""
    if by is None:
        return None
    new_names: dict[str, set[str]] = {}
    for old, new in pairs:
        new_names.setdefault(old, set()).add(new)
    places = [frozenset(n for name in place for n in new_names.get(name, ())) for place in by]
    return tuple(places) if all(places) else UNNAMED
