"""The history of a run: writes that were acknowledged, reads of views, commits of epochs.

A history is one or more files of JSON lines, see `everview.check.recorder`. It must have all
writes: in each region sequences 1, 2, 3, ... without holes, as a store gives them. A history that
can't be checked raises `InvalidHistory`, which names the file and line, or the region.

Sequences order the writes of a region. Times order the rest, where they are known: what ended
before another began precedes it. A write that does not say when it began follows nothing.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from everview.errors import InvalidHistory

T = TypeVar("T")
Key = tuple[Any, ...]
Document = Mapping[str, Any]
Positions = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True)
class Write:
    """A put, or with no row a delete, that was acknowledged."""

    table: str
    key: Key
    row: Document | None
    region: int
    sequence: int
    began: float | None = None
    ended: float | None = None

    @property
    def place(self) -> tuple[str, int, int]:
        return self.table, self.region, self.sequence


@dataclass(frozen=True)
class Read:
    """A read of a view: all its rows or, with `key`, those of one record.

    A reader's reads are in the order in which they are recorded. For reads that name no reader,
    this order counts only if they name no epoch. A pin is a reader of its own, and its reads began
    when it was opened.
    """

    view: str
    rows: tuple[Document, ...]
    epoch: int | None = None
    key: Key | None = None
    reader: str = ""
    began: float | None = None
    ended: float | None = None


@dataclass(frozen=True)
class Commit:
    """An epoch became visible: of each region, the last sequence that it includes."""

    epoch: int
    positions: Positions


@dataclass(frozen=True)
class History:
    """The first epoch committed is where it starts; without commits, with empty tables."""

    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)

    @classmethod
    def load(cls, *paths: str | os.PathLike[str]) -> History:
        """The history in these files; a last line that was not finished is left out."""
        history = cls()
        for path in paths:
            for place, document in _documents(Path(path)):
                try:
                    history._add(document)
                except (KeyError, TypeError, ValueError) as error:
                    reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
                    raise InvalidHistory(f"{place}: {reason}; {_FORMAT}") from None
        return history

    def _add(self, document: dict[str, Any]) -> None:
        times = {name: _time(document, name) for name in ("began", "ended")}
        if "wrote" in document:
            row = document["row"]
            self.writes.append(
                Write(
                    table=_field(str, document, "wrote"),
                    key=key_of(document["key"]),
                    row=None if row is None else _row(row),
                    region=_field(int, document, "region"),
                    sequence=_field(int, document, "sequence"),
                    **times,
                )
            )
        elif "read" in document:
            self.reads.append(
                Read(
                    view=_field(str, document, "read"),
                    rows=tuple(map(_row, _field(list, document, "rows"))),
                    epoch=None if document.get("epoch") is None else _field(int, document, "epoch"),
                    key=None if document.get("key") is None else key_of(document["key"]),
                    reader=str(document.get("reader", "")),
                    **times,
                )
            )
        elif "committed" in document:
            positions = {
                table: {int(region): _field(int, regions, region) for region in regions}
                for table, regions in _field(dict, document, "positions").items()
            }
            self.commits.append(Commit(_field(int, document, "committed"), positions))
        else:
            raise ValueError("it is no write, read or commit")

    def validate(self) -> None:
        """Raise `InvalidHistory` if writes are missing, repeated, or contradict each other."""
        regions: defaultdict[tuple[str, int], list[Write]] = defaultdict(list)
        homes: dict[tuple[str, Key], int] = {}
        for write in self.writes:
            regions[write.table, write.region].append(write)
            home = homes.setdefault((write.table, write.key), write.region)
            if home != write.region:
                raise InvalidHistory(
                    f"table {write.table}: key {write.key} was written in regions {home} and "
                    f"{write.region}, so its versions have no order; a key has one region"
                )
        for (table, region), writes in regions.items():
            _validate_region(f"table {table}, region {region}", writes)
        for commit in self.commits:
            for table, positions in commit.positions.items():
                for region, sequence in positions.items():
                    if sequence > len(regions.get((table, region), ())):
                        raise InvalidHistory(
                            f"epoch {commit.epoch} includes table {table}, region {region} up to "
                            f"sequence {sequence}, which was not recorded; {_ALL_WRITES}"
                        )
        for view in {read.view for read in self.reads}:
            if len({read.epoch is None for read in self.reads if read.view == view}) > 1:
                raise InvalidHistory(
                    f"some reads of view {view} say their epoch and some do not; record it for "
                    "all of them or for none"
                )


_FORMAT = (
    'a line is {"wrote": table, "key", "row", "region", "sequence"}, {"read": view, "epoch", '
    '"rows"} or {"committed": epoch, "positions"}'
)
_ALL_WRITES = "record every write; those that were not acknowledged are in table.changes()"


def key_of(key: Any) -> Key:
    """A key as a tuple, also when it is a single value."""
    values = tuple(key) if isinstance(key, list | tuple) else (key,)
    if not all(value is None or isinstance(value, _CELLS) for value in values):
        raise ValueError(f"{list(values)} is no key")
    return values


def _validate_region(place: str, writes: list[Write]) -> None:
    writes.sort(key=lambda write: write.sequence)
    latest = None
    for expected, write in enumerate(writes, start=1):
        if write.sequence < expected:
            raise InvalidHistory(f"{place}: sequence {write.sequence} was recorded twice")
        if write.sequence > expected:
            raise InvalidHistory(f"{place}: sequence {expected} is missing; {_ALL_WRITES}")
        if latest is not None and write.ended is not None and write.ended < latest:
            raise InvalidHistory(
                f"{place}: sequence {write.sequence} ended before an earlier one began; the clocks "
                "of the recorders differ, or the store numbers writes in a wrong order"
            )
        if write.began is not None:
            latest = write.began if latest is None else max(latest, write.began)


_CELLS = (bool, int, float, str)


def _documents(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InvalidHistory(f"history {path} can't be read: {error.strerror}") from None
    for number, line in enumerate(lines[:-1], start=1):  # what has no newline was not finished
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidHistory(f"{path}:{number}: it is not JSON: {error}") from None
        if not isinstance(document, dict):
            raise InvalidHistory(f"{path}:{number}: it is no JSON object; {_FORMAT}")
        yield f"{path}:{number}", document


def _field(kind: type[T], document: Mapping[str, Any], name: str) -> T:
    value = document[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}, not {_KINDS[kind]}")
    return value


_KINDS: dict[type[Any], str] = {
    str: "a name",
    int: "a whole number",
    list: "a list of rows",
    dict: "an object of tables",
}


def _time(document: Mapping[str, Any], name: str) -> float | None:
    value = document.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError(f"{name} is {value!r}, not a time in seconds")
    return value


def _row(row: Any) -> Document:
    if not isinstance(row, dict):
        raise ValueError(f"{row!r} is no row, which is an object of columns")
    for name, value in row.items():
        if value is not None and not isinstance(value, _CELLS):
            raise ValueError(f"column {name} is {value!r}, which no column holds")
    return row
