"""The result of a SQL statement: an Arrow table that prints itself as people read tables."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from html import escape
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from everview.codec.point import python_rows
from everview.errors import DataError
from everview.intake.documents import format_interval, format_value
from everview.results import frames
from everview.schema import is_nested

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

SHOWN_ROWS, SHOWN_WIDTH = 20, 40


class Result:
    """The rows of a query, or the message of a statement that returns no rows.

    A query may have a `message` too: what a reader must know about the rows. `count` is the number
    of rows that the statement returned, inserted, updated or deleted.
    """

    def __init__(
        self, table: pa.Table | None = None, message: str = "", count: int | None = None
    ) -> None:
        self._table = pa.table({}) if table is None else table
        self.message = message
        self.count = len(self) if count is None else count

    def to_arrow(self) -> pa.Table:
        return self._table

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas frame, without loss: an integer column with NULLs stays integer."""
        return frames.to_pandas(self._table)

    def to_polars(self) -> pl.DataFrame:
        return frames.to_polars(self._table)

    def to_pylist(self) -> list[dict[str, Any]]:
        """Rows as dicts. Raises `DataError` if two columns have one name."""
        check_names(self.columns)
        return python_rows(self._table)

    @property
    def columns(self) -> list[str]:
        return list(self._table.column_names)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        check_names(self.columns)
        for batch in self._table.to_batches():
            yield from python_rows(batch)

    def __repr__(self) -> str:
        table = render(self._table) if self.columns else ""
        return "\n".join(filter(None, [table, self.message]))

    def _repr_html_(self) -> str:
        from everview.results.html import html_table

        table = html_table(self._table, len(self)) if self.columns else ""
        message = f"<div>{escape(self.message)}</div>" if self.message else ""
        return "\n".join(filter(None, [table, message]))


def check_names(columns: list[str]) -> None:
    """Refuse two columns of one name, since a dict would lose one of them."""
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise DataError(
            f"two columns are called {twice}, and a row as a dict can have only one of them; "
            "rename one with AS"
        )


def render(table: pa.Table, limit: int = SHOWN_ROWS) -> str:
    """The first rows as a text table with borders; numbers are right-aligned."""
    head = table.slice(0, limit)
    columns = [
        _aligned([_cell(name), *cells_of(column)], is_number(column.type))
        for name, column in zip(table.column_names, head.columns, strict=True)
    ]
    rule = "+" + "+".join("-" * (display_width(column[0]) + 2) for column in columns) + "+"
    names, *rows = ["| " + " | ".join(cells) + " |" for cells in zip(*columns, strict=True)]
    count = count_rows(table.num_rows)
    footer = f"{count}, the first {limit} shown" if table.num_rows > limit else count
    return "\n".join([rule, names, rule, *rows, rule, footer])


def count_rows(count: int) -> str:
    """1 row, 1,000 rows"""
    return f"{count:,} row{'' if count == 1 else 's'}"


def count_unchanged(count: int, state: str = "there") -> str:
    """Say how many rows a write left as they were, since they had these values already."""
    return f", {count:,} {'was' if count == 1 else 'were'} {state} already" if count else ""


def display_width(text: str) -> int:
    """How many columns of a terminal the text takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    joined = sum(unicodedata.category(c) in ("Mn", "Me", "Cf") for c in text)
    return len(text) + wide - joined


def _aligned(cells: list[str], right: bool) -> list[str]:
    width = max(map(display_width, cells))
    gaps = [" " * (width - display_width(cell)) for cell in cells]
    return [gap + cell if right else cell + gap for cell, gap in zip(cells, gaps, strict=True)]


def is_number(arrow: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(test(arrow) for test in tests)


def values_of(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of the column, or texts if Python can't represent one of the values."""
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):  # a date before the year 1, say
        values = column.cast(pa.string()).to_pylist()
    return values


@overload
def cells_of(column: pa.ChunkedArray, width: int = ...) -> list[str]: ...


@overload
def cells_of(column: pa.ChunkedArray, width: int, null: None) -> list[str | None]: ...


def cells_of(
    column: pa.ChunkedArray, width: int = SHOWN_WIDTH, null: str | None = "NULL"
) -> Sequence[str | None]:
    """The values of the column as texts of at most `width`, and `null` for NULL."""
    values = values_of(column)
    if is_nested(column.type):
        values = [None if value is None else format_value(value, column.type) for value in values]
    return [null if value is None else _cell(value, width) for value in values]


def _text(value: Any) -> str:
    if isinstance(value, timedelta):
        return format_interval(value)
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _cell(value: Any, width: int = SHOWN_WIDTH) -> str:
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in _text(value)[: width + 1])
    return text if len(text) <= width else text[: width - 1] + "…"
