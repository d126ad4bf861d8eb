"""Comparison of a column with a scalar subquery."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec import KeyCodec
from everview.delta import weighted, weights_of
from everview.errors import TooManyRows
from everview.operators.bags import BagRows, bagged, whole
from everview.operators.base import SEVERAL, Operator
from everview.plan.nodes import Threshold
from everview.state import State

_SCALAR = b"scalar"
_NULL, _VALUE = b"\0", b"\1"  # first byte of a scalar in the state: NULL, or a value follows
_COMPARE: dict[str, Any] = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class ThresholdOperator(Operator):
    """Keep rows in the order of the compared column, and the scalar to compare with.

    Law:   sum of outputs == rows of (sum of inputs) whose column compares with (sum of scalars).
    State: value -> rows; the scalar. Rows where the column is NULL compare with nothing and are
           not kept.
    Cost:  one write for each changed row, and the rows that lie between two scalars.
    """

    kind = Threshold.kind

    def __init__(self, node: Threshold) -> None:
        self._name = node.column_
        self._comparison = node.comparison
        self._values = KeyCodec([node.input.column(node.column_)])
        self._rows = BagRows(node.columns)
        self._scalar = node.scalar.columns[0].name

    def apply(self, inputs: list[pa.Table], state: State) -> pa.Table:
        rows, scalars = inputs
        before, after = self._move(scalars, state)
        rows = rows.filter(rows[self._name].is_valid())
        changed = bagged(rows, self._key(rows), self._rows.encode(rows))
        outputs = [weighted(self._rows.schema.empty_table(), 0)]
        if before != after:
            outputs.append(self._moved(before, after, state))
        passes = self._compare(changed.keys, after)
        fresh = changed.rows.select(self._rows.schema.names).columns
        fresh = pa.Table.from_arrays(fresh, schema=self._rows.schema)
        outputs.append(weighted(fresh, changed.weights).filter(pa.array(passes)))
        changed.change(state)
        return pa.concat_tables(outputs)

    def _key(self, rows: pa.Table) -> pa.BinaryArray:
        return self._values.encode([whole(rows[self._name])])

    def _move(self, scalars: pa.Table, state: State) -> tuple[bytes, bytes]:
        """The scalar as ordered bytes before and after; b"" if it is NULL or missing."""
        (before,) = state.get_many([_SCALAR])
        if scalars.num_rows == 0:
            return before[1:], before[1:]
        scalar_counts = Counter([before] if before else [])
        valid = scalars[self._scalar].is_valid()
        valid_scalars = scalars.filter(valid)
        keys = self._values.encode([whole(valid_scalars[self._scalar])]).to_pylist()
        for key, weight in zip(keys, weights_of(valid_scalars).tolist(), strict=True):
            scalar_counts[_VALUE + key] += weight
        scalar_counts[_NULL] += int(weights_of(scalars.filter(pc.invert(valid))).sum())
        now = +scalar_counts
        if now.total() > 1:
            raise TooManyRows(SEVERAL)
        after = next(iter(now), b"")
        state.put_many([_SCALAR], [after])
        return before[1:], after[1:]

    def _moved(self, before: bytes, after: bytes, state: State) -> pa.Table:
        """The stored rows that compare otherwise with the new scalar than with the old one."""
        if self._comparison == "=":
            _, bodies, counts = state.get_bags(sorted({before, after} - {b""}))
        else:
            entries = list(state.scan_bags(*self._between(before, after)))
            bodies = [row for _, row, _ in entries]
            counts = np.array([count for _, _, count in entries], np.int64)
        rows = self._rows.decode(bodies)
        keys = self._key(rows)
        change = self._compare(keys, after).astype(np.int64) - self._compare(keys, before)
        delta = weighted(rows, counts * change)
        return delta.filter(pa.array(change != 0))

    def _between(self, before: bytes, after: bytes) -> tuple[bytes, bytes | None]:
        """The range of keys whose rows may compare otherwise."""
        if before and after:
            return min(before, after), max(before, after)
        return (b"", before or after) if self._comparison[0] == "<" else (before or after, None)

    def _compare(self, keys: pa.BinaryArray, scalar: bytes) -> np.ndarray:
        if not scalar:
            return np.zeros(len(keys), np.bool_)
        compared = _COMPARE[self._comparison](keys, pa.scalar(scalar, pa.binary()))
        mask: np.ndarray = compared.to_numpy(zero_copy_only=False)
        return mask
