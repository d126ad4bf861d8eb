"""JSON lines as batches of rows of a table.

`everview.intake.documents` says how values are written. A column that is left out is NULL.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from everview.errors import DataError
from everview.intake import documents_to_arrow
from everview.intake.documents import parse_document
from everview.load.reading import Batches, open_stream
from everview.load.reject import LINE, without_reasons
from everview.schema import TableSchema
from everview.stores.base import BATCH_ROWS

JSON_BATCH = 32 << 20


def read_json(schema: TableSchema, path: str) -> Batches:
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
