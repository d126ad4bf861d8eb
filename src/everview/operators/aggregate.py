"""Aggregates by group: count, sum, average, variance, least, greatest, and of distinct values."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import one_batch
from everview.codec.groups import GroupCodec
from everview.codec.nested import normal
from everview.codec.rows import BareCodec, join
from everview.delta import WEIGHT, weighted, weights_of, without_zeros
from everview.errors import Damaged, Overflow
from everview.operators import moments, sums
from everview.operators.bags import whole
from everview.operators.base import Operator, State
from everview.operators.extremes import Extreme
from everview.operators.values import Values
from everview.plan.nodes import Aggregate, Call
from everview.schema import Column, has_floats

_Given = tuple[str, str | None, bool]


class AggregateOperator(Operator):
    """Keep for each group the count of its rows, and for each argument its count and sum.

    Law:   sum of outputs == aggregate(sum of inputs). A group without rows disappears; the one
           group of a global aggregate never does, once a delta (of weight 0) has made it.
    State: group -> counts and exact sums; for min, max and DISTINCT also the argument's values, or
           if no row ever goes, of min and max the value itself.
    Cost:  one state read and one write for each group of the delta.
    """

    def __init__(self, node: Aggregate) -> None:
        self._node = node
        self._keys = GroupCodec([node.input.column(name) for name in node.groups])
        free = _free_prefix(node.groups)
        self._rows = f"{free}rows"
        grown = [call for call in node.calls if node.growing and call.function in ("min", "max")]
        self._extremes = {
            call: Extreme(node.input.column(call.argument or ""), call.function == "max", name)
            for call in sorted(set(grown), key=str)
            for name in [f"{free}{call}"]
        }
        others = [call for call in node.calls if call.argument and call not in self._extremes]
        wanted = dict.fromkeys(map(_arguments, others))
        self._arguments = {
            given: _Argument(node, given, f"{free}{i}_")
            for i, given in enumerate(sorted(wanted, key=str))
        }
        valued = sorted({call.argument or "" for call in others if _valued(call)})
        self._values = {
            name: Values(node.input.column(name), tag, self._keys)
            for tag, name in enumerate(valued, 1)
        }
        columns = [c for argument in self._arguments.values() for c in argument.columns]
        columns += [extreme.column for extreme in self._extremes.values()]
        self.columns = (Column(self._rows, pa.int64(), False), *columns)
        self._texts = {c.name: a.text for a in self._arguments.values() for c in a.columns}
        self._adding = {one.column.name: one.added for one in self._extremes.values()}
        self._codec = BareCodec(self.columns)
        self._schema = pa.schema([pa.field(c.name, c.type, False) for c in self.columns])
        self._output = pa.schema([pa.field(c.name, c.type) for c in node.columns])

    @property
    def partial_columns(self) -> tuple[Column, ...] | None:
        """What `partial` gives, or None if this aggregate has none."""
        if self._values or pa.binary() in self._schema.types:
            return None
        return tuple(map(self._node.input.column, self._node.groups)) + self.columns

    def partial(self, delta: pa.Table) -> pa.Table:
        """A delta added up by group, which `apply` takes in its place."""
        groups = _Groups(delta, self._keys, self._node.groups)
        changes = self._changes(delta, groups, {})
        added = [
            self._fitting(f.name, f.type, groups, partial(pc.cast, target_type=f.type), change)
            for f, change in zip(self._schema, changes, strict=True)
        ]
        return pa.table([*groups.rows.columns, *added], [*self._node.groups, *self._schema.names])

    def apply(self, inputs: list[pa.Table], state: State) -> pa.Table:
        (delta,) = inputs
        if delta.num_rows == 0:
            return weighted(self._output.empty_table(), 0)
        groups = _Groups(delta, self._keys, self._node.groups)
        keys = groups.keys.to_pylist()
        least_before = self._least(keys, state)
        if WEIGHT in delta.column_names:
            weights = weights_of(delta)
            if self._node.growing and np.any(weights < 0):
                raise Damaged("an aggregate has lost a row of tables of which none ever goes")
            events = {n: v.change(delta, weights, state) for n, v in self._values.items()}
            changes = self._changes(delta, groups, events)
        else:
            names = self._schema.names
            changes = [sums.add_up(whole(delta[n]), groups.ids, len(groups)) for n in names]
        stored = state.get_many(keys)
        before = self._read(stored)
        after = self._added(groups, before, changes)
        existed = np.array([bool(value) for value in stored], np.int64)
        exists = np.ones(len(keys), np.int64)
        rows = after[self._rows].to_numpy()
        if np.any(rows < 0):
            raise Damaged("an aggregate has lost more rows of a group than it had")
        if self._node.groups:
            exists = (rows > 0).astype(np.int64)
        values = self._codec.encode(one_batch(after)).to_pylist()
        state.put_many(keys, [v if e else b"" for v, e in zip(values, exists, strict=True)])
        least_after = self._least(keys, state)
        went = weighted(self._results(groups, before, least_before), -existed)
        came = weighted(self._results(groups, after, least_after), exists)
        return without_zeros(pa.concat_tables([went, came]))

    def _changes(
        self, delta: pa.Table, groups: _Groups, events: dict[str, tuple[np.ndarray, np.ndarray]]
    ) -> list[pa.Array]:
        """Counts and sums of a delta by group."""
        weights = weights_of(delta)
        everywhere = (np.arange(len(weights)), weights)
        arrays = [sums.add_up(pa.array(weights), groups.ids, len(groups))]
        for argument in self._arguments.values():
            places, changed = events[argument.names[0]] if argument.distinct else everywhere
            values = [whole(delta[name]) for name in argument.names]
            if argument.distinct:
                values = [one.take(pa.array(places)) for one in values]
            arrays += argument.change(values, changed, groups.ids[places], len(groups))
        extremes = self._extremes.values()
        return arrays + [one.change(delta, groups.ids, len(groups)) for one in extremes]

    def _added(self, groups: _Groups, before: pa.Table, changes: list[pa.Array]) -> pa.Table:
        arrays = []
        for f, change in zip(self._schema, changes, strict=True):
            add = self._adding.get(f.name, sums.added)
            arrays.append(self._fitting(f.name, f.type, groups, add, whole(before[f.name]), change))
        return pa.table(arrays, schema=self._schema)

    def _read(self, values: list[bytes]) -> pa.Table:
        """The state of groups; zeros for those that have none."""
        there = [value for value in values if value]
        arrays = self._codec.decode(*join(there), range(len(self._schema)))
        found = pa.Table.from_arrays(arrays, schema=self._schema)
        if len(there) == len(values):
            return found
        has = np.array([bool(value) for value in values], np.bool_)
        spread = found.take(pa.array(np.cumsum(has) - 1, mask=~has))
        filled = [spread[f.name].fill_null(sums.zero(f.type)) for f in self._schema]
        return pa.table(filled, schema=self._schema)

    def _least(self, groups: list[bytes], state: State) -> dict[Call, pa.Array]:
        """The least or greatest of values that are all kept."""
        return {
            call: self._values[call.argument].extremes(groups, call.function == "max", state)
            for call in self._node.calls
            if call.argument and call.function in ("min", "max") and call not in self._extremes
        }

    def _results(self, groups: _Groups, state: pa.Table, least: dict[Call, pa.Array]) -> pa.Table:
        arrays = [groups.rows[name] for name in self._node.groups]
        outputs = self._node.columns[len(self._node.groups) :]
        for call, column in zip(self._node.calls, outputs, strict=True):
            if call in least:
                arrays.append(least[call])
            elif call in self._extremes:
                arrays.append(self._extremes[call].values(state))
            else:
                arrays.append(self._result(call, column.type, groups, state))
        return pa.table(arrays, schema=self._output)

    def _result(self, call: Call, arrow: pa.DataType, groups: _Groups, state: pa.Table) -> pa.Array:
        if call.argument is None:
            return whole(state[self._rows])
        argument = self._arguments[_arguments(call)]
        count = argument.count(state)
        if call.function == "count":
            return count
        if call.function in moments.FUNCTIONS:
            return moments.result(call.function, count.to_numpy(), *argument.moments(state))
        made = sums.total if call.function.endswith("sum") else sums.average
        compute = partial(made, arrow=arrow)
        total = argument.total(state)
        if call.function.startswith("try_"):
            return sums.or_null(compute, total, count.to_numpy(), arrow)
        return self._fitting(str(call), arrow, groups, compute, total, count.to_numpy())

    def _fitting(
        self,
        what: str,
        arrow: pa.DataType,
        groups: _Groups,
        compute: Callable[..., pa.Array],
        *arrays: Sequence[Any],
    ) -> pa.Array:
        """What is computed from arrays by group. Raises `Overflow` that names the first group
        for which it doesn't fit."""
        try:
            return compute(*arrays)
        except pa.ArrowInvalid as error:

            def fails(place: int) -> bool:
                try:
                    compute(*(array[: place + 1] for array in arrays))
                except pa.ArrowInvalid:
                    return True
                return False

            first = bisect_left(range(len(groups)), True, key=fails)
            group = ", ".join(f"{name} = {groups.rows[name][first]}" for name in self._node.groups)
            where = f" of the group {group}" if group else ""
            raise Overflow(
                f"{self._texts.get(what, what)}{where} does not fit {arrow}; cast its argument to "
                "a wider type, or to DOUBLE"
            ) from error


