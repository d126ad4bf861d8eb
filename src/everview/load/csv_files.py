"""CSV files with a header line as batches of rows of a table.

An empty field is NULL, and a quoted empty field ("") is the empty string. BINARY is base64. A file
is read a second time to say on which line an error is.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pyarrow as pa
import pyarrow.csv as arrow_csv

from everview.errors import DataError
from everview.intake import text_to_arrow
from everview.intake.explain import short_repr
from everview.load.reading import Batches, check_names, open_stream
from everview.load.reject import without_reasons
from everview.schema import TableSchema
from everview.stores.base import BATCH_ROWS

_DELIMITERS = ",;\t|"
CSV_BLOCK = 16 << 20


def read_csv(schema: TableSchema, path: str, delimiter: str) -> Batches:
    names, columns = csv_columns(schema, path, delimiter)
    first = 0

    def where(row: int) -> str:
        return f"{path}, row {first + row:,} (line {_csv_line(path, delimiter, first + row):,})"

    with open_stream(path) as (raw, part), _csv_errors(path, delimiter, len(names)):
        stream = CountingQuotes(raw)
        batches = _csv_batches(stream, csv_conversion(names, columns), delimiter)
        next_batch = next(batches, None)
        while (batch := next_batch) is not None:
            next_batch = next(batches, None)
            if next_batch is None and stream.quotes % 2:
                _check_closed(path, delimiter)
            for start in range(0, batch.num_rows, BATCH_ROWS):
                rows = pa.Table.from_batches([batch.slice(start, BATCH_ROWS)])
                yield text_to_arrow(schema, rows, where), part()
                first += rows.num_rows


def csv_columns(schema: TableSchema, path: str, delimiter: str) -> tuple[list[str], list[str]]:
    """The columns that a file has, and those of them that are loaded."""
    names = _csv_header(path, delimiter)
    _check_separated(schema, path, names)
    columns = without_reasons(schema, names)
    check_names(schema, f"{path}, line 1", columns)
    return names, columns


def csv_conversion(names: list[str], columns: list[str]) -> arrow_csv.ConvertOptions:
    return arrow_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.binary()),
        include_columns=columns,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


class CountingQuotes(io.RawIOBase):
    """A stream of bytes, and how many quotes it had so far."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.quotes = 0
        self._stream = stream

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.quotes += data.count(b'"')
        return data


def _check_closed(path: str, delimiter: str) -> None:
    """Refuse a quote that is never closed, since Arrow would end it at the end of the file."""
    with open_stream(path) as (stream, _):
        csv.field_size_limit(CSV_BLOCK)
        text = io.TextIOWrapper(stream, "utf-8-sig", "replace", newline="")
        reader, line = csv.reader(text, delimiter=delimiter, strict=True), 1
        try:
            for _ in reader:
                line = reader.line_num + 1
        except csv.Error as error:
            if "end of data" in str(error):
                raise DataError(
                    f"{path}, line {line:,}: a quote is opened in this row and never closed; write "
                    'a quote within a quoted field as ""'
                ) from None


def _csv_batches(
    stream: CountingQuotes, conversion: arrow_csv.ConvertOptions, delimiter: str
) -> Iterator[pa.RecordBatch]:
    """Batches of bytes: the text is checked where an error can name its row."""
    try:
        reader = arrow_csv.open_csv(
            stream,
            arrow_csv.ReadOptions(block_size=CSV_BLOCK),
            arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            conversion,
        )
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):  # a header without a line end
            return
        raise
    yield from reader


@contextmanager
def _csv_errors(path: str, delimiter: str, width: int) -> Iterator[None]:
    """Turn the parser's errors into ours, with the row found by reading the file again."""
    try:
        yield
    except pa.ArrowInvalid as error:
        if "straddling" in str(error):
            raise DataError(f"{path}: a row is longer than {CSV_BLOCK:,} bytes") from None
        for row, (line, fields) in enumerate(_csv_rows(path, delimiter), 1):
            if len(fields) != width:
                count = count_fields(len(fields))
                raise DataError(
                    f"{path}, row {row:,} (line {line:,}): {count}, but the header has {width}; "
                    f"quote fields that contain {delimiter!r}"
                ) from None
        raise DataError(f"{path} can't be read as CSV: {error}") from None


def count_fields(count: int) -> str:
    return f"{count} field{'' if count == 1 else 's'}"


def _csv_header(path: str, delimiter: str) -> list[str]:
    with open_stream(path) as (stream, _):
        text = io.TextIOWrapper(stream, "utf-8-sig", "replace", newline="")
        rows = csv.reader(text, delimiter=delimiter)
        header = next((fields for fields in rows if fields), None)
    if header is None:
        raise DataError(f"{path} is empty; a CSV file starts with a line of column names")
    if "\0" in header[0]:
        raise DataError(f"{path} is not UTF-8 text but, it seems, UTF-16; save it as UTF-8")
    return header


def _check_separated(schema: TableSchema, path: str, header: list[str]) -> None:
    """Refuse a header whose names another character seems to separate."""
    separator = min(set(_DELIMITERS) & set(header[0]), default=None)
    if len(header) == 1 and separator and not schema.has(header[0]):
        raise DataError(
            f"{path}, line 1: {short_repr(header[0])} is one column; if {separator!r} separates "
            "its columns, give that as the delimiter"
        )


def _csv_rows(path: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows with the line each begins on."""
    with open_stream(path) as (stream, _):
        csv.field_size_limit(CSV_BLOCK)
        text = io.TextIOWrapper(stream, "utf-8-sig", "replace", newline="")
        reader = csv.reader(text, delimiter=delimiter)
        line, header = 1, True
        for fields in reader:
            if fields and not header:
                yield line, fields
            header = header and not fields
            line = reader.line_num + 1


def _csv_line(path: str, delimiter: str, row: int) -> int:
    row_and_fields = next(itertools.islice(_csv_rows(path, delimiter), row - 1, None), None)
    return row_and_fields[0] if row_and_fields else row + 1
