"""Rows in any of the forms users have them, to an Arrow table of exactly the table's schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from everview.errors import DataError, NullNotAllowed, UnknownColumn, WrongType
from everview.intake.columns import store_column
from everview.intake.documents import store_json, store_json_text
from everview.intake.explain import misfit
from everview.intake.kinds import Unfit
from everview.intake.text import store_text
from everview.intake.values import store_values
from everview.schema import Column, TableSchema, is_nested

# A dict, an iterable of dicts, an Arrow table or batch, a pandas, Polars or Spark frame, or
# anything else that exports an Arrow stream.
Rows = Any
# Says where the row at a position came from, for error messages.
Where = Callable[[int], str]
# A column in the form of the user, and the function that converts it.
Store = Callable[[Any, pa.DataType], pa.ChunkedArray]
InputColumn = tuple[Any, Store]


def rows_to_arrow(schema: TableSchema, rows: Rows, where: Where | None = None) -> pa.Table:
    """The rows with all columns of the table, in its order and types.

    Columns are found by name in any case; those left out are NULL. Raises a `DataError` that
    names the first row and column that don't fit. NaN is NULL in pandas and a number elsewhere.
    """
    where = where or partial("table {}, row {}".format, schema.name)
    if isinstance(rows, Mapping):
        rows = [rows]
    count, columns = _take_apart(schema, rows, where)
    return _assemble(schema, count, columns, where)


def text_to_arrow(schema: TableSchema, rows: pa.Table, where: Where) -> pa.Table:
    """As `rows_to_arrow`, for columns of text that are to be parsed; arrays, structs and maps are
    JSON."""
    positions = match_columns(schema, rows.column_names)
    columns: dict[str, InputColumn] = {
        name: (
            rows.column(at),
            store_json_text if is_nested(schema.column(name).type) else store_text,
        )
        for name, at in positions.items()
    }
    return _assemble(schema, rows.num_rows, columns, where)


def documents_to_arrow(
    schema: TableSchema, documents: list[dict[str, Any]], where: Where | None = None
) -> pa.Table:
    """As `rows_to_arrow`, for rows out of JSON (see `everview.intake.documents`)."""
    where = where or partial("table {}, row {}".format, schema.name)
    columns = _dict_columns(schema, documents, where, store_json)
    return _assemble(schema, len(documents), columns, where)


def match_columns(schema: TableSchema, names: Iterable[Any]) -> dict[str, int]:
    """The positions of names, by the name of the table's column."""
    positions: dict[str, int] = {}
    for position, name in enumerate(names):
        if not isinstance(name, str):
            raise UnknownColumn(
                f"table {schema.name}: column names are text, not {name!r}; "
                f"it has {', '.join(schema.names)}"
            )
        column = schema.column(name).name
        if column in positions:
            raise DataError(f"table {schema.name}: column {column} is given twice; keep one")
        positions[column] = position
    return positions


def _assemble(
    schema: TableSchema, count: int, columns: dict[str, InputColumn], where: Where
) -> pa.Table:
    arrays = [
        _store(schema, column, count, columns.get(column.name), where) for column in schema.columns
    ]
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


def _store(
    schema: TableSchema, column: Column, count: int, input_column: InputColumn | None, where: Where
) -> pa.ChunkedArray:
    if input_column is None:
        array = pa.chunked_array([pa.nulls(count, column.type)])
    else:
        try:
            array = input_column[1](input_column[0], column.type)
        except Unfit as unfit:
            place = where(unfit.position + 1)
            raise WrongType(
                f"{place}, column {column.name}{unfit.path}: "
                f"{misfit(unfit.value, unfit.target or column.type)}"
            ) from None
    if not column.nullable and array.null_count:
        raise null_error(schema, column, where(_first_null(array) + 1), input_column is not None)
    return array


def null_error(schema: TableSchema, column: Column, place: str, has_column: bool) -> NullNotAllowed:
    problem = "NULL or missing" if has_column else "missing"
    rule = "is part of the primary key" if column.name in schema.key else "is NOT NULL"
    return NullNotAllowed(f"{place}, column {column.name}: {problem}, but it {rule}; give a value")


def _first_null(column: pa.ChunkedArray) -> int:
    return int(pc.index(pc.is_null(column), True).as_py())