class _Argument:
    """What is kept of an argument, or of a pair: how many values it has, and if that is asked for
    their sum, or the sums and products that variances are made of."""

    def __init__(self, node: Aggregate, given: _Given, prefix: str) -> None:
        first, other, self.distinct = given
        self.names = [first] if other is None else [first, other]
        functions = {call.function for call in node.calls if _arguments(call) == given}
        self._text = str(Call("sum", first, self.distinct))
        self._pairs: list[tuple[int, int]] = []
        if functions & moments.FUNCTIONS:
            self._pairs = [(0, 0)] if other is None else [(0, 0), (1, 1), (0, 1)]
        self._summed = bool(functions & {"sum", "avg", "try_sum", "try_avg"})
        kept = sums.sum_type(node.input.column(first).type)
        named = {"count": pa.int64()}
        named |= {"sum": kept} if self._summed else {}
        named |= {f"first_{i}": pa.binary() for i, _ in enumerate(self.names) if self._pairs}
        named |= {f"product_{i}{j}": pa.binary() for i, j in self._pairs}
        self.columns = [Column(f"{prefix}{name}", type_, False) for name, type_ in named.items()]

    @property
    def text(self) -> str:
        return self._text

    def count(self, state: pa.Table) -> pa.Array:
        return whole(state[self.columns[0].name])

    def total(self, state: pa.Table) -> pa.Array:
        return whole(state[self.columns[1].name])

    def moments(self, state: pa.Table) -> tuple[list[pa.Array], list[pa.Array]]:
        """The sums of the arguments, and of their products."""
        kept = [whole(state[column.name]) for column in self.columns[1 + self._summed :]]
        return kept[: len(self.names)], kept[len(self.names) :]

    def change(
        self, values: list[pa.Array], weights: np.ndarray, ids: np.ndarray, count: int
    ) -> list[pa.Array]:
        there = values[0].is_valid().to_numpy(zero_copy_only=False)
        changes = [sums.add_up(pa.array(np.where(there, weights, 0)), ids, count)]
        if self._summed:
            changes.append(sums.weighted_sums(values[0], weights, ids, count))
        if self._pairs:
            changes += [sums.weighted_sums(one, weights, ids, count) for one in values]
        return changes + [
            moments.product_sums(values[i], values[j], weights, ids, count) for i, j in self._pairs
        ]


