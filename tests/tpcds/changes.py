"""Random changes of any set of tables: inserts, updates, deletes, and deleted rows that come back.

Inserts are copies of rows with a new key, some of their references drawn anew. An update gives some
columns the value another row has there, or NULL. Half of what is put follows a wish of the queries
(tests/tpcds/wishes.py): it gets the values they ask for, and refers to rows that have them.
All of it follows from the seed. Each key changes once in a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from sqlglot import exp

import everview as ev
from tests.tpcds.wishes import Part, Wishes

Row = dict[str, Any]
Key = tuple[Any, ...]

INSERT, UPDATE, DELETE, REVIVE = 0.3, 0.4, 0.15, 0.15
WISHED = 0.5  # of the rows that are put
REDRAWN = 0.3  # of the references of a new row
UPDATED = 0.15  # of the columns in an update
NULL = 0.1  # of new values, where a column may have it
FOR_FACTS = 0.6  # of all changes
_TRIES = 20


@dataclass(frozen=True)
class Referring:
    """What refers to what: the table that a column of a table has keys of, and the tables whose
    key is of rows in another table, with the columns they take from there."""

    referred: Callable[[str, str], str | None]
    of_rows: Mapping[str, tuple[str, Mapping[str, str]]]


@dataclass(frozen=True)
class TableChanges:
    """Whole rows to put and keys to delete; no key is in both."""

    puts: pa.Table
    deletes: pa.Table

    def __len__(self) -> int:
        return int(self.puts.num_rows + self.deletes.num_rows)


Batch = dict[str, TableChanges]


def apply(db: ev.Database, batch: Batch) -> int:
    """Put and delete what the batch says; returns the number of changes."""
    for name, table in batch.items():
        if table.puts.num_rows:
            db.table(name).put(table.puts)
        if table.deletes.num_rows:
            db.table(name).delete(table.deletes)
    return sum(map(len, batch.values()))


class Changes:
    """A stream of batches over tables that have the given rows."""

    def __init__(
        self,
        rows: Mapping[str, pa.Table],
        keys: Mapping[str, tuple[str, ...]],
        referring: Referring,
        queries: Iterable[exp.Query] = (),
        seed: int = 1,
    ) -> None:
        self._chance = np.random.default_rng(seed)
        self._keys, self._referring = keys, referring
        self._tables = {name: _Rows(keys[name], table) for name, table in rows.items()}
        schemas = {name: table.schema for name, table in rows.items()}
        self._wishes = Wishes(queries, schemas, keys, self._chance)
        self._passing: dict[tuple[str, ...], list[int]] = {}

    def batch(self, size: int) -> Batch:
        """About `size` changes, most of them of tables with a key of several columns: the facts."""
        for table in self._tables.values():
            table.touched = {}
        shares = self._shares()
        for name in self._chance.choice(list(shares), size, p=list(shares.values())):
            self._change(str(name))
        return {name: table.changes() for name, table in self._tables.items() if table.touched}

    def _shares(self) -> dict[str, float]:
        facts = [name for name in self._tables if len(self._keys[name]) > 1]
        shares = {name: len(table) ** (1 / 3) for name, table in self._tables.items()}
        others = sum(share for name, share in shares.items() if name not in facts)
        for name in facts:
            share = others * FOR_FACTS / (1 - FOR_FACTS)
            shares[name] = share / len(facts) if others else 1.0
        whole = sum(shares.values())
        return {name: share / whole for name, share in shares.items()}

    def _change(self, name: str) -> None:
        table = self._tables[name]
        kind = self._chance.choice(4, p=[INSERT, UPDATE, DELETE, REVIVE])
        if kind == 2 and (slot := self._pick(table)) is not None:
            table.set(slot, None)
        elif kind == 3 and (gone := sorted(table.gone - table.touched.keys())):
            slot = gone[self._chance.integers(len(gone))]
            self._put(name, slot, table.last(slot))
        elif kind == 1 and (slot := self._pick(table)) is not None:
            self._put(name, slot, self._updated(name, table.row(slot)))
        else:
            self._insert(name)

    def _pick(self, table: _Rows) -> int | None:
        """A live row that has not changed in this batch, if a few tries find one."""
        for _ in range(_TRIES):
            slot = int(self._chance.integers(len(table)))
            if slot not in table.gone and slot not in table.touched:
                return slot
        return None

    def _any(self, table: _Rows) -> int:
        """A row, mostly one that is there."""
        slots = self._chance.integers(0, len(table), _TRIES)
        return int(next((slot for slot in slots if slot not in table.gone), slots[0]))

    def _insert(self, name: str) -> None:
        table = self._tables[name]
        row = dict(table.last(self._any(table)))
        for column in table.columns:
            if column not in self._keys[name] and self._chance.random() < REDRAWN:
                row[column] = self._reference(name, column, row[column])
        for _ in range(_TRIES):
            self._new_key(name, row)
            wished = self._wished(name, row)
            slot = table.slot(wished)
            if slot is None or (slot in table.gone and slot not in table.touched):
                table.set(table.grow(wished) if slot is None else slot, wished)
                return

    def _put(self, name: str, slot: int, row: Row) -> None:
        """The row, its key as it was."""
        key = {column: row[column] for column in self._keys[name]}
        self._tables[name].set(slot, {**self._wished(name, row), **key})

    def _new_key(self, name: str, row: Row) -> None:
        if name in self._referring.of_rows:
            parent, columns = self._referring.of_rows[name]
            if parent in self._tables:
                of = self._tables[parent]
                source = of.last(self._any(of))
                row.update({column: source[other] for column, other in columns.items()})
                return
        for column in self._keys[name]:
            if self._referring.referred(name, column):
                row[column] = self._reference(name, column, row[column])
            else:
                row[column] = self._tables[name].next_number(column)

    def _updated(self, name: str, row: Row) -> Row:
        table = self._tables[name]
        columns = [column for column in table.columns if column not in self._keys[name]]
        chosen = self._chance.random(len(columns)) < UPDATED
        chosen[self._chance.integers(len(columns))] = True
        new = {}
        for column in np.array(columns)[chosen]:
            other = table.last(self._any(table))[column]
            value = self._reference(name, column, other)
            null = table.schema.field(column).nullable and self._chance.random() < NULL
            new[str(column)] = None if null else value
        return {**row, **new}

    def _reference(self, name: str, column: str, value: Any) -> Any:
        """A key of the table that the column refers to, the value itself if to none."""
        parent = self._referring.referred(name, column)
        if parent not in self._tables:
            return value
        table = self._tables[parent]
        return table.key(self._any(table))[0]

    def _wished(self, name: str, row: Row) -> Row:
        """The row, half of the time with what a wish wants of it."""
        if self._chance.random() >= WISHED:
            return row
        wish = self._wishes.draw(name)
        if wish is None:
            return row
        aliases = [alias for alias, part in wish.parts.items() if part.table == name]
        alias = aliases[self._chance.integers(len(aliases))]
        new = {**row, **wish.parts[alias].values}
        for (other, column), target in wish.links.items():
            if other == alias:
                new[column] = self._passing_key(wish.parts[target])
        return new

    def _passing_key(self, part: Part) -> Any:
        """The key of a row that has what the part wants; if there was none, one is changed."""
        table = self._tables[part.table]
        known = (part.table, *part.conditions)
        if known not in self._passing:
            self._passing[known] = table.passing(part.conditions)
        passing = [slot for slot in self._passing[known] if slot not in table.gone]
        if passing:
            return table.key(passing[self._chance.integers(len(passing))])[0]
        slot = self._any(table)
        if slot not in table.touched:
            table.set(slot, {**table.last(slot), **part.values})
            self._passing[known].append(slot)
        return table.key(slot)[0]


class _Rows:
    """The rows a table has or had, by number of slot; `touched` are those of this batch."""

    def __init__(self, key: tuple[str, ...], rows: pa.Table) -> None:
        self._key, self._rows = key, rows.combine_chunks()
        self.schema: pa.Schema = rows.schema
        self.columns: list[str] = rows.column_names
        self._keys: list[Key] = list(zip(*(rows[c].to_pylist() for c in key), strict=True))
        self._slots = {key: slot for slot, key in enumerate(self._keys)}
        self._changed: dict[int, Row] = {}
        self.gone: set[int] = set()
        self.touched: dict[int, Row | None] = {}
        self._largest = {c: max(rows[c].to_pylist(), default=0) for c in key}

    def __len__(self) -> int:
        return len(self._keys)

    def key(self, slot: int) -> Key:
        return self._keys[slot]

    def slot(self, row: Row) -> int | None:
        return self._slots.get(tuple(row[column] for column in self._key))

    def row(self, slot: int) -> Row:
        assert slot not in self.gone
        return self.last(slot)

    def last(self, slot: int) -> Row:
        """The row, or what it was when it was deleted."""
        if slot in self._changed:
            return self._changed[slot]
        found: Row = self._rows.slice(slot, 1).to_pylist()[0]
        return found

    def grow(self, row: Row) -> int:
        key = tuple(row[column] for column in self._key)
        self._slots[key] = len(self._keys)
        self._keys.append(key)
        return len(self._keys) - 1

    def set(self, slot: int, row: Row | None) -> None:
        """A new row, or None for none."""
        self.touched[slot] = row
        if row is None:
            self.gone.add(slot)
        else:
            self.gone.discard(slot)
            self._changed[slot] = row

    def next_number(self, column: str) -> int:
        self._largest[column] += 1
        return int(self._largest[column])

    def passing(self, conditions: list[str]) -> list[int]:
        """Slots of those of the first rows that meet the conditions, in DuckDB's SQL."""
        numbered = self._rows.append_column("slot", pa.array(range(len(self._rows))))
        with duckdb.connect() as duck:
            duck.register("rows", numbered)
            asked = " AND ".join(f"({condition})" for condition in conditions) or "true"
            found = duck.sql(f"SELECT slot FROM rows WHERE {asked} ORDER BY slot").fetchall()
        return [slot for (slot,) in found]

    def changes(self) -> TableChanges:
        puts = [row for row in self.touched.values() if row is not None]
        gone = [self._keys[slot] for slot, row in self.touched.items() if row is None]
        keys = [dict(zip(self._key, key, strict=True)) for key in gone]
        schema = pa.schema([self.schema.field(column) for column in self._key])
        return TableChanges(
            pa.Table.from_pylist(puts, self.schema), pa.Table.from_pylist(keys, schema)
        )
