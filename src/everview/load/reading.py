"""What the readers of all formats share: the bytes of a file, the columns it must have, and the
batches of rows they give."""

from __future__ import annotations

import csv
import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as pa

from everview.errors import DataError, NullNotAllowed, UnknownColumn
from everview.intake.rows import match_columns
from everview.schema import TableSchema

# A batch of rows that fit the table, and the part of the file read so far.
Batches = Iterator[tuple[pa.Table, float | None]]


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
