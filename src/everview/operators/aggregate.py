"""Aggregates by group: the state that a node's functions keep for each group, and their results."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
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
from everview.functions import AggregateFunction
from everview.functions.arithmetic import sums
from everview.functions.base import StateColumn
from everview.functions.count import COUNT
from everview.operators.bags import whole
from everview.operators.base import Operator
from everview.operators.values import Values
from everview.plan.nodes import Aggregate, Call
from everview.schema import Column, has_floats
from everview.state import State

_ArgumentKey = tuple[str, str | None, bool]


class AggregateOperator(Operator):
    """Keep for each group the count of its rows, and the state that functions need.

    Law:   sum of outputs == aggregate(sum of inputs). A group without rows disappears; the one
           group of a global aggregate never does, once a delta (of weight 0) has created it.
    State: group -> counts and exact sums; for DISTINCT, and for functions that need them, also the
           argument's values in order.
    Cost:  one state read and one write for each group of the delta.
    """

    kind = Aggregate.kind

    def __init__(self, node: Aggregate) -> None:
        self._node = node
        self._keys = GroupCodec([node.input.column(name) for name in node.groups])
        free = _free_prefix(node.groups)
        self._rows = f"{free}rows"
        grown = {c: f for c in node.calls if node.growing and (f := c.definition.over_growing)}
        self._functions = {call: grown.get(call, call.definition) for call in node.calls}
        self._arguments = _by_call(node, grown, free)
        self._parts = list(dict.fromkeys(self._arguments.values()))
        valued = {
            c.argument for c in node.calls if c.argument and c.keeps_values and c not in grown
        }
        self._values = {
            name: Values(node.input.column(name), tag, self._keys)
            for tag, name in enumerate(sorted(valued), 1)
        }
        self._state: dict[str, StateColumn] = {self._rows: COUNT}
        self._texts: dict[str, str] = {}
        for part in self._parts:
            self._state |= part.state
            self._texts |= part.texts
        columns = [column for part in self._parts for column in part.columns]
        self.columns = (Column(self._rows, pa.int64(), False), *columns)
        self._codec = BareCodec(self.columns)
        self._schema = pa.schema([pa.field(c.name, c.type, False) for c in self.columns])
        self._output = pa.schema([pa.field(c.name, c.type) for c in node.columns])

    @property
    def partial_columns(self) -> tuple[Column, ...] | None:
        """The columns of `partial`; None if the state has values, or anything as bytes."""
        if self._values or pa.binary() in self._schema.types:
            return None
        return tuple(map(self._node.input.column, self._node.groups)) + self.columns

    def partial(self, delta: pa.Table) -> pa.Table:
        """A delta added up by group; `apply` takes it in place of the delta."""
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
        known_before = self._from_values(keys, state)
        if WEIGHT in delta.column_names:
            weights = weights_of(delta)
            if self._node.growing and np.any(weights < 0):
                raise Damaged("an aggregate has lost a row of tables of which none ever goes")
            events = {n: v.change(delta, weights, state) for n, v in self._values.items()}
            changes = self._changes(delta, groups, events)
        else:
            changes = self._added_up(delta, groups)
        return self._moved(groups, changes, state, known_before)

    def add(self, delta: pa.Table, state: State, stays: np.ndarray | None = None) -> pa.Table:
        """As `apply`, for a delta with columns as `partial` has them; a group may be there several
        times. `stays` says for each row whether its group has a row of the output from now on,
        even over nothing."""
        groups = _Groups(delta, self._keys, self._node.groups)
        exists = None
        if stays is not None:
            exists = np.zeros(len(groups), np.int64)
            exists[groups.ids] = stays
        return self._moved(groups, self._added_up(delta, groups), state, {}, exists)

    def calls_of(self, rows: pa.Table, added: pa.Table) -> list[pa.Array]:
        """The results of the calls for groups, from what `partial` has of them; an error names the
        first of the `rows` for which a result does not fit."""
        groups = _Groups.listed(rows)
        outputs = self._node.columns[len(self._node.groups) :]
        return [
            self._result(call, column.type, groups, added)
            for call, column in zip(self._node.calls, outputs, strict=True)
        ]

    @property
    def sources(self) -> dict[str, tuple[str | None, str]]:
        """What the columns of state in `partial` are sums of: the argument, None for all rows, and
        what the functions call this column."""
        own: dict[str, tuple[str | None, str]] = {self._rows: (None, self._rows)}
        for part in self._parts:
            own |= {name: (part.names[0], column.name) for name, column in part.state.items()}
        return own

    def _added_up(self, delta: pa.Table, groups: _Groups) -> list[pa.Array]:
        return [
            column.add_up(whole(delta[name]), groups.ids, len(groups))
            for name, column in self._state.items()
        ]

    def _moved(
        self,
        groups: _Groups,
        changes: list[pa.Array],
        state: State,
        known_before: dict[Call, pa.Array],
        exists: np.ndarray | None = None,
    ) -> pa.Table:
        """Change the state of groups; returns the delta of their results."""
        keys = groups.keys.to_pylist()
        stored = state.get_many(keys)
        before = self._read(stored)
        after = self._added(groups, before, changes)
        existed = np.array([bool(value) for value in stored], np.int64)
        rows = after[self._rows].to_numpy()
        if np.any(rows < 0):
            raise Damaged("an aggregate has lost more rows of a group than it had")
        if exists is None:
            any_group = np.ones(len(keys), np.int64)
            exists = (rows > 0).astype(np.int64) if self._node.groups else any_group
        values = self._codec.encode(one_batch(after)).to_pylist()
        state.put_many(keys, [v if e else b"" for v, e in zip(values, exists, strict=True)])
        known_after = self._from_values(keys, state)
        went = weighted(self._results(groups, before, known_before), -existed)
        came = weighted(self._results(groups, after, known_after), exists)
        return without_zeros(pa.concat_tables([went, came]))

    def _changes(
        self, delta: pa.Table, groups: _Groups, events: dict[str, tuple[np.ndarray, np.ndarray]]
    ) -> list[pa.Array]:
        """Counts and sums of a delta by group."""
        weights = weights_of(delta)
        everywhere = (np.arange(len(weights)), weights)
        arrays = [sums.add_up(pa.array(weights), groups.ids, len(groups))]
        for part in self._parts:
            places, changed = events[part.names[0]] if part.distinct else everywhere
            values = [whole(delta[name]) for name in part.names]
            if part.distinct:
                values = [array.take(pa.array(places)) for array in values]
            ids = groups.ids[places]
            arrays += [
                column.change(values, changed, ids, len(groups)) for column in part.state.values()
            ]
        return arrays

    def _added(self, groups: _Groups, before: pa.Table, changes: list[pa.Array]) -> pa.Table:
        arrays = []
        for f, change in zip(self._schema, changes, strict=True):
            add, stored = self._state[f.name].added, whole(before[f.name])
            arrays.append(self._fitting(f.name, f.type, groups, add, stored, change))
        return pa.table(arrays, schema=self._schema)

    def _read(self, values: list[bytes]) -> pa.Table:
        """The state of groups; zeros for groups without state."""
        present = [value for value in values if value]
        arrays = self._codec.decode(*join(present), range(len(self._schema)))
        state = pa.Table.from_arrays(arrays, schema=self._schema)
        if len(present) == len(values):
            return state
        has = np.array([bool(value) for value in values], np.bool_)
        spread = state.take(pa.array(np.cumsum(has) - 1, mask=~has))
        filled = [spread[f.name].fill_null(sums.zero(f.type)) for f in self._schema]
        return pa.table(filled, schema=self._schema)

    def _from_values(self, groups: list[bytes], state: State) -> dict[Call, pa.Array]:
        """The results of the functions that compute them from ordered values."""
        return {
            call: function.of_values(self._values[call.argument or ""].of(groups, state))
            for call, function in self._functions.items()
            if function.from_values
        }

    def _results(self, groups: _Groups, state: pa.Table, known: dict[Call, pa.Array]) -> pa.Table:
        arrays = [groups.rows[name] for name in self._node.groups]
        outputs = self._node.columns[len(self._node.groups) :]
        for call, column in zip(self._node.calls, outputs, strict=True):
            if call in known:
                arrays.append(known[call])
            else:
                arrays.append(self._result(call, column.type, groups, state))
        return pa.table(arrays, schema=self._output)

    def _result(self, call: Call, arrow: pa.DataType, groups: _Groups, state: pa.Table) -> pa.Array:
        if call.argument is None:
            return whole(state[self._rows])
        function = self._functions[call]
        columns = self._arguments[call].columns_for(function, state)
        compute = partial(function.result, arrow=arrow)
        return self._fitting(str(call), arrow, groups, compute, *columns)

    def _fitting(
        self,
        what: str,
        arrow: pa.DataType,
        groups: _Groups,
        compute: Callable[..., pa.Array],
        *arrays: Sequence[Any],
    ) -> pa.Array:
        """The result of a computation by group. Raises `Overflow`, naming the first group for which
        it doesn't fit."""
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
            names = groups.rows.column_names
            group = ", ".join(f"{name} = {groups.rows[name][first]}" for name in names)
            where = f" of the group {group}" if group else ""
            raise Overflow(
                f"{self._texts.get(what, what)}{where} does not fit {arrow}; cast its argument to "
                "a wider type, or to DOUBLE"
            ) from error