class _Groups:
    """The groups of a delta: keys ascending, one row of the groups' columns for each, and which
    of them every row of the delta is in."""

    def __init__(self, delta: pa.Table, codec: GroupCodec, names: tuple[str, ...]) -> None:
        encoded = codec.encode(delta).dictionary_encode()
        order = pc.array_sort_indices(encoded.dictionary).to_numpy()
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        self.keys = encoded.dictionary.take(pa.array(order))
        self.ids = rank[encoded.indices.to_numpy()]
        first = np.full(len(order), -1, np.int64)
        first[self.ids[::-1]] = np.arange(len(self.ids))[::-1]
        self.rows = _normal(delta.select(list(names)).take(pa.array(first)))

    def __len__(self) -> int:
        return len(self.keys)


def _arguments(call: Call) -> _Given:
    """What calls have in common that share what is kept."""
    return call.argument or "", call.other, call.distinct


def _valued(call: Call) -> bool:
    return call.distinct or call.function in ("min", "max")


def _free_prefix(names: tuple[str, ...]) -> str:
    """What none of the names begins with: beside them, partial sums have names too."""
    prefix = "_"
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return prefix


def _normal(groups: pa.Table) -> pa.Table:
    """Equal groups look equal."""
    for i, field in enumerate(groups.schema):
        if has_floats(field.type):
            groups = groups.set_column(i, field, normal(whole(groups[field.name])))
    return groups
