"""Random changes of any set of tables: inserts, updates, deletes, and deleted rows that come back.

Inserts are copies of rows with a new key, some of their references drawn anew. An update gives some
columns the value another row has there, or NULL. Half of what is put follows a wish of the queries
(tests/tpcds/wishes.py): it gets the values they ask for, and refers to rows that have them.
All of it follows from the seed. Each key changes once in a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from sqlglot import exp

from everview.tpch.changes import Epoch, TableChanges
from tests.tpcds.wishes import Part, Place, Wish, Wishes

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
    """What refers to what: the table that a column of a table has keys of; the tables whose key is
    of rows in another table, with the columns they take from there; and calendars, whose rows each
    are there at most once: they are deleted, come back, and are exchanged with each other."""

    referred: Callable[[str, str], str | None]
    of_rows: Mapping[str, tuple[str, Mapping[str, str]]]
    calendars: Collection[str] = ()


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
        self._duck = duckdb.connect()
        for name, table in rows.items():
            slots = pa.array(np.arange(len(table)))
            self._duck.register(name, table.append_column("slot", slots))
        schemas = {name: table.schema for name, table in rows.items()}
        self._wishes = Wishes(queries, schemas, self._chance)
        self._passing: dict[tuple[str, ...], list[int]] = {}

    def batch(self, size: int) -> Epoch:
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
        elif name in self._referring.calendars:
            self._exchange(table)
        elif kind == 1 and (slot := self._pick(table)) is not None:
            self._put(name, slot, self._updated(name, table.row(slot)))
        elif len(self._keys[name]) == 1 or not self._meeting(name):
            self._insert(name)

    def _exchange(self, table: _Rows) -> None:
        """Two rows get each other's contents."""
        one, other = self._pick(table), self._pick(table)
        if one is not None and other is not None and one != other:
            rows = table.row(one), table.row(other)
            table.set(one, {**rows[1], **table.key_of(rows[0])})
            table.set(other, {**rows[0], **table.key_of(rows[1])})

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
            slot = table.slot(row)
            if slot is None or slot in table.gone:
                self._put_new(name, self._wished(name, row))
                return

    def _put(self, name: str, slot: int, row: Row) -> None:
        """The row, its key as it was."""
        table = self._tables[name]
        table.set(slot, {**self._wished(name, row), **table.key_of(row)})

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
        if self._chance.random() >= WISHED or name in self._referring.calendars:
            return row
        wish = self._wishes.draw(name)
        if wish is None:
            return row
        aliases = [alias for alias, part in wish.parts.items() if part.table == name]
        alias = aliases[self._chance.integers(len(aliases))]
        return {**row, **wish.parts[alias].values}

    def _meeting(self, name: str) -> bool:
        """Rows in all tables of a SELECT that reads the table: they pass its filters, and meet.

        Of tables with a key of one column these are rows that pass already, if there are some.
        """
        wish = self._wishes.draw(name)
        if wish is None:
            return False
        slots = {
            alias: self._passing_slot(part)
            for alias, part in wish.parts.items()
            if len(self._keys[part.table]) == 1
        }
        values: dict[Place, Any] = {}
        for alias, slot in slots.items():
            table = self._tables[wish.parts[alias].table]
            for column, value in table.key_of(table.last(slot)).items():
                values |= dict.fromkeys(wish.equal_to((alias, column)), value)
        for alias, part in wish.parts.items():
            if part.table not in self._referring.calendars:
                self._meet(wish, alias, slots.get(alias), values)
        return True

    def _meet(self, wish: Wish, alias: str, slot: int | None, values: dict[Place, Any]) -> None:
        """Put the row of one alias, new if it has no slot, with the values that others have."""
        part = wish.parts[alias]
        table = self._tables[part.table]
        row = dict(table.last(self._any(table) if slot is None else slot))
        if slot is None:
            self._new_key(part.table, row)
        key = table.key_of(row) if slot is not None else {}
        row.update(part.values)
        for column in table.columns:
            places = wish.equal_to((alias, column))
            if (alias, column) in values:
                row[column] = values[alias, column]
            elif len(places) > 1 and row[column] is not None:
                values |= dict.fromkeys(places, row[column])
        self._put_new(part.table, {**row, **key})

    def _put_new(self, name: str, row: Row) -> bool:
        """Put a row of any key, unless it changed in this batch already."""
        table = self._tables[name]
        slot = table.slot(row)
        if slot is not None and (slot in table.touched or table.last(slot) == row):
            return False
        table.set(table.grow(row) if slot is None else slot, row)
        return True

    def _passing_slot(self, part: Part) -> int:
        """A row that had what the part wants, or else any."""
        table = self._tables[part.table]
        known = (part.table, *part.conditions)
        if known not in self._passing:
            self._passing[known] = self._first_passing(part)
        passing = [slot for slot in self._passing[known] if slot not in table.gone]
        return passing[self._chance.integers(len(passing))] if passing else self._any(table)

    def _first_passing(self, part: Part) -> list[int]:
        """Slots of the rows that met the part's conditions at first."""
        asked = " AND ".join(f"({condition})" for condition in part.conditions) or "true"
        found = self._duck.execute(f"SELECT slot FROM {part.table} WHERE {asked} ORDER BY slot")
        return [slot for (slot,) in found.fetchall()]


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

    def key_of(self, row: Row) -> Row:
        return {column: row[column] for column in self._key}

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

    def changes(self) -> TableChanges:
        puts = [row for row in self.touched.values() if row is not None]
        gone = [self._keys[slot] for slot, row in self.touched.items() if row is None]
        keys = [dict(zip(self._key, key, strict=True)) for key in gone]
        schema = pa.schema([self.schema.field(column) for column in self._key])
        return TableChanges(
            pa.Table.from_pylist(puts, self.schema), pa.Table.from_pylist(keys, schema)
        )
