"""The values of an aggregate's argument by group, in order: for DISTINCT, and for functions that
need them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from everview.codec import KeyCodec
from everview.codec.groups import GroupCodec
from everview.delta import weighted
from everview.operators.bags import bagged
from everview.schema import Column
from everview.state import State

Event = tuple[np.ndarray, np.ndarray]


class Values:
    """The non-NULL values of one argument.

    State: group -> values as ordered bytes, each with its count.
    Cost:  one write for each changed value, one look-up for each group's first or last.
    """

    def __init__(self, argument: Column, tag: int, groups: GroupCodec) -> None:
        self.name = argument.name
        self._arrow = argument.type
        self._tag = tag
        self._groups = groups
        self._codec = KeyCodec([argument])

    def change(self, delta: pa.Table, weights: np.ndarray, state: State) -> Event:
        """Add a delta. Returns the places of values that came or went, with 1 or -1 for each."""
        column = delta[self.name].combine_chunks()
        places_of_values = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        delta = delta.take(pa.array(places_of_values))
        keys = self._groups.encode(delta, self._tag)
        bodies = self._codec.encode([delta[self.name].combine_chunks()])
        places = weighted(pa.table({"place": places_of_values}), weights[places_of_values])
        changed = bagged(places, keys, bodies)
        group_keys, rows = changed.keys.to_pylist(), changed.bodies.to_pylist()
        before = np.array(state.count_rows(group_keys, rows), np.int64)
        changed.change(state)
        event = ((before + changed.weights) > 0).astype(np.int64) - (before > 0)
        moved = np.flatnonzero(event)
        return changed.rows["place"].to_numpy()[moved], event[moved]

    def of(self, groups: list[bytes], state: State) -> ValuesOfGroups:
        """The values of some groups, for functions to read."""
        tag = bytes([self._tag])
        return ValuesOfGroups(self._codec, [tag + group[1:] for group in groups], state)


@dataclass(frozen=True)
class ValuesOfGroups:
    """The values under some keys, in order."""

    codec: KeyCodec
    keys: list[bytes]
    state: State

    def end(self, last: bool) -> pa.Array:
        """The least value of each group, or the greatest; NULL where there is none."""
        rows = [self.state.first(key, last) for key in self.keys]
        return self.codec.decode([row for row in rows if row is not None]).take(_places(rows))


def _places(rows: list[bytes | None]) -> pa.Array:
    present = np.array([row is not None for row in rows], np.bool_)
    return pa.array(np.cumsum(present) - 1, mask=~present)
