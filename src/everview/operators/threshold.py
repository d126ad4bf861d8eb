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
_NULL, _VALUE = b"\0", b"\1"  # a scalar's row in the state: no value, or one after it
_COMPARE: dict[str, Any] = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class ThresholdOperator(Operator):
    """Keep rows in the order of the column compared, and the scalar that they are compared with.

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
        given = [weighted(self._rows.schema.empty_table(), 0)]
        if before != after:
            given.append(self._passed(before, after, state))
        passes = self._compare(changed.keys, after)
        fresh = changed.rows.select(self._rows.schema.names).columns
        fresh = pa.Table.from_arrays(fresh, schema=self._rows.schema)
        given.append(weighted(fresh, changed.weights).filter(pa.array(passes)))
        changed.change(state)
        return pa.concat_tables(given)

    def _key(self, rows: pa.Table) -> pa.BinaryArray:
        return self._values.encode([whole(rows[self._name])])

    def _move(self, scalars: pa.Table, state: State) -> tuple[bytes, bytes]:
        """The scalar as ordered bytes before and after; b"" if it is NULL or there is none."""
        (before,) = state.get_many([_SCALAR])
        if scalars.num_rows == 0:
            return before[1:], before[1:]
        held = Counter([before] if before else [])
        valid = scalars[self._scalar].is_valid()
        kept = scalars.filter(valid)
        keys = self._values.encode([whole(kept[self._scalar])]).to_pylist()
        for key, weight in zip(keys, weights_of(kept).tolist(), strict=True):
            held[_VALUE + key] += weight
        held[_NULL] += int(weights_of(scalars.filter(pc.invert(valid))).sum())
        now = +held
        if now.total() > 1:
            raise TooManyRows(SEVERAL)
        after = next(iter(now), b"")
        state.put_many([_SCALAR], [after])
        return before[1:], after[1:]

    def _passed(self, before: bytes, after: bytes, state: State) -> pa.Table:
        """Rows kept that compare otherwise with the new scalar than with the old one."""
        if self._comparison == "=":
            _, bodies, counts = state.get_bags(sorted({before, after} - {b""}))
        else:
            found = list(state.scan_bags(*self._between(before, after)))
            bodies = [row for _, row, _ in found]
            counts = np.array([count for _, _, count in found], np.int64)
        rows = self._rows.decode(bodies)
        keys = self._key(rows)
        change = self._compare(keys, after).astype(np.int64) - self._compare(keys, before)
        delta = weighted(rows, counts * change)
        return delta.filter(pa.array(change != 0))

    def _between(self, before: bytes, after: bytes) -> tuple[bytes, bytes | None]:
        """Where the rows lie that compare otherwise."""
        if before and after:
            return min(before, after), max(before, after)
        return (b"", before or after) if self._comparison[0] == "<" else (before or after, None)

    def _compare(self, keys: pa.BinaryArray, scalar: bytes) -> np.ndarray:
        if not scalar:
            return np.zeros(len(keys), np.bool_)
        compared = _COMPARE[self._comparison](keys, pa.scalar(scalar, pa.binary()))
        found: np.ndarray = compared.to_numpy(zero_copy_only=False)
        return found
