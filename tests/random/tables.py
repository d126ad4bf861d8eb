"""Random tables, and random histories of changes to them.

Values are few, so that rows meet in joins and groups; sums of them are exact, also of doubles.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from everview.schema import arrow_type

Row = dict[str, Any]
KEYS = 24  # different ones, of each column of a key
_KEY_TYPES = ("BIGINT", "INT", "STRING", "DATE")
TYPES = ("BIGINT", "INT", "STRING", "DECIMAL(12,2)", "DOUBLE", "DATE", "BOOLEAN", "TIMESTAMP")
_WORDS = ("", "a", "b", "ab", "A", "a,b", "b,,a", " a", "50%", "a_b", "it's", "é", "中文", "😀,é")
_DAYS = ("1969-12-31", "2019-12-31", "2020-01-01", "2020-01-02", "2020-02-29")
_TIMES = ("00:00:00", "00:00:00.000001", "12:30:00", "23:59:59.5")


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]

    @property
    def types(self) -> dict[str, str]:
        return dict(self.columns)

    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in self.columns])

    def sql(self) -> str:
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns)
        return f"CREATE TABLE {self.name} ({columns}, PRIMARY KEY ({', '.join(self.key)}))"


@dataclass(frozen=True)
class Change:
    """Rows put into a table, or the keys of rows deleted from it."""

    table: str
    put: tuple[Row, ...] = ()
    delete: tuple[Any, ...] = ()


def tables(chance: random.Random) -> list[Table]:
    """Two to five; every type is in one of them at least."""
    found = []
    left = chance.sample(TYPES, len(TYPES))
    number = chance.randrange(2, 6)
    for at in range(number):
        key = [(f"k{i}", chance.choice(_KEY_TYPES)) for i in range(chance.choice([1, 1, 2]))]
        own = left[at::number] + chance.choices(TYPES, k=chance.randrange(1, 4))
        others = [(f"c{i}", kind) for i, kind in enumerate(own)]
        found.append(Table(f"t{at}", (*key, *others), tuple(name for name, _ in key)))
    return found


def value(chance: random.Random, kind: str) -> Any:
    """A value that is not NULL."""
    if kind in ("BIGINT", "INT"):
        return chance.randrange(-2, 7)
    if kind == "STRING":
        return "long " * 60 if chance.random() < 0.03 else chance.choice(_WORDS)
    if kind.startswith("DECIMAL"):
        return Decimal(chance.choice([-150, 0, 1, 100, 200, 250, 325, 9999])).scaleb(-2)
    if kind == "DOUBLE":
        return chance.randrange(-4, 13) / 4
    if kind == "BOOLEAN":
        return chance.random() < 0.5
    day = chance.choice(_DAYS)
    if kind == "DATE":
        return dt.date.fromisoformat(day)
    return dt.datetime.fromisoformat(f"{day}T{chance.choice(_TIMES)}+00:00")


def history(chance: random.Random, schema: Sequence[Table], length: int) -> list[Change]:
    """New rows, updates, deletes, and now and then a table emptied and filled again."""
    changes: list[Change] = []
    for table in schema:
        if chance.random() < 0.85:  # the others begin empty
            changes.append(_put(chance, table, chance.randrange(4, 30)))
    while len(changes) < length:
        table = chance.choice(schema)
        changes += _changes(chance, table, _rows(changes, table))
    return changes[:length]


def content(changes: Sequence[Change], table: Table) -> pa.Table:
    """What is in a table after these changes."""
    return pa.Table.from_pylist(list(_rows(changes, table).values()), table.arrow())


def _rows(changes: Sequence[Change], table: Table) -> dict[Any, Row]:
    """The rows of a table by key, after these changes."""
    rows: dict[Any, Row] = {}
    for change in changes:
        if change.table == table.name:
            rows |= {tuple(row[name] for name in table.key): row for row in change.put}
            for key in change.delete:
                rows.pop(key if isinstance(key, tuple) else (key,), None)
    return rows


def _changes(chance: random.Random, table: Table, rows: dict[Any, Row]) -> Iterator[Change]:
    kind = chance.choices(["put", "update", "delete", "empty"], [4, 4, 3, 1])[0]
    keys = list(rows)
    if kind == "put" or not keys:
        yield _put(chance, table, chance.randrange(1, 6))
    elif kind == "update":
        some = chance.sample(keys, min(len(keys), chance.randrange(1, 6)))
        yield Change(table.name, put=tuple(_updated(chance, table, rows[key]) for key in some))
    elif kind == "delete":
        some = chance.sample(keys, min(len(keys), chance.randrange(1, 6)))
        yield Change(table.name, delete=tuple(map(_bare, some)))
    else:
        yield Change(table.name, delete=tuple(map(_bare, keys)))
        yield Change(table.name, put=tuple(rows.values()))


def _put(chance: random.Random, table: Table, number: int) -> Change:
    rows = {}
    for _ in range(number):
        key = {name: _key(chance, table.types[name]) for name in table.key}
        others = [column for column in table.columns if column[0] not in table.key]
        rows[tuple(key.values())] = key | {name: _cell(chance, kind) for name, kind in others}
    return Change(table.name, put=tuple(rows.values()))


def _updated(chance: random.Random, table: Table, row: Row) -> Row:
    """One or all of its columns new."""
    others = [column for column in table.columns if column[0] not in table.key]
    changed = others if chance.random() < 0.3 else [chance.choice(others)]
    return row | {name: _cell(chance, kind) for name, kind in changed}


def _cell(chance: random.Random, kind: str) -> Any:
    return None if chance.random() < 0.2 else value(chance, kind)


def _key(chance: random.Random, kind: str) -> Any:
    number = chance.randrange(KEYS)
    if kind == "STRING":
        return ("abcdefghij" * 3)[number] + "é" * (number // 10)
    if kind == "DATE":
        return dt.date(2019, 12, 28) + dt.timedelta(days=number)
    return number - 3


def _bare(key: tuple[Any, ...]) -> Any:
    return key if len(key) > 1 else key[0]