class _Argument:
    """The state of an argument, or of a pair, for the functions that are called with it."""

    def __init__(
        self, node: Aggregate, key: _ArgumentKey, prefix: str, functions: list[AggregateFunction]
    ) -> None:
        first, second, self.distinct = key
        self.names = [first] if second is None else [first, second]
        self._prefix = prefix
        needed = {column for function in functions for column in function.state()}
        in_order = sorted(needed, key=lambda column: (column.place, column.name))
        self.state = {f"{prefix}{column.name}": column for column in in_order}
        arrow = node.input.column(first).type
        self.columns = [Column(n, column.type(arrow), False) for n, column in self.state.items()]
        self.texts = {n: str(Call(c.name, first, self.distinct)) for n, c in self.state.items()}

    def columns_for(self, function: AggregateFunction, state: pa.Table) -> list[pa.Array]:
        """The columns of the groups' state that a function needs."""
        return [whole(state[f"{self._prefix}{column.name}"]) for column in function.state()]


def _by_call(
    node: Aggregate, grown: dict[Call, AggregateFunction], free: str
) -> dict[Call, _Argument]:
    """The argument of each call, in the order of the stored state: first by argument, which all its
    functions share; then by call, for functions that need less state when rows never go."""
    others = [call for call in node.calls if call.argument and call not in grown]
    in_order = sorted(others, key=lambda call: str(_arguments(call)))
    by_call: dict[Call, _Argument] = {}
    for i, (key, same_argument) in enumerate(groupby(in_order, _arguments)):
        calls = list(same_argument)
        shared = _Argument(node, key, f"{free}{i}_", [call.definition for call in calls])
        by_call |= dict.fromkeys(calls, shared)
    for call in sorted(grown, key=str):
        key = (call.argument or "", None, False)
        by_call[call] = _Argument(node, key, f"{free}{call}_", [grown[call]])
    return by_call


