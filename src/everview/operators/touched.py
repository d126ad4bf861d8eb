"""Operators for results that are recomputed for whole groups."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from everview.codec.groups import GroupCodec
from everview.delta import WEIGHT, weighted, weights_of
from everview.operators.bags import BagRows, bagged
from everview.operators.base import Operator
from everview.operators.sides import Side
from everview.plan.nodes import Replace, Touched
from everview.state import State


class TouchedOperator(Operator):
    """Keep all rows by group, and output those of the groups that a delta touches.

    The output has for each such group one row of weight 0, with NULLs for all but its columns, and
    its rows as of now, each as often as it occurs, with weight 1. This operator has no law of its
    own, only together with the `ReplaceOperator` above.
    State: group -> rows.
    Cost:  one write for each changed row; all rows of the groups touched are read.
    """

    kind = Touched.kind

    def __init__(self, node: Touched) -> None:
        columns, self._groups = node.input.columns, node.groups
        self._rows = Side(columns, node.groups, node.groups, (True,) * len(node.groups))
        self._schema = pa.schema([pa.field(c.name, c.type) for c in columns])

    def apply(self, inputs: list[pa.Table], state: State) -> pa.Table:
        (delta,) = inputs
        if delta.num_rows == 0:
            return weighted(self._schema.empty_table(), 0)
        # changes that cancel touch a group too, so each weighs one here
        marks, _ = self._rows.read(_with_weights(delta, np.ones(delta.num_rows, np.int64)))
        changed, _ = self._rows.read(delta)
        self._rows.keep(changed, state)
        stored = self._rows.stored_matches(marks, state)
        rows = stored.rows.take(pa.array(np.repeat(np.arange(len(stored.keys)), stored.counts)))
        first = np.searchsorted(marks.which, np.arange(len(marks.unique)))
        touched = [
            marks.rows[f.name].take(pa.array(first))
            if f.name in self._groups
            else pa.nulls(len(first), f.type)
            for f in self._schema
        ]
        marked = weighted(pa.Table.from_arrays(touched, schema=self._schema), 0)
        return pa.concat_tables([marked, weighted(_as(rows, self._schema), 1)])


class ReplaceOperator(Operator):
    """Keep the computed rows of each group, and output the difference to those computed now.

    Law:   sum of outputs == the rows computed from (sum of the inputs of the groups' rows).
    State: group -> computed rows.
    Cost:  the rows of the groups touched are read, those that differ are written.
    """

    kind = Replace.kind

    def __init__(self, node: Replace) -> None:
        self._node = node
        self._keys = GroupCodec([node.column(name) for name in node.groups])
        self._rows = BagRows(node.columns)

    def apply(self, inputs: list[pa.Table], state: State) -> pa.Table:
        (delta,) = inputs
        schema = self._rows.schema
        if delta.num_rows == 0:
            return weighted(schema.empty_table(), 0)
        weights = weights_of(delta)
        keys = self._keys.encode(delta).unique()
        _, bodies, counts = state.get_bags(sorted(keys.to_pylist()))
        before = weighted(self._rows.decode(bodies), -counts.astype(np.int64))
        if self._node.always and not weights.any():
            weights = np.ones(len(weights), np.int64)
        now = _with_weights(delta, weights).filter(pa.array(weights > 0))
        now = _as(now.select([*schema.names, WEIGHT]), before.schema)
        both = pa.concat_tables([before, now])
        changed = bagged(both, self._keys.encode(both), self._rows.encode(both))
        changed.change(state)
        return weighted(_as(changed.rows.select(schema.names), schema), changed.weights)

    def total_output(self, rows: list[bytes], counts: list[int]) -> pa.Table:
        """The sum of all outputs, from rows of its state."""
        return weighted(self._rows.decode(rows), np.array(counts, np.int64))


def _with_weights(delta: pa.Table, weights: np.ndarray) -> pa.Table:
    at = delta.schema.get_field_index(WEIGHT)
    return delta.set_column(at, pa.field(WEIGHT, pa.int64(), False), pa.array(weights))


def _as(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same columns with this schema, whatever the engine says of their nullability."""
    return pa.Table.from_arrays(rows.columns, schema=schema)
