"""Random changes to a TPC-H database: epochs of inserts, updates and deletes, from a seed.

New values are drawn from those the columns have and foreign keys from the rows there are, so the
queries keep finding rows however long it goes on. All is done column by column: an epoch of
100,000 changes at scale factor 1 takes a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from everview.database import Database
from everview.tpch.tables import KEYS

Law = Literal["uniform", "zipf"]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Columns that refer to a row of another table, by its key.
REFERENCES = {
    "n_regionkey": ("region", "r_regionkey"),
    "c_nationkey": ("nation", "n_nationkey"),
    "s_nationkey": ("nation", "n_nationkey"),
    "ps_partkey": ("part", "p_partkey"),
    "ps_suppkey": ("supplier", "s_suppkey"),
    "o_custkey": ("customer", "c_custkey"),
    "l_orderkey": ("orders", "o_orderkey"),
    "l_partkey": ("partsupp", "ps_partkey"),
    "l_suppkey": ("partsupp", "ps_suppkey"),
}
# Values that the queries ask for and few rows have at small scale; new values are often these.
LITERALS = {
    "r_name": ["EUROPE", "ASIA", "AMERICA"],
    "n_name": ["FRANCE", "GERMANY", "BRAZIL", "CANADA", "SAUDI ARABIA"],
    "s_comment": ["a Customer with Complaints"],
    "p_name": ["forest green"],
    "p_brand": ["Brand#23"],
    "p_type": ["ECONOMY ANODIZED STEEL", "PROMO BURNISHED BRASS"],
    "p_size": [15],
    "p_container": ["MED BOX"],
}
ORDERS_AND_LINES = {"orders": 1.0, "lineitem": 4.0}

_SPREAD = 2_654_435_761  # a prime: neighbours in rank are no neighbours in key
_NEW_VALUE = 0.25  # how often an update gives a column a new value
_LITERAL_SHARE = 0.4  # how often that is one the queries ask for
_SMALL = 100  # rows; a smaller table gets its deleted rows back first


@dataclass(frozen=True)
class Mix:
    """The shares of inserts, updates, moves and deletes among a table's changes.

    A move gives a row of a composite key another key, by a delete and an insert; tables with a
    key of one column have updates instead. `revived` is the share of inserts that bring back a
    deleted key, as far as there are some; with 1, there are no other inserts.
    """

    insert: float = 0.25
    update: float = 0.35
    move: float = 0.15
    delete: float = 0.25
    revived: float = 0.5


@dataclass(frozen=True)
class TableChanges:
    """One table's part of an epoch: whole rows to put, keys to delete; no key is in both."""

    puts: pa.Table
    deletes: pa.Table

    def __len__(self) -> int:
        return int(self.puts.num_rows + self.deletes.num_rows)


Epoch = dict[str, TableChanges]


def apply(db: Database, epoch: Epoch) -> int:
    """Put and delete what the epoch says; returns the number of changes, which is smaller than the
    epoch where a new value is the old one."""
    changes = 0
    for name, table in epoch.items():
        changes += db.table(name).put(table.puts).rows if table.puts.num_rows else 0
        changes += db.table(name).delete(table.deletes).rows if table.deletes.num_rows else 0
    return changes


