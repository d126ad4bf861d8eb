"""Recording a history, one line for each thing that was seen.

A line is written when its method returns: a recorder that is killed loses nothing it recorded, and
at most leaves a line unfinished, which the next recorder of the file cuts off and readers ignore.
A file has one recorder at a time, which threads may share; `everview check` takes several files.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from typing import Any

from everview.check.history import Document, Positions, key_of
from everview.closing import Closing
from everview.intake.documents import format_document


class Recorder(Closing):
    """Appends to the history in a file.

    `now()` is the clock of all times. Give a write or read the time it `began` to have it ordered
    after what others ended before; without it, sequences and epochs alone give the order.
    """

    now = staticmethod(time.monotonic)  # one clock for all processes of a machine

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        _cut_off_unfinished(self._file)

    def wrote(
        self,
        table: str,
        key: Any,
        row: Document | None,
        region: int,
        sequence: int,
        began: float | None = None,
    ) -> None:
        """A put (or, with no row, a delete) was acknowledged with its place in the log."""
        self._append(
            {"wrote": table, "key": key_of(key), "row": row, "region": region}
            | {"sequence": sequence, "began": began, "ended": self.now()}
        )

    def read(
        self,
        view: str,
        epoch: int | None,
        rows: Iterable[Document],
        key: Any = None,
        reader: str | None = None,
        began: float | None = None,
    ) -> None:
        """A reader saw these rows: all of the view or, with `key`, of that record.

        Without a name the reader is this thread of this process.
        """
        self._append(
            {"read": view, "epoch": epoch, "rows": list(rows)}
            | ({} if key is None else {"key": key_of(key)})
            | {"reader": reader or f"{os.getpid()}.{threading.get_ident()}"}
            | {"began": began, "ended": self.now()}
        )

    def committed(self, epoch: int, positions: Positions) -> None:
        """An epoch was committed; of each table and region, the last sequence it includes."""
        self._append({"committed": epoch, "positions": positions})

    def _append(self, document: Document) -> None:
        line = format_document(document).encode() + b"\n"
        while line:
            line = line[os.write(self._file, line) :]

    def close(self) -> None:
        os.close(self._file)


def _cut_off_unfinished(file: int) -> None:
    end = os.lseek(file, 0, os.SEEK_END)
    keep = end
    while keep:
        start = max(0, keep - 65_536)
        newline = os.pread(file, keep - start, start).rfind(b"\n")
        if newline >= 0:
            keep = start + newline + 1
            break
        keep = start
    if keep < end:
        os.ftruncate(file, keep)
