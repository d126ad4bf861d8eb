"""Load files into tables: Parquet, CSV with a header line, and JSON lines; the last two also .gz.

A file is read and put batch by batch, so memory is bounded by a batch. When a row doesn't fit, the
batches before it stay stored, and the error says how many rows they have. Loading the file again
replaces these rows.

CSV: An empty field is NULL, and a quoted empty field ("") is the empty string. BINARY is base64.
JSON: `everview.intake.documents` says how values are written. A column that is left out is NULL.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet

from everview.errors import DataError, EverviewError, NullNotAllowed, UnknownColumn
from everview.intake import documents_to_arrow, rows_to_arrow, text_to_arrow
from everview.intake.documents import parse_document
from everview.intake.explain import short_repr
from everview.intake.rows import match_columns
from everview.load.reject import LINE, Rejects, without_reasons
from everview.schema import TableSchema
from everview.stores.base import BATCH_ROWS
from everview.table import Table

# Called after each batch with the rows stored so far and the part of the file read, 0 to 1, or
# None where its size is not known.
Progress = Callable[[int, float | None], None]
# A batch of rows that fit the table, and the part of the file read so far.
Batches = Iterator[tuple[pa.Table, float | None]]

_DELIMITERS = ",;\t|"
CSV_BLOCK = 16 << 20
JSON_BATCH = 32 << 20
SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}


def load(
    table: Table,
    path: str | os.PathLike[str],
    format: str | None = None,
    progress: Progress | None = None,
    delimiter: str | None = None,
    rejects: Rejects | None = None,
) -> int:
    """Put all rows of a file into a table; returns how many.

    A row replaces the row with the same key. `format` is parquet, csv or json (JSON lines); by
    default it follows from the suffix of the file. `delimiter` separates the fields of a CSV file;
    by default it is a comma, in a .tsv file a tab. Rows that don't fit go to `rejects`; without it,
    the first such row raises `DataError`.
    """
    from everview.load.pieces import fitting_batches

    path = os.fspath(path)
    format_name = _format_of(path, format)
    options = {}
    if format_name == "csv":
        options["delimiter"] = _delimiter_of(path, delimiter)
    elif delimiter is not None:
        raise DataError(f"{path} is not a CSV file, so it has no delimiter; leave it out")
    if rejects is None:
        batches = _READERS[format_name](table.schema, path, **options)
    else:
        batches = fitting_batches(table.schema, path, format_name, rejects, **options)
    return put_batches(table, batches, path, progress)


def put_batches(table: Table, batches: Batches, name: str, progress: Progress | None = None) -> int:
    """Put batch after batch; returns how many rows they had.

    An error says how many rows are stored, and calls the source `name`.
    """
    row_count = 0
    try:
        for batch, part in batches:
            table.put(batch)
            row_count += batch.num_rows
            if progress is not None:
                progress(row_count, part)
    except DataError as error:
        raise type(error)(f"{error}; {_outcome(row_count)}") from None
    except (EverviewError, KeyboardInterrupt) as error:
        error.add_note(f"{name}: {_outcome(row_count)}")
        raise
    return row_count


def _outcome(row_count: int) -> str:
    if not row_count:
        return "no rows were stored"
    return f"the {row_count:,} rows of earlier batches are stored; loading again replaces them"


def _format_of(path: str, format: str | None) -> str:
    if not os.path.exists(path):
        raise DataError(f"there is no file {path}")
    if os.path.isdir(path):
        raise DataError(f"{path} is a directory; load the files in it, such as {path}/*.parquet")
    if not os.path.isfile(path):
        raise DataError(
            f"{path} is not a regular file, and a load reads a file twice; save it to a file, or "
            "pipe JSON lines into `everview put DB TABLE -`"
        )
    suffix = os.path.splitext(path.removesuffix(".gz"))[1].lower()
    name = format or SUFFIXES.get(suffix)
    if name not in _READERS:
        raise DataError(
            f"{path}: format {name or suffix or 'without a suffix'} is not known; "
            f"give the format: {', '.join(_READERS)}"
        )
    return name


def _delimiter_of(path: str, delimiter: str | None) -> str:
    if delimiter is not None and (
        len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'
    ):
        raise DataError(f"{path}: {delimiter!r} can't separate fields; give one ASCII character")
    return delimiter or ("\t" if path.lower().removesuffix(".gz").endswith(".tsv") else ",")


def _read_parquet(schema: TableSchema, path: str) -> Batches:
    with open_parquet(path) as file, parquet_errors(path):
        check_names(schema, path, file.schema_arrow.names)
        total = max(1, file.metadata.num_rows)
        first = 0

        def where(row: int) -> str:
            return f"{path}, row {first + row:,}"

        for batch in file.iter_batches(batch_size=BATCH_ROWS):
            yield rows_to_arrow(schema, batch, where), (first + batch.num_rows) / total
            first += batch.num_rows


def open_parquet(path: str) -> parquet.ParquetFile:
    try:
        return parquet.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a Parquet file: {error}") from None


@contextmanager
def parquet_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = str(error).strip().replace("\n", " ")
        raise DataError(f"{path} is damaged: {reason}") from None


def _read_csv(schema: TableSchema, path: str, delimiter: str) -> Batches:
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


def _read_json(schema: TableSchema, path: str) -> Batches:
    with open_stream(path) as (stream, part):
        for batch in read_json_lines(schema, stream, path):
            yield batch, part()


def read_json_lines(schema: TableSchema, stream: Iterable[bytes], name: str) -> Iterator[pa.Table]:
    """Batches of rows from lines of JSON; `name` is what errors call the stream."""
    documents: list[dict[str, Any]] = []
    lines: list[int] = []
    size = 0

    def where(row: int) -> str:
        return f"{name}, line {lines[row - 1]:,}"

    for number, line in enumerate(stream, 1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if line.isspace():
            continue
        documents.append(json_object(schema, name, number, line))
        lines.append(number)
        size += len(line)
        if len(lines) == BATCH_ROWS or size >= JSON_BATCH:
            yield documents_to_arrow(schema, documents, where)
            documents, lines, size = [], [], 0
    if lines:
        yield documents_to_arrow(schema, documents, where)


def json_object(schema: TableSchema, name: str, number: int, line: bytes) -> dict[str, Any]:
    """The object that a line has; raises `DataError`."""
    try:
        document = parse_document(line.rstrip())
    except UnicodeDecodeError as error:
        raise DataError(f"{name}, line {number:,}: not UTF-8 text: {error.reason}") from None
    except json.JSONDecodeError as error:
        raise DataError(
            f"{name}, line {number:,}, column {error.colno:,}: not JSON: {error.msg}; "
            'write one object such as {"id": 1} on each line'
        ) from None
    except ValueError as error:
        raise DataError(f"{name}, line {number:,}: can't be read: {error}") from None
    if not isinstance(document, dict):
        raise DataError(
            f"{name}, line {number:,}: {type(document).__name__} instead of an object; "
            "write one object such as {\"id\": 1} on each line (jq -c '.[]' does that to an array)"
        )
    if LINE in document:
        return {column: document[column] for column in without_reasons(schema, list(document))}
    return document


def check_names(schema: TableSchema, place: str, names: list[str]) -> None:
    """Raises `DataError` unless columns are known, named once, and none that needs a value is
    missing."""
    if "" in names:
        raise UnknownColumn(
            f"{place}: column {names.index('') + 1} has no name; leave it out (in pandas, with "
            "index=False), or name it"
        )
    try:
        positions = match_columns(schema, names)
    except UnknownColumn as error:
        raise UnknownColumn(
            f"{place}: {error}; remove it from the file, or add it to the table with ALTER TABLE "
            f"{schema.name} ADD COLUMN"
        ) from None
    except DataError as error:
        raise type(error)(f"{place}: {error}") from None
    for column in schema.columns:
        if not column.nullable and column.name not in positions:
            rule = "is part of the primary key" if column.name in schema.key else "is NOT NULL"
            raise NullNotAllowed(
                f"{place}: column {column.name} {rule} of table {schema.name}, "
                f"but there are only {', '.join(names)}"
            )


@contextmanager
def open_stream(path: str) -> Iterator[tuple[IO[bytes], Callable[[], float]]]:
    """The file's bytes, unpacked if gzipped, and a function that tells the part read so far."""
    size = max(1, os.path.getsize(path))
    try:
        with open(path, "rb") as raw:
            stream: Any = gzip.GzipFile(fileobj=raw) if path.endswith(".gz") else raw
            yield stream, lambda: min(1.0, raw.tell() / size)
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise DataError(f"{path} can't be read: {error}") from None


_READERS: dict[str, Callable[..., Batches]] = {
    "parquet": _read_parquet,
    "csv": _read_csv,
    "json": _read_json,
}
