"""Columns of arrays, structs and maps, by their parts: each part is a column that follows its own
rules, and an error names the row and the place in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import Ints, aligned, valid_of
from everview.codec.nested import items_of
from everview.codec.rows import map_keys
from everview.intake.kinds import Array, Unfit, plain
from everview.schema import is_list

# Converts a part, which is a column in the form of the user, to its stored type.
Store = Callable[[Any, pa.DataType], pa.ChunkedArray]


@dataclass(frozen=True)
class Parts:
    """A column taken apart: which values are not NULL, and the parts by name, without missing ones.

    Those of an array are its element, those of a map its key and value; of both, `offsets` say
    where the items of each value begin.
    """

    valid: Any
    columns: dict[str, Any]
    value: Callable[[int], Any]
    offsets: Ints | None = None


def store_parts(parts: Parts, target: pa.DataType, store: Store) -> pa.ChunkedArray:
    """The column, put together from its stored parts. Raises `Unfit`."""
    valid = None if parts.valid.all() else aligned(np.packbits(parts.valid, bitorder="little"))
    count = len(parts.valid)
    if parts.offsets is None:
        fields = [_store_part(parts, f.name, f".{f.name}", f.type, store) for f in target]
        return pa.chunked_array([pa.Array.from_buffers(target, count, [valid], children=fields)])
    if pa.types.is_list(target):
        items = _store_part(parts, "element", "", target.value_type, store)
    else:
        entry = target.field(0).type
        children = [_store_part(parts, f.name, f".{f.name}", f.type, store) for f in entry]
        _check_keys(parts, children[0])
        items = pa.Array.from_buffers(entry, len(children[0]), [None], children=children)
    buffers = [valid, aligned(parts.offsets.astype(np.int32))]
    return pa.chunked_array([pa.Array.from_buffers(target, count, buffers, children=[items])])


def _store_part(parts: Parts, name: str, path: str, target: pa.DataType, store: Store) -> pa.Array:
    if name not in parts.columns:
        return pa.nulls(len(parts.valid), target)
    try:
        return store(parts.columns[name], target).combine_chunks()
    except Unfit as unfit:
        position = unfit.position
        if parts.offsets is not None:
            position = _owner(parts.offsets, unfit.position)
            path = f"[{unfit.position - parts.offsets[position]}]{path}"
        type_ = unfit.target or target
        raise Unfit(position, unfit.value, type_, path + unfit.path) from None


def _check_keys(parts: Parts, keys: pa.Array) -> None:
    """Raises `Unfit` if a map has a NULL for a key, or a key twice."""
    assert parts.offsets is not None
    owners = np.repeat(np.arange(len(parts.valid)), np.diff(parts.offsets))
    wrong_rows = owners[~valid_of(keys)]
    if not len(wrong_rows):
        grouped = pa.table({"map": owners, "key": map_keys(keys)}).group_by(["map", "key"])
        counts = grouped.aggregate([([], "count_all")])
        wrong_rows = counts.filter(pc.greater(counts["count_all"], 1))["map"].to_numpy()
    if len(wrong_rows):
        row = int(wrong_rows.min())
        raise Unfit(row, parts.value(row))


def _owner(offsets: Ints, item: int) -> int:
    """The value that has an item."""
    return int(np.searchsorted(offsets, item, "right")) - 1


def parts_of_column(array: Array, target: pa.DataType) -> Parts | None:
    """An Arrow column taken apart; None if it is of another kind than the target."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    source, valid = array.type, valid_of(array)

    def value(position: int) -> Any:
        return plain(array[position])

    if pa.types.is_struct(target) and pa.types.is_struct(source):
        names = {field.name.lower(): field.name for field in target}
        field_names = [names.get(field.name.lower(), "") for field in source]
        if "" in field_names or len(set(field_names)) < len(field_names):
            return None
        return Parts(valid, dict(zip(field_names, array.flatten(), strict=True)), value)
    if pa.types.is_list(target) and is_list(source):
        offsets, items = items_of(array)
        return Parts(valid, {"element": items}, value, offsets)
    if pa.types.is_map(target) and (pa.types.is_map(source) or _are_pairs(source)):
        offsets, items = items_of(array)
        return Parts(
            valid, dict(zip(("key", "value"), items.flatten(), strict=True)), value, offsets
        )
    return None


def _are_pairs(source: pa.DataType) -> bool:
    """Whether the type is lists of structs with key and value, as systems without maps have."""
    return (
        is_list(source)
        and pa.types.is_struct(source.value_type)
        and [field.name for field in source.value_type] == ["key", "value"]
    )


def parts_of_values(values: list[Any], target: pa.DataType) -> Parts:
    """Python values taken apart: lists and tuples; dicts for structs; for maps dicts, or lists of
    pairs. Raises `Unfit`."""
    valid = np.array([value is not None for value in values], np.bool_)
    if pa.types.is_struct(target):
        return Parts(valid, _fields(values, target), values.__getitem__)
    to_items = _items if pa.types.is_list(target) else _pairs
    items_of_each: list[list[Any]] = []
    for position, value in enumerate(values):
        items = [] if value is None else to_items(value)
        if items is None:
            raise Unfit(position, value)
        items_of_each.append(items)
    offsets = np.concatenate([[0], np.cumsum(list(map(len, items_of_each)), dtype=np.int64)])
    items = [item for items in items_of_each for item in items]
    if pa.types.is_list(target):
        return Parts(valid, {"element": items}, values.__getitem__, offsets)
    columns = {"key": [key for key, _ in items], "value": [value for _, value in items]}
    return Parts(valid, columns, values.__getitem__, offsets)


def _items(value: Any) -> list[Any] | None:
    return list(value) if isinstance(value, list | tuple | np.ndarray) else None


def _pairs(value: Any) -> list[Any] | None:
    if isinstance(value, Mapping):
        return list(value.items())
    items = _items(value)
    are_pairs = items is not None and all(
        isinstance(item, list | tuple) and len(item) == 2 for item in items
    )
    return items if are_pairs else None


def _fields(values: list[Any], target: pa.DataType) -> dict[str, list[Any]]:
    """The values of each field; one that is left out is NULL."""
    names = {field.name.lower(): field.name for field in target}
    columns: dict[str, list[Any]] = {field.name: [None] * len(values) for field in target}
    for position, value in enumerate(values):
        if value is None:
            continue
        fields = value if isinstance(value, Mapping) else {None: value}
        field_names = [
            names.get(name.lower(), "") if isinstance(name, str) else "" for name in fields
        ]
        if "" in field_names or len(set(field_names)) < len(field_names):
            raise Unfit(position, value)
        for name, part in zip(field_names, fields.values(), strict=True):
            columns[name][position] = part
    return columns
