"""Rows of an operator's input, stored by key and looked up by the keys of a delta."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.groups import GroupCodec
from everview.operators.bags import Bagged, BagRows, bagged, no_rows
from everview.schema import Column, has_floats
from everview.state import State


@dataclass(frozen=True)
class Matches:
    """Rows of one side that have the keys of a delta of the other. `keys` are places in the unique
    keys of that delta, ascending; `counts` say how often each row occurs."""

    keys: np.ndarray
    counts: np.ndarray
    rows: pa.Table

    def pairs(self, delta: Bagged) -> tuple[np.ndarray, np.ndarray]:
        """For every pair of rows with equal keys, the place in the delta and the place here."""
        numbers = np.arange(len(delta.unique))
        starts = np.searchsorted(self.keys, numbers)
        lengths = (np.searchsorted(self.keys, numbers, "right") - starts)[delta.which]
        in_delta = np.repeat(np.arange(len(delta.which)), lengths)
        within = np.arange(len(in_delta)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return in_delta, starts[delta.which][in_delta] + within


class Side:
    """One input: its rows as keys and bodies, and how it stores them.

    `keys_of_other` are the key columns of the other input. With `null_safe[i]`, NULL is a key like
    others in the i-th column. With `counted`, rows are only counted, and not stored.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        keys: tuple[str, ...],
        keys_of_other: tuple[str, ...],
        null_safe: tuple[bool, ...],
        tag: int = 0,
        counted: bool = False,
    ) -> None:
        self._tag = tag
        self._names = [column.name for column in columns]
        self._keys = keys
        self._keys_of_other = keys_of_other
        types = {column.name: column.type for column in columns}
        key_columns = [Column(str(i), types[name]) for i, name in enumerate(keys)]
        self._codec = GroupCodec(key_columns)
        safe = zip(keys, null_safe, strict=True)
        self._strict = [name for name, null_is_equal in safe if not null_is_equal]
        self._counted = counted
        # equal keys that have floats may differ in their bits, so they are stored with the row
        exact = [not has_floats(types[name]) for name in keys]
        self._from_key = {n: i for i, n in enumerate(keys) if exact[i]}
        stored = [c for c in columns if c.name not in self._from_key and not counted]
        self._bodies = BagRows(stored)

    def read(self, delta: pa.Table) -> tuple[Bagged, pa.Table]:
        """The delta by key, and its rows without a key, which match nothing."""
        if delta.num_rows == 0:
            return no_rows(delta), delta
        present = np.ones(delta.num_rows, np.bool_)
        for name in self._strict:
            if delta[name].null_count:
                present &= delta[name].is_valid().to_numpy()
        keyless = delta.filter(pa.array(~present))
        if keyless.num_rows:
            delta = delta.filter(pa.array(present))
        columns = {str(i): delta[name] for i, name in enumerate(self._keys)}
        keys = self._codec.encode(pa.table(columns) if columns else delta, self._tag)
        return bagged(delta, keys, self._bodies.encode(delta)), keyless

    def keep(self, delta: Bagged, state: State) -> None:
        if not self._counted:
            delta.change(state)

    def stored_matches(self, other: Bagged, state: State) -> Matches:
        """The stored rows of this side under the keys of a delta of the other."""
        tag = bytes([self._tag])
        other_keys = other.unique.to_pylist() if state.has_bags() else []
        keys = [tag + key[1:] for key in other_keys]
        places, bodies, counts = state.get_bags(keys)
        stored = self._bodies.decode(bodies)
        first = np.searchsorted(other.which, np.arange(len(other.unique)))
        at = pa.array(first[places])
        columns = {
            name: other.rows[self._keys_of_other[self._from_key[name]]].take(at)
            if name in self._from_key
            else stored[name]
            for name in self._names
        }
        return Matches(places, counts.astype(np.int64), pa.table(columns))

    def changed_matches(self, own: Bagged, other: Bagged) -> Matches:
        """The rows of a delta of this side under the keys of a delta of the other."""
        places = pc.index_in(untagged(own), untagged(other)).fill_null(-1).to_numpy()
        keys = places[own.which] if len(own.which) else np.zeros(0, np.int64)
        rows = np.flatnonzero(keys >= 0)
        rows = rows[np.argsort(keys[rows], kind="stable")]
        return Matches(keys[rows], own.weights[rows], own.rows.take(pa.array(rows)))


def untagged(changed: Bagged, tag: int = 0) -> pa.BinaryArray:
    """The unique keys with the same tag for both sides. In a join without keys, a key is just the
    byte of the tag, as LMDB allows no empty keys."""
    return pc.binary_replace_slice(changed.unique, 0, 1, bytes([tag]))
