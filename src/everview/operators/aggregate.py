"""Count, sum and average by group, exact under deletes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec import RowCodec
from everview.codec.groups import GroupCodec
from everview.codec.rows import Encoded, join
from everview.delta import weighted, weights_of, without_zeros
from everview.operators.base import Operator, State
from everview.plan.nodes import Aggregate, Call
from everview.schema import Column

_COUNT = pa.int64()


class AggregateOperator(Operator):
    """Keep for each group the count of its rows, and for each argument its count and sum.

    Law:   sum of outputs == aggregate(sum of inputs). A group without rows disappears; the one
           group of a global aggregate never does, once a delta (of weight 0) has made it.
    State: group -> counts and sums of 38 digits.
    Cost:  one state read and one write for each group of the delta.
    """

    def __init__(self, node: Aggregate) -> None:
        self._node = node
        given = {column.name: column for column in node.input.columns}
        self._group_columns = [given[name] for name in node.groups]
        self._keys = GroupCodec(self._group_columns)
        self._arguments = sorted({call.argument for call in node.calls if call.argument})
        self._sums = {name: _sum_type(given[name].type) for name in self._arguments}
        columns = [Column("rows", _COUNT, False)]
        for name in self._arguments:
            columns.append(Column(f"{name} count", _COUNT, False))
            if self._sums[name] is not None:
                columns.append(Column(f"{name} sum", self._sums[name], False))
        self._state = RowCodec(columns, 1)
        self._state_schema = pa.schema([pa.field(c.name, c.type, False) for c in columns])

    def apply(self, delta: pa.Table, state: State) -> pa.Table:
        changes, groups, keys = self._by_group(delta)
        stored = state.get_many(keys)
        before = self._read(stored)
        after = _add(before, changes, self._state_schema)
        existed = np.array([bool(value) for value in stored], np.int64)
        exists = np.ones(len(keys), np.int64)
        if self._node.groups:
            exists = pc.not_equal(after["rows"], 0).to_numpy().astype(np.int64)
        self._write(state, keys, after, exists)
        went = weighted(self._results(groups, before), -existed)
        came = weighted(self._results(groups, after), exists)
        return without_zeros(pa.concat_tables([went, came]))

    def _by_group(self, delta: pa.Table) -> tuple[pa.Table, pa.Table, list[bytes]]:
        """Counts and sums of the delta by group, the groups' columns, and ascending keys."""
        keys = self._keys.encode(delta)
        weights = weights_of(delta)
        columns: dict[str, Any] = {"key": keys, "place": np.arange(len(keys)), "rows": weights}
        for name in self._arguments:
            values = delta[name].combine_chunks()
            there = values.is_valid().to_numpy(zero_copy_only=False)
            columns[f"{name} count"] = np.where(there, weights, 0)
            if self._sums[name] is not None:
                columns[f"{name} sum"] = _times(values, weights, self._sums[name])
        names = [name for name in columns if name not in ("key", "place")]
        grouped = (
            pa.table(columns)
            .group_by("key")
            .aggregate([("place", "min"), *((name, "sum") for name in names)])
        )
        grouped = grouped.take(pc.array_sort_indices(grouped["key"].combine_chunks()))
        changes = pa.table({name: grouped[f"{name}_sum"] for name in names})
        groups = delta.select(list(self._node.groups)).take(grouped["place_min"])
        return changes, _normal(groups), grouped["key"].to_pylist()

    def _read(self, values: list[bytes]) -> pa.Table:
        """The state of groups; zeros for those that have none."""
        there = [value for value in values if value]
        arrays = self._state.decode(*join(there), range(len(self._state_schema)))
        found = pa.Table.from_arrays(arrays, schema=self._state_schema)
        if len(there) == len(values):
            return found
        has = np.array([bool(value) for value in values], np.bool_)
        spread = found.take(pa.array(np.cumsum(has) - 1, mask=~has))
        return pa.table({n: spread[n].fill_null(_zero(spread[n].type)) for n in found.column_names})

    def _write(self, state: State, keys: list[bytes], after: pa.Table, exists: Any) -> None:
        encoded = Encoded(self._state.encode(after.combine_chunks().to_batches()[0]))
        encoded.stamp(0)
        values = encoded.rows.to_pylist()
        state.put_many(keys, [v if e else b"" for v, e in zip(values, exists, strict=True)])

    def _results(self, groups: pa.Table, state: pa.Table) -> pa.Table:
        arrays = [groups[name].combine_chunks() for name in self._node.groups]
        outputs = self._node.columns[len(self._node.groups) :]
        for call, column in zip(self._node.calls, outputs, strict=True):
            arrays.append(_result(call, column.type, state))
        schema = pa.schema([pa.field(c.name, c.type, True) for c in self._node.columns])
        return pa.Table.from_arrays(arrays, schema=schema)


