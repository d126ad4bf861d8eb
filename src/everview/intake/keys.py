"""Keys in any of the forms users have them, to an Arrow table of exactly the key columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from everview.errors import WrongKey, WrongType
from everview.intake.columns import store_column
from everview.intake.explain import misfit, short_repr
from everview.intake.kinds import Unfit
from everview.intake.rows import as_arrow, is_pandas, match_columns, null_error, pandas_columns
from everview.intake.values import store_values
from everview.schema import TableSchema

# An iterable of keys: values for a key of one column, tuples in key order or dicts for longer
# ones; or an Arrow table, batch or frame of the key columns; or an Arrow array for one column.
Keys = Any


def keys_to_arrow(schema: TableSchema, keys: Keys, nullable: bool = False) -> pa.Table:
    """The keys as a table of the key columns, in key order and types, in the order given.

    Keys of a table have no NULL; those of a view may be `nullable`.
    """
    inputs = _input_columns(schema, keys)
    arrays = []
    for column, (data, store) in zip(schema.key_columns, inputs, strict=True):
        try:
            array = store(data, column.type)
        except Unfit as unfit:
            raise WrongType(
                f"table {schema.name}, key {unfit.position + 1}, column {column.name}: "
                f"{misfit(unfit.value, column.type)}"
            ) from None
        if array.null_count and not nullable:
            position = array.is_null().index(True).as_py() + 1
            raise null_error(schema, column, f"table {schema.name}, key {position}", True)
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema.key_arrow)


def bound_to_key(schema: TableSchema, bound: Any) -> tuple[Any, ...] | None:
    """A key or its leading columns, for the start or stop of a scan, as exact values."""
    if bound is None:
        return None
    values = tuple(bound) if isinstance(bound, tuple | list) else (bound,)
    if isinstance(bound, Mapping):
        by_name = {schema.column(name).name: value for name, value in bound.items()}
        values = tuple(by_name[name] for name in schema.key[: len(by_name)] if name in by_name)
    width = len(bound) if isinstance(bound, Mapping) else len(values)
    if not 1 <= width == len(values) <= len(schema.key):
        raise WrongKey(
            f"table {schema.name}: {short_repr(bound)} is no bound of a scan; give a key or its "
            f"leading columns ({', '.join(schema.key)})"
        )
    leading = TableSchema(schema.name, schema.key_columns[:width], schema.key[:width])
    keys = keys_to_arrow(leading, [values])
    return tuple(keys.to_pylist()[0].values())


def _input_columns(schema: TableSchema, keys: Keys) -> list[tuple[Any, Any]]:
    if isinstance(keys, list):
        return _columns_of_list(schema, keys)
    if is_pandas(keys):
        columns = pandas_columns(schema, keys)
        _check_names(schema, columns)
        return [columns[name] for name in schema.key]
    if isinstance(keys, pa.Array | pa.ChunkedArray) and len(schema.key) == 1:
        return [(keys, store_column)]
    table = as_arrow(keys)
    if table is not None:
        positions = match_columns(schema, table.column_names)
        _check_names(schema, positions)
        return [(table.column(positions[name]), store_column) for name in schema.key]
    if isinstance(keys, Mapping | str | bytes) or not isinstance(keys, Iterable):
        raise WrongKey(
            f"table {schema.name}: keys come in a list, such as [{short_repr(keys)}], "
            "or as an Arrow table of the key columns"
        )
    return _columns_of_list(schema, list(keys))


def _columns_of_list(schema: TableSchema, keys: list[Any]) -> list[tuple[Any, Any]]:
    if len(schema.key) == 1 and not any(isinstance(key, tuple | list | Mapping) for key in keys):
        return [(keys, store_values)]
    parts = [_parts(schema, position, key) for position, key in enumerate(keys, 1)]
    return [([part[i] for part in parts], store_values) for i in range(len(schema.key))]


def _parts(schema: TableSchema, position: int, key: Any) -> tuple[Any, ...]:
    """The values of one key, in key order."""
    if isinstance(key, Mapping):
        values = {schema.column(name).name: value for name, value in key.items()}
        _check_names(schema, values)
        return tuple(values[name] for name in schema.key)
    if isinstance(key, tuple | list) and len(key) == len(schema.key):
        return tuple(key)
    columns = ", ".join(schema.key)
    form = f"a tuple ({columns})" if len(schema.key) > 1 else f"one value ({columns})"
    raise WrongKey(
        f"table {schema.name}, key {position}: {short_repr(key)} is not a key; a key is {form}"
    )


def _check_names(schema: TableSchema, names: Iterable[str]) -> None:
    key_names = list(names)
    if set(key_names) != set(schema.key):
        raise WrongKey(
            f"table {schema.name}: keys have the columns {', '.join(schema.key)}, "
            f"not {', '.join(key_names) or 'none'}"
        )
