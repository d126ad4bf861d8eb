"""Deltas in the form in which operators store them: rows as bytes under keys, added up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import GOLDEN, ascending, one_batch
from everview.codec.rows import BareCodec, join
from everview.delta import weights_of
from everview.schema import Column
from everview.state import State


class BagRows:
    """Rows of some columns, encoded for a bag."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._codec = BareCodec(columns)
        self.schema = pa.schema([pa.field(c.name, c.type) for c in columns])

    def encode(self, rows: pa.Table) -> pa.BinaryArray:
        chosen = rows.select([column.name for column in self._columns])
        if chosen.num_columns == 0 or chosen.num_rows == 0:
            return pa.array([b""] * rows.num_rows, pa.binary())
        return self._codec.encode(one_batch(chosen))

    def decode(self, rows: list[bytes]) -> pa.Table:
        if not self._columns:
            return pa.table({"": pa.nulls(len(rows))}).select([])
        arrays = self._codec.decode(*join(rows), range(len(self._columns)))
        return pa.Table.from_arrays(arrays, schema=self.schema)


@dataclass(frozen=True)
class Bagged:
    """A delta with equal rows added up, by ascending key.

    `rows`, `keys`, `bodies` and `weights` go together; `unique` has each key once, and `which` has
    for every row the place of its key there.
    """

    rows: pa.Table
    keys: pa.BinaryArray
    bodies: pa.BinaryArray
    weights: np.ndarray
    unique: pa.BinaryArray
    which: np.ndarray

    def change(self, state: State) -> None:
        """Add the delta to its bags."""
        if len(self.weights):
            state.change_bags(self.keys.to_pylist(), self.bodies.to_pylist(), self.weights.tolist())

    def totals(self) -> np.ndarray:
        """The sum of weights under each unique key."""
        return np.bincount(self.which, self.weights, len(self.unique)).astype(np.int64)

    def under(self, keys: np.ndarray) -> Bagged:
        """The part of the delta under some of the unique keys; `keys` is a mask."""
        mask = keys[self.which]
        rows = pa.array(mask)
        return Bagged(
            rows=self.rows.filter(rows),
            keys=self.keys.filter(rows),
            bodies=self.bodies.filter(rows),
            weights=self.weights[mask],
            unique=self.unique.filter(pa.array(keys)),
            which=(np.cumsum(keys) - 1)[self.which][mask],
        )


def bagged(delta: pa.Table, keys: pa.BinaryArray, bodies: pa.BinaryArray) -> Bagged:
    """Add up equal rows, leave out those whose weights cancel, sort by key."""
    places = np.arange(len(keys))
    rows = pa.table({"key": keys, "body": bodies, "weight": weights_of(delta), "place": places})
    if not _all_differ(keys, bodies):
        grouped = rows.group_by(["key", "body"], use_threads=False)
        added_up = grouped.aggregate([("weight", "sum"), ("place", "min")])
        rows = added_up.rename_columns(rows.column_names)
    rows = rows.filter(pc.not_equal(rows["weight"], 0))
    rows = rows.take(pa.array(ascending(whole(rows["key"]))))
    keys = whole(rows["key"])
    begins = begins_of(keys)
    return Bagged(
        rows=delta.take(rows["place"]),
        keys=keys,
        bodies=whole(rows["body"]),
        weights=rows["weight"].to_numpy(),
        unique=keys.filter(pa.array(begins)),
        which=np.cumsum(begins) - 1,
    )


def _all_differ(keys: pa.BinaryArray, bodies: pa.BinaryArray) -> bool:
    """Whether no two rows are equal, which is mostly so; False if hashes can't tell."""
    hashes = [np.fromiter(map(hash, part.to_pylist()), np.int64) for part in (keys, bodies)]
    of_keys, of_bodies = (part.view(np.uint64) for part in hashes)
    mixed = np.sort(of_keys * GOLDEN + of_bodies)
    return not bool(np.any(mixed[1:] == mixed[:-1]))


def no_rows(delta: pa.Table) -> Bagged:
    """An empty delta."""
    nothing, none = pa.array([], pa.binary()), np.zeros(0, np.int64)
    return Bagged(delta, nothing, nothing, none, nothing, none)


def begins_of(keys: pa.BinaryArray) -> np.ndarray:
    """True where a sorted key differs from the one before."""
    if len(keys) == 0:
        return np.zeros(0, np.bool_)
    differ = pc.not_equal(keys[:-1], keys[1:]).to_numpy(zero_copy_only=False)
    return np.append(True, differ)


def numbered(keys: pa.BinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """A number for each distinct key: that of each key, and the place where it comes first."""
    encoded = keys.dictionary_encode()
    numbers = encoded.indices.to_numpy().astype(np.int64)
    first = np.zeros(len(encoded.dictionary), np.int64)
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]
    return numbers, first


def whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()