class Changes:
    """A stream of epochs over the given rows, which are those the tables hold.

    Of tables that are only referred to, the key columns will do.
    loaded: if false, the tables are empty, and inserts bring the given rows bit by bit.
    keys: "uniform", or "zipf" for few rows that are changed and referred to often: the row of
    rank n with a probability of about 1/n.
    nulls: how often a new value is NULL; keys are never.
    """

    def __init__(
        self,
        rows: Mapping[str, pa.Table],
        chance: np.random.Generator,
        *,
        keys: Law = "uniform",
        nulls: float = 0.0,
        loaded: bool = True,
    ) -> None:
        self._chance = chance
        self._law = keys
        self._nulls = nulls
        self._tables = {name: _Slots(KEYS[name], rows[name], loaded) for name in rows}

    def epoch(
        self, size: int, shares: Mapping[str, float] | None = None, mix: Mix | None = None
    ) -> Epoch:
        """About `size` changes, each of another row, spread over tables as `shares` says.

        By default every table changes, the larger ones more but not as much more as they are
        larger.
        """
        shares = shares or {name: len(t.rows) ** (2 / 3) for name, t in self._tables.items()}
        total = sum(shares.values())
        # tables that others refer to come first, so that new rows are referred to at once
        return {
            name: self._change(
                self._tables[name], self._about(size * shares[name] / total), mix or Mix()
            )
            for name in KEYS
            if name in shares
        }

    def _change(self, table: _Slots, count: int, mix: Mix) -> TableChanges:
        inserts = self._about(count * mix.insert)
        updates = self._about(count * mix.update)
        # the emptier a table, the fewer deletes, so that small ones don't stay empty
        deletes = self._about(count * mix.delete * table.live.sum() / len(table.rows))
        moves = self._about(count * mix.move / 2)
        if len(table.keys) == 1:
            updates, moves = updates + 2 * moves, 0
        updated_slots, moved_slots, deleted_slots = self._pick(table, updates, moves, deletes)
        small = len(table.rows) < _SMALL
        revived_slots = self._revive(
            table, inserts if small else self._about(inserts * mix.revived)
        )
        new_count = inserts - len(revived_slots) if mix.revived < 1 else 0
        new_sources = self._chance.integers(0, len(table.rows), new_count)
        new_slots = table.grow(
            np.concatenate([table.sources[moved_slots], new_sources]),
            {
                key: self._new_keys(table, key, len(moved_slots) + len(new_sources))
                for key in table.keys
            },
        )
        removed_slots = np.concatenate([moved_slots, deleted_slots])
        put_slots = np.concatenate([updated_slots, revived_slots, new_slots])
        table.live[removed_slots] = False
        table.live[put_slots] = True
        return TableChanges(
            self._rows(table, put_slots, len(new_sources)), table.keys_of(removed_slots)
        )

    def _about(self, count: float) -> int:
        """The number, rounded up or down at random."""
        return int(count + self._chance.random())

    def _pick(self, table: _Slots, *counts: int) -> list[Ints]:
        """Live slots, each once, in groups of the given sizes, or smaller if there are too few."""
        total = sum(counts)
        slots = np.empty(0, np.int64)
        if self._law == "zipf":
            candidates = self._draw(table, 4 * total)
            candidates = candidates[table.live[candidates]]
            first = np.unique(candidates, return_index=True)[1]
            slots = candidates[np.sort(first)][:total]
        is_free = table.live.copy()
        is_free[slots] = False
        free_slots = np.flatnonzero(is_free)
        more = min(total - len(slots), len(free_slots))
        slots = np.append(slots, self._chance.choice(free_slots, more, replace=False))
        self._chance.shuffle(slots)
        return np.split(slots, np.cumsum(counts))[: len(counts)]

    def _draw(self, table: _Slots, count: int) -> Ints:
        """Slots of live rows by the law of keys, any number of times."""
        live = np.flatnonzero(table.live)
        if not len(live):
            live = np.arange(len(table.rows))
        slots = live[self._chance.integers(0, len(live), count)]
        if self._law == "zipf":
            slot_count = len(table.rows)
            ranks = (slot_count + 1) ** self._chance.random(count)
            favourites = ranks.astype(np.int64) * _SPREAD % slot_count
            slots = np.where(table.live[favourites], favourites, slots)
        return slots

    def _revive(self, table: _Slots, count: int) -> Ints:
        dead = np.flatnonzero(~table.live)
        return self._chance.choice(dead, min(count, len(dead)), replace=False)

    def _new_keys(self, table: _Slots, key: str, count: int) -> Ints:
        if key in REFERENCES:
            return self._refer(key, self._draw(self._target(key), count))
        return np.arange(count) + int(table.keys[key].max()) + 1

    def _target(self, column: str) -> _Slots:
        return self._tables[REFERENCES[column][0]]

    def _refer(self, column: str, slots: Ints) -> Ints:
        keys: Ints = self._target(column).keys[REFERENCES[column][1]][slots]
        return keys

    def _rows(self, table: _Slots, slots: Ints, new_count: int) -> pa.Table:
        """The rows to put: those of the slots, with new values here and there.

        The last `new_count` ones are new altogether and refer to other rows than those they are
        copied from.
        """
        count = len(slots)
        source = table.sources[slots]
        target_slots: dict[str, Ints] = {}
        columns = []
        for name in table.rows.column_names:
            if name in table.keys:
                columns.append(table.key_of(name, slots))
                continue
            new = self._chance.random(count) < _NEW_VALUE
            if name in REFERENCES:
                new[count - new_count :] = True
                target = REFERENCES[name][0]
                # part and supplier of a line are together in partsupp
                if target not in target_slots:
                    target_slots[target] = self._draw(self._tables[target], count)
                old_values = table.rows[name].take(pa.array(source))
                new_values = pa.array(self._refer(name, target_slots[target])).cast(old_values.type)
                values = pc.if_else(pa.array(new), new_values, old_values)
            else:
                other_sources = self._chance.integers(0, len(table.rows), count)
                values = table.rows[name].take(pa.array(np.where(new, other_sources, source)))
                values = self._with_literals(name, values, new)
            columns.append(self._with_nulls(values, new))
        return pa.table(columns, schema=table.rows.schema)

    def _with_literals(self, name: str, values: pa.ChunkedArray, new: Flags) -> pa.ChunkedArray:
        if name not in LITERALS:
            return values
        literals = pa.array(LITERALS[name], values.type)
        replacements = literals.take(pa.array(self._chance.integers(0, len(literals), len(new))))
        is_replaced = new & (self._chance.random(len(new)) < _LITERAL_SHARE)
        return pc.if_else(pa.array(is_replaced), replacements, values)

    def _with_nulls(self, values: pa.ChunkedArray, new: Flags) -> pa.ChunkedArray:
        if not self._nulls:
            return values
        null = new & (self._chance.random(len(new)) < self._nulls)
        return pc.if_else(pa.array(null), pa.scalar(None, values.type), values)


