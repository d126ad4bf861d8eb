"""The file of rejected rows: those that a load could not put, because they don't fit the table.

Before each row stand its line number and the reason. Rows of CSV files are CSV, others JSON lines.
Users can correct the rows and load the file. It is written and synced before the other rows of the
same piece are put, so a crash loses no row.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import IO

import pyarrow as pa

from everview.closing import Closing
from everview.errors import DataError
from everview.schema import TableSchema

LINE, REASON, TEXT = "rejected_line", "rejected_reason", "rejected_text"


class Piece(ABC):
    """Some rows of a file. A load looks at single rows only if not all of them fit."""

    @abstractmethod
    def whole(self) -> pa.Table:
        """All rows as the table's. Raises `DataError`."""

    @abstractmethod
    def count(self) -> int:
        """How many rows there are."""

    @abstractmethod
    def part(self, start: int, stop: int) -> pa.Table:
        """Some rows as the table's. Raises `DataError`."""

    @abstractmethod
    def text(self, row: int) -> tuple[int, bytes]:
        """A row's line, or its number in a file without lines, and its text."""


class Rejects(Closing):
    """The file of rejected rows; the first such row creates it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.count = 0
        self._file: IO[bytes] | None = None
        self._header: bytes | None = None
        self._delimiter = b""
        if os.path.exists(self.path):
            raise DataError(
                f"{self.path} exists already; correct its rows, load them and remove it, or name "
                "another file for rejected rows"
            )
        if self.path.endswith(".gz"):
            raise DataError(f"{self.path}: rejected rows are written as plain text; leave out .gz")

    def begin(self, path: str, header: bytes = b"", delimiter: str = "") -> None:
        """The next rows come from a CSV file with this header or, without one, are JSON objects."""
        if self._header not in (None, header):
            raise DataError(
                f"{path} has other columns or another format than the files before it, and a file "
                "of rejected rows can have only one; load it with a command of its own"
            )
        self._header, self._delimiter = header, delimiter.encode()

    def add(self, rows: Sequence[tuple[int, bytes, str]]) -> None:
        """Reject rows: line, text and reason of each."""
        if self._file is None:
            self._file = open(self.path, "xb")  # noqa: SIM115
            if self._header:
                self._file.write(self._csv(LINE, self._header, REASON))
        for line, text, reason in rows:
            line_text = (
                self._csv(str(line), text, reason) if self._header else _json(line, text, reason)
            )
            self._file.write(line_text)
        self._file.flush()
        os.fsync(self._file.fileno())
        self.count += len(rows)

    def _csv(self, line: str, text: bytes, reason: str) -> bytes:
        quoted = reason if reason == REASON else '"' + reason.replace('"', '""') + '"'
        cells = [line.encode(), quoted.encode(errors="replace"), text.rstrip(b"\r\n")]
        return self._delimiter.join(cells) + b"\n"

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _json(line: int, text: bytes, reason: str) -> bytes:
    """The object with two fields before its own; text that is no object becomes a field."""
    fields = json.dumps({LINE: line, REASON: reason}, ensure_ascii=False)[:-1]
    start, text = fields.encode(errors="replace"), text.strip()
    if not text.startswith(b"{"):
        quoted = json.dumps(text.decode(errors="replace"), ensure_ascii=False)
        return start + f', "{TEXT}": {quoted}}}\n'.encode()
    rest = text[1:].lstrip()
    return start + (b"" if rest.startswith(b"}") else b", ") + rest + b"\n"


def without_reasons(schema: TableSchema, names: list[str]) -> list[str]:
    """The names without the two that a file of rejected rows adds."""
    return [name for name in names if name not in (LINE, REASON) or schema.has(name)]


def fitting_rows(piece: Piece, rejects: Rejects) -> Iterator[pa.Table]:
    """The rows of a piece that fit, in their order; the others are rejected first."""
    try:
        tables = [piece.whole()]
    except DataError:
        misfits: list[tuple[int, bytes, str]] = []
        tables = list(_in_halves(piece, 0, piece.count(), misfits))
        if misfits:
            rejects.add(misfits)
    yield from (table for table in tables if table.num_rows)


def _in_halves(
    piece: Piece, start: int, stop: int, misfits: list[tuple[int, bytes, str]]
) -> Iterator[pa.Table]:
    try:
        yield piece.part(start, stop)
    except DataError as error:
        if stop - start == 1:
            misfits.append((*piece.text(start), " ".join(str(error).split())))
            return
        middle = (start + stop) // 2
        yield from _in_halves(piece, start, middle, misfits)
        yield from _in_halves(piece, middle, stop, misfits)