class _Groups:
    """The groups of a delta: keys ascending, for each one row of the groups' columns, and for each
    row of the delta the number of its group."""

    def __init__(self, delta: pa.Table, codec: GroupCodec, names: tuple[str, ...]) -> None:
        encoded = codec.encode(delta).dictionary_encode()
        order = pc.array_sort_indices(encoded.dictionary).to_numpy()
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        self.keys = encoded.dictionary.take(pa.array(order))
        self.ids = rank[encoded.indices.to_numpy()]
        first = np.full(len(order), -1, np.int64)
        first[self.ids[::-1]] = np.arange(len(self.ids))[::-1]
        self.rows = normal_groups(delta.select(list(names)).take(pa.array(first)))

    @classmethod
    def listed(cls, rows: pa.Table) -> _Groups:
        """Groups whose keys nobody asks for."""
        groups = cls.__new__(cls)
        groups.keys, groups.ids = np.arange(len(rows)), np.arange(len(rows))
        groups.rows = rows
        return groups

    def __len__(self) -> int:
        return len(self.keys)


def _arguments(call: Call) -> _ArgumentKey:
    """Equal for calls that share their state."""
    return call.argument or "", call.other, call.distinct


def _free_prefix(names: tuple[str, ...]) -> str:
    """A prefix that none of the names begins with, for the names of partial sums."""
    prefix = "_"
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return prefix


def normal_groups(groups: pa.Table) -> pa.Table:
    """Equal groups look equal."""
    for i, field in enumerate(groups.schema):
        if has_floats(field.type):
            groups = groups.set_column(i, field, normal(whole(groups[field.name])))
    return groups
