"""Files in pieces of whole rows, for loads that reject rows which don't fit (see `reject`).

Memory is bounded by a piece. CSV is cut at the ends of rows; in a chunk without quotes, every line
end is the end of a row.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import IO

import pyarrow as pa
import pyarrow.csv as arrow_csv

from everview.errors import DataError
from everview.intake import documents_to_arrow, rows_to_arrow, text_to_arrow
from everview.intake.documents import format_document
from everview.load.csv_files import count_fields, csv_columns, csv_conversion
from everview.load.formats import SUFFIXES
from everview.load.json_lines import JSON_BATCH, json_object
from everview.load.parquet_files import open_parquet, parquet_errors
from everview.load.reading import Batches, check_names, open_stream
from everview.load.reject import Piece, Rejects, fitting_rows
from everview.results.result import values_of
from everview.schema import TableSchema
from everview.stores.base import BATCH_ROWS

CHUNK = 1 << 20
_LONGEST = 16  # chunks
Pieces = Iterator[tuple[Piece, float]]


def fitting_batches(
    schema: TableSchema, path: str, format: str, rejects: Rejects, delimiter: str = ""
) -> Batches:
    """The rows of a file that fit, and the part of the file read so far."""
    reject_format, suffix = ("csv", ".csv") if format == "csv" else ("json", ".jsonl")
    if SUFFIXES.get(os.path.splitext(rejects.path)[1].lower(), reject_format) != reject_format:
        raise DataError(
            f"{rejects.path}: rejected rows of a {format} file are written as {reject_format}; "
            f"give their file the suffix {suffix}"
        )
    options = {"delimiter": delimiter} if format == "csv" else {}
    for piece, part in _PIECES[format](schema, path, rejects, **options):
        for rows in fitting_rows(piece, rejects):
            yield rows, part


class ParquetPiece(Piece):
    def __init__(self, schema: TableSchema, path: str, batch: pa.RecordBatch, first: int) -> None:
        self._schema, self._path, self._batch, self._first = schema, path, batch, first

    def count(self) -> int:
        return int(self._batch.num_rows)

    def whole(self) -> pa.Table:
        return self.part(0, self.count())

    def part(self, start: int, stop: int) -> pa.Table:
        def where(row: int) -> str:
            return f"{self._path}, row {self._first + start + row:,}"

        return rows_to_arrow(self._schema, self._batch.slice(start, stop - start), where)

    def text(self, row: int) -> tuple[int, bytes]:
        columns = zip(self._batch.schema.names, self._batch.columns, strict=True)
        values = {name: values_of(column.slice(row, 1))[0] for name, column in columns}
        return self._first + row + 1, format_document(values, self._batch.schema).encode()


def _parquet_pieces(schema: TableSchema, path: str, rejects: Rejects) -> Pieces:
    with open_parquet(path) as file, parquet_errors(path):
        check_names(schema, path, file.schema_arrow.names)
        rejects.begin(path)
        total, first = max(1, file.metadata.num_rows), 0
        for batch in file.iter_batches(batch_size=BATCH_ROWS):
            yield ParquetPiece(schema, path, batch, first), (first + batch.num_rows) / total
            first += batch.num_rows


class JsonPiece(Piece):
    def __init__(self, schema: TableSchema, path: str, lines: list[tuple[int, bytes]]) -> None:
        self._schema, self._path, self._lines = schema, path, lines

    def count(self) -> int:
        return len(self._lines)

    def whole(self) -> pa.Table:
        return self.part(0, self.count())

    def part(self, start: int, stop: int) -> pa.Table:
        def where(row: int) -> str:
            return f"{self._path}, line {self._lines[start + row - 1][0]:,}"

        lines = self._lines[start:stop]
        documents = [json_object(self._schema, self._path, *line) for line in lines]
        return documents_to_arrow(self._schema, documents, where)

    def text(self, row: int) -> tuple[int, bytes]:
        return self._lines[row]


def _json_pieces(schema: TableSchema, path: str, rejects: Rejects) -> Pieces:
    rejects.begin(path)
    with open_stream(path) as (stream, part):
        lines: list[tuple[int, bytes]] = []
        size = 0
        for number, line in enumerate(stream, 1):
            line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if line.isspace():
                continue
            lines.append((number, line))
            size += len(line)
            if len(lines) == BATCH_ROWS or size >= JSON_BATCH:
                yield JsonPiece(schema, path, lines), part()
                lines, size = [], 0
        if lines:
            yield JsonPiece(schema, path, lines), part()


class CsvPiece(Piece):
    """`parse` makes a table of the bytes of some rows, or raises `DataError`."""

    def __init__(
        self,
        schema: TableSchema,
        path: str,
        parse: Callable[[bytes], pa.Table],
        delimiter: str,
        line: int,
        chunk: bytes,
    ) -> None:
        self._schema, self._path, self._parse = schema, path, parse
        self._delimiter, self._line, self._chunk = delimiter, line, chunk

    @cached_property
    def _rows(self) -> list[tuple[int, bytes]]:
        """The rows with the line on which each begins."""
        rows, line, start = [], self._line, 0
        for end, lines in _row_ends(self._chunk, self._delimiter):
            rows.append((line, self._chunk[start:end]))
            line, start = self._line + lines, end
        return rows

    def count(self) -> int:
        return len(self._rows)

    def whole(self) -> pa.Table:
        return text_to_arrow(self._schema, self._parse(self._chunk), lambda row: self._path)

    def part(self, start: int, stop: int) -> pa.Table:
        text = b"".join(row for _, row in self._rows[start:stop])
        place = f"{self._path}, line {self._rows[start][0]:,}"
        try:
            fields = self._parse(text)
        except DataError as error:
            raise DataError(f"{place}: {error}") from None
        return text_to_arrow(self._schema, fields, lambda row: place)

    def text(self, row: int) -> tuple[int, bytes]:
        return self._rows[row]


def _csv_pieces(schema: TableSchema, path: str, rejects: Rejects, delimiter: str) -> Pieces:
    names, columns = csv_columns(schema, path, delimiter)
    conversion = csv_conversion(names, columns)

    def parse(text: bytes) -> pa.Table:
        if not text.strip(b"\r\n"):
            return pa.table({name: pa.array([], pa.binary()) for name in columns})
        _check_closed(text, delimiter)
        try:
            return arrow_csv.read_csv(
                pa.BufferReader(text),
                arrow_csv.ReadOptions(block_size=len(text), column_names=names),
                arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                conversion,
            )
        except pa.ArrowInvalid as error:
            width = len(next(csv.reader(_lines(text), delimiter=delimiter)))
            if width != len(names):
                raise DataError(
                    f"{count_fields(width)}, but the header has {len(names)}; quote fields that "
                    f"contain {delimiter!r}"
                ) from None
            raise DataError(str(error).partition("\n")[0]) from None

    with open_stream(path) as (stream, part):
        chunks = _csv_chunks(path, stream, delimiter)
        header = next(chunks, (1, b""))[1]
        rejects.begin(path, header, delimiter)
        for line, chunk in chunks:
            yield CsvPiece(schema, path, parse, delimiter, line, chunk), part()


def _csv_chunks(path: str, stream: IO[bytes], delimiter: str) -> Iterator[tuple[int, bytes]]:
    """The header, and then chunks of whole rows, with the line on which each begins."""
    line, buffer, is_header, is_last = 1, b"", True, False
    while not is_last:
        read = stream.read(CHUNK)
        is_last = not read
        buffer += read
        if is_header:
            blank = len(buffer) - len(buffer.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n"))
            line += buffer[:blank].count(b"\n")
            buffer = buffer[blank:]
            end = _first_row_end(buffer, delimiter)
            yield line, buffer[:end]
            line += _count_lines(buffer[:end])
            buffer, is_header = buffer[end:], False
        end = len(buffer) if is_last else _last_row_start(buffer, delimiter)
        if end:
            yield line, buffer[:end]
            line += _count_lines(buffer[:end])
            buffer = buffer[end:]
        elif len(buffer) > _LONGEST * CHUNK:
            raise DataError(
                f"{path}, line {line:,}: a row is longer than {_LONGEST * CHUNK:,} bytes"
            )


def _first_row_end(text: bytes, delimiter: str) -> int:
    return next(_row_ends(text, delimiter), (len(text), 0))[0]


def _last_row_start(text: bytes, delimiter: str) -> int:
    """Where the last row begins, which may not be whole; 0 if there is but one."""
    if b'"' not in text:
        return text.rfind(b"\n", 0, -1) + 1
    ends = [end for end, _ in _row_ends(text, delimiter)]
    return ends[-2] if len(ends) > 1 else 0


def _row_ends(text: bytes, delimiter: str) -> Iterator[tuple[int, int]]:
    """Where each row ends, and how many lines there are up to there."""
    csv.field_size_limit(_LONGEST * CHUNK)
    end = 0
    lengths: list[int] = []

    def lines() -> Iterator[str]:
        for line in _lines(text):
            lengths.append(len(line))
            yield line

    reader = csv.reader(lines(), delimiter=delimiter)
    for _ in reader:
        end += sum(lengths)
        lengths.clear()
        yield end, reader.line_num


def _lines(text: bytes) -> io.StringIO:
    """The lines of a text, with a character for each byte."""
    return io.StringIO(text.decode("latin-1"), newline="")


def _count_lines(text: bytes) -> int:
    """How many lines end in the text."""
    return text.count(b"\n") + text.replace(b"\r\n", b"\n").count(b"\r")


def _check_closed(text: bytes, delimiter: str) -> None:
    """Raises `DataError` for a quote that is never closed: Arrow would close it at the end."""
    if text.count(b'"') % 2 == 0:
        return
    try:
        for _ in csv.reader(_lines(text), delimiter=delimiter, strict=True):
            pass
    except csv.Error as error:
        if "end of data" in str(error):
            raise DataError("a quote is opened in this row and never closed") from None


_PIECES: dict[str, Callable[..., Pieces]] = {
    "parquet": _parquet_pieces,
    "csv": _csv_pieces,
    "json": _json_pieces,
}