def _take_apart(
    schema: TableSchema, rows: Rows, where: Where
) -> tuple[int, dict[str, InputColumn]]:
    """The number of rows, and their columns by name."""
    if is_pandas(rows):
        return len(rows), pandas_columns(schema, rows)
    table = as_arrow(rows)
    if table is not None:
        positions = match_columns(schema, table.column_names)
        return table.num_rows, {
            name: (table.column(position), store_column) for name, position in positions.items()
        }
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        is_lazy = hasattr(rows, "collect")  # as Polars' lazy frames are
        raise WrongType(
            f"table {schema.name}: rows come as a dict, a list of dicts, an Arrow table or batch, "
            f"or a pandas, Polars or Spark frame, not as {type(rows).__name__}"
            + ("; pass what its collect() gives" if is_lazy else "")
        )
    documents = list(rows)
    return len(documents), _dict_columns(schema, documents, where, store_values)


def as_arrow(rows: Any) -> pa.Table | None:
    """The Arrow table behind an object that has one (Polars frames and many others), or None."""
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if type(rows).__module__.startswith("pyspark.") and hasattr(rows, "toArrow"):
        return rows.toArrow()
    if not hasattr(rows, "__arrow_c_stream__"):
        return None
    if "Object" in map(str, getattr(rows, "dtypes", ())):
        raise WrongType(
            "a Polars column of dtype Object gives Arrow addresses and not values; cast it first"
        )
    try:
        return pa.table(rows)
    except pa.ArrowInvalid as error:
        if hasattr(rows, "columns"):
            reason = str(error).partition("\n")[0]
            raise WrongType(f"the rows can't be had as Arrow: {reason}; cast columns") from None
        return None  # a stream of values and not of rows, such as a Polars series


def is_pandas(rows: Any) -> bool:
    return type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns")


def pandas_columns(schema: TableSchema, frame: Any) -> dict[str, InputColumn]:
    """The frame's columns; its index is left out. Missing values, NaN too, are NULL."""
    positions = match_columns(schema, frame.columns)
    for name in frame.index.names:
        if isinstance(name, str) and schema.has(name) and schema.column(name).name not in positions:
            raise DataError(
                f"table {schema.name}: column {name} is the frame's index, which is not stored; "
                "pass frame.reset_index()"
            )
    return {name: _pandas_column(frame.iloc[:, at]) for name, at in positions.items()}


def _pandas_column(series: Any) -> InputColumn:
    if series.dtype == object:
        return series.tolist(), partial(store_values, nan_is_null=True)
    try:
        return pa.array(series, from_pandas=True), store_column
    except (pa.ArrowException, TypeError, ValueError):  # what Arrow has no type for
        return series.tolist(), partial(store_values, nan_is_null=True)


def _dict_columns(
    schema: TableSchema, rows: list[Any], where: Where, store: Store
) -> dict[str, InputColumn]:
    for position, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise WrongType(
                f"{where(position + 1)}: a row is a dict such as "
                f"{{{schema.names[0]!r}: ...}}, not {type(row).__name__}"
            )
    spellings: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        column = _column_of(schema, name, rows, where)
        spellings.setdefault(column, []).append(name)
    return {column: (_gather(rows, names, where), store) for column, names in spellings.items()}


def _column_of(schema: TableSchema, name: Any, rows: list[Mapping[str, Any]], where: Where) -> str:
    if isinstance(name, str) and schema.has(name):
        return schema.column(name).name
    place = where(1 + next(i for i, row in enumerate(rows) if name in row))
    raise UnknownColumn(
        f"{place}: table {schema.name} has no column {name}; it has {', '.join(schema.names)}"
    )


def _gather(rows: list[Mapping[str, Any]], names: list[str], where: Where) -> list[Any]:
    """The values of one column, which rows may spell in different cases."""
    if len(names) == 1:
        name = names[0]
        return [row.get(name) for row in rows]
    values = []
    for position, row in enumerate(rows):
        spellings = [name for name in names if name in row]
        if len(spellings) > 1:
            raise DataError(
                f"{where(position + 1)}: {' and '.join(spellings)} are the same column; keep one"
            )
        values.append(row[spellings[0]] if spellings else None)
    return values