def _result(call: Call, arrow: pa.DataType, state: pa.Table) -> pa.Array:
    if call.argument is None:
        return state["rows"].combine_chunks()
    count = state[f"{call.argument} count"].combine_chunks()
    if call.function == "count":
        return count
    total = state[f"{call.argument} sum"].combine_chunks()
    if call.function == "sum":
        return pc.if_else(pc.greater(count, 0), total.cast(arrow), pa.scalar(None, arrow))
    averages = [
        _average(total_, count_, arrow)
        for total_, count_ in zip(total.to_pylist(), count.to_pylist(), strict=True)
    ]
    return pa.array(averages, arrow)


def _average(total: Any, count: int, arrow: pa.DataType) -> Any:
    """As Spark: decimals rounded half up to the result's scale, integers in double."""
    if count == 0:
        return None
    if not pa.types.is_decimal(arrow):
        return float(total) / count
    sign, digits, exponent = total.as_tuple()
    unscaled = int("".join(map(str, digits)))
    shifted = unscaled * 10 ** (arrow.scale + exponent)
    rounded = (2 * shifted + count) // (2 * count)
    return Decimal((sign, tuple(map(int, str(rounded))), -arrow.scale))


def _sum_type(arrow: pa.DataType) -> pa.DataType | None:
    """Decimals of 38 digits; for integers too, since Arrow's sums of 64 bits overflow silently."""
    if pa.types.is_decimal(arrow):
        return pa.decimal128(38, arrow.scale)
    return pa.decimal128(38, 0) if pa.types.is_integer(arrow) else None


def _times(values: pa.Array, weights: Any, arrow: pa.DataType) -> pa.Array:
    """Values times weights, 0 where NULL; few rows have another weight than 1 or -1."""
    values = values.fill_null(_zero(values.type)).cast(arrow)
    product = pc.if_else(pa.array(weights > 0), values, pc.negate(values))
    if np.all(np.abs(weights) == 1):
        return product
    exact = [v * int(abs(w)) for v, w in zip(product.to_pylist(), weights, strict=True)]
    return pa.array(exact, arrow)


def _add(left: pa.Table, right: pa.Table, schema: pa.Schema) -> pa.Table:
    arrays = []
    for field in schema:
        mine, other = left[field.name], right[field.name].cast(field.type)
        arrays.append(_sum(mine.combine_chunks(), other.combine_chunks(), field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _sum(left: pa.Array, right: pa.Array, arrow: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(arrow):
        wide = pa.decimal256(39, arrow.scale)
        return pc.add(left.cast(wide), right.cast(wide)).cast(arrow)
    return pc.add_checked(left, right)


def _normal(groups: pa.Table) -> pa.Table:
    """Equal groups look equal: -0.0 is 0.0, as in Spark."""
    for i, field in enumerate(groups.schema):
        if pa.types.is_floating(field.type):
            zero = pa.scalar(0.0, field.type)
            groups = groups.set_column(i, field, pc.add(groups[field.name], zero))
    return groups


def _zero(arrow: pa.DataType) -> Any:
    zero = Decimal(0).scaleb(-arrow.scale) if pa.types.is_decimal(arrow) else 0
    return pa.scalar(zero, arrow)