class _Slots:
    """The keys a table has or had: slot n has keys[column][n], a row now if live[n].

    Its contents are those of row sources[n] of the rows given, but for new values.
    """

    def __init__(self, key: tuple[str, ...], rows: pa.Table, is_live: bool) -> None:
        self.rows = rows.combine_chunks()
        self.keys = {name: rows[name].to_numpy().astype(np.int64) for name in key}
        self.sources = np.arange(len(rows))
        self.live = np.full(len(rows), is_live)

    def grow(self, sources: Ints, keys: Mapping[str, Ints]) -> Ints:
        """New slots, which become live when their rows are put; known keys are left out."""
        if all(key in REFERENCES for key in keys):
            sources, keys = self._without_known(sources, keys)
        slots = len(self.live) + np.arange(len(sources))
        self.keys = {name: np.append(self.keys[name], new) for name, new in keys.items()}
        self.sources = np.append(self.sources, sources)
        self.live = np.append(self.live, np.zeros(len(sources), np.bool_))
        return slots

    def _without_known(
        self, sources: Ints, keys: Mapping[str, Ints]
    ) -> tuple[Ints, Mapping[str, Ints]]:
        high, low = (np.append(self.keys[name], new) for name, new in keys.items())
        count = len(self.live)
        first = np.unique(high << 32 | low, return_index=True)[1]
        places = np.sort(first[first >= count]) - count
        return sources[places], {name: new[places] for name, new in keys.items()}

    def key_of(self, name: str, slots: Ints) -> pa.Array:
        return pa.array(self.keys[name][slots]).cast(self.rows.schema.field(name).type)

    def keys_of(self, slots: Ints) -> pa.Table:
        schema = pa.schema([self.rows.schema.field(name) for name in self.keys])
        return pa.table([self.key_of(name, slots) for name in self.keys], schema=schema)
