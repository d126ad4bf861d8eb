"""Steps that are not large, done in this process and without an engine.

An engine takes tens of milliseconds to plan a job and to start its tasks, whatever there is to do,
and moves every row between its own form and Arrow's. Here sources are read, expressions computed
with Arrow, and operators applied to their shards one after the other, each node once. It is the
same work on the same state in the same shards, so an engine can go on where this ends, and the
other way round.

Nodes that only an engine computes, and values for which Arrow's answer may differ from Spark's, are
left to the engine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from everview.catalog import ViewRecord
from everview.compute import Compiled, compiled, hashes
from everview.compute.hashing import is_hashed
from everview.delta import WEIGHT, weighted
from everview.errors import EverviewError
from everview.operators.sink import sink_of
from everview.plan.distribution import (
    Distribution,
    keyed_by,
    lies,
    lies_whole,
    shards_by,
    takes_whole,
)
from everview.plan.nodes import Constant, Filter, Node, Project, Source, Union
from everview.programs.applying import (
    StatePart,
    apply_operator,
    apply_sink,
    empty_delta,
    named_delta,
    operator_of,
)
from everview.programs.reading import Changes, Rows, names_read, parts_of
from everview.programs.step import Step
from everview.ring.parts import Parts
from everview.stores import shared_store

DIRECT = "EVERVIEW_DIRECT_CHANGES"
DIRECT_CHANGES = int(os.environ.get(DIRECT, "100000"))  # with more, several cores are faster


class Placed(NamedTuple):
    """The delta of a node, and the place of each row if its rows lie in shards."""

    delta: pa.Table
    places: np.ndarray | None = None


def is_small(step: Step, most: int | None = None) -> bool:
    """Whether a step has at most so many changes, by default `DIRECT_CHANGES`; in a load there are
    no more rows of a table than changes. Without direct changes, nothing is small."""
    number = step.changes
    if step.start is None:
        number = sum(sum(regions.values()) for regions in step.end.values())
    return DIRECT_CHANGES > 0 and number <= (DIRECT_CHANGES if most is None else most)


def is_direct(view: ViewRecord) -> bool:
    """Whether each node of a view's plan can be done here."""
    return all(map(_is_direct, view.plan.walk())) and _is_placed(
        view.plan, keyed_by(view.plan, view.key)
    )


@lru_cache(4096)
def _is_direct(node: Node) -> bool:
    if isinstance(node, Constant) and not node.columns:
        return False
    if isinstance(node, Constant | Filter | Project):
        return _compiled(node) is not None
    if not node.is_operator:
        return isinstance(node, Source | Union)
    return all(map(_is_placed, node.inputs(), shards_by(node)))


def _is_placed(node: Node, by: Distribution) -> bool:
    """Whether the shards of a node's rows are known here."""
    return by is None or lies(node, by) or all(is_hashed(node.column(min(p)).type) for p in by)


@lru_cache(4096)
def _compiled(node: Constant | Filter | Project) -> tuple[Compiled, ...] | None:
    """The expressions of a node; None if one of them is for an engine only."""
    inputs = node.inputs()
    columns = inputs[0].columns if inputs else ()
    parts = [compiled(tree, columns) for tree in node.trees()]
    if isinstance(node, Filter):
        types = [pa.bool_()]
    else:
        types = [column.type for column in node.columns] * (len(parts) // max(len(node.columns), 1))
    are_right = all(
        part is not None and part.type == type_ for part, type_ in zip(parts, types, strict=True)
    )
    return tuple(part for part in parts if part is not None) if are_right else None


class Direct:
    """One step of some views. `states` says by identity where an operator's state is; an operator
    that is missing there keeps none. `partials` has the added up input of some operators, or None
    if there is none."""

    def __init__(
        self,
        step: Step,
        states: Mapping[str, str],
        views: Iterable[ViewRecord],
        partials: Mapping[str, pa.Table | None] = MappingProxyType({}),
    ) -> None:
        self._step, self._states, self._partials = step, states, partials
        self._deltas: dict[str, Placed | None] = {}
        self._columns: dict[str, dict[str, None]] = {}  # of tables, in order
        self._parts: dict[str, list[Rows | Changes]] = {}
        for view in views:
            for node in view.plan.walk():
                if isinstance(node, Source):
                    names = dict.fromkeys(names_read(node))
                    self._columns[node.table] = self._columns.get(node.table, {}) | names

    def sink(self, view: ViewRecord) -> int:
        """Write the rows of a view; returns how many the step touched."""
        plan = view.plan
        placed = self._placed(plan)
        if placed is None:
            return 0
        sink, touched = sink_of(plan.columns, view.key, view.parameters), 0
        by = keyed_by(plan, view.key)
        parts = self._parts_for(takes_whole(plan, by))
        for number, delta in self._by_part(parts, plan, placed, by).items():
            part = StatePart(self._step, view.rows, parts.all[number])
            touched += apply_sink(part, sink, delta)
        return touched

    def _parts_for(self, whole: bool) -> Parts:
        return self._step.whole_parts if whole else self._step.parts

    def _placed(self, node: Node) -> Placed | None:
        """The delta of a node; None if it has no rows."""
        # inputs first, as plans may be deeper than Python's stack
        for below in node.walk(self._ends):
            if below.identity not in self._deltas:
                placed = self._computed(below)
                is_empty = placed is None or not placed.delta.num_rows
                self._deltas[below.identity] = None if is_empty else placed
        return self._deltas[node.identity]

    def _ends(self, node: Node) -> bool:
        """Whether nothing below a node has to be computed for it."""
        return node.identity in self._deltas or node.identity in self._partials

    def _computed(self, node: Node) -> Placed | None:
        if node.identity in self._partials:
            partial = self._partials[node.identity]
            return None if partial is None else self._operator(node, [Placed(partial)])
        if isinstance(node, Source):
            return self._source(node)
        if isinstance(node, Constant):
            return self._constant(node) if self._step.start is None else None
        inputs = [self._deltas[input_node.identity] for input_node in node.inputs()]
        if node.is_operator:
            if node.has_row_of_nothing() and self._step.start is None:
                inputs = [self._seeded(node.inputs()[0], inputs[0])]
            return self._operator(node, inputs)
        if isinstance(node, Union):
            deltas = [placed.delta for placed in inputs if placed is not None]
            named = [named_delta(delta, node.columns) for delta in deltas]
            return Placed(pa.concat_tables(named)) if named else None
        (placed,) = inputs
        if placed is None:
            return None
        assert isinstance(node, Filter | Project)
        return expressed(node, placed)

    def _source(self, node: Source) -> Placed | None:
        step, table = self._step, node.table
        if step.start is not None and step.start[table] == step.end[table]:
            return None
        if table not in self._parts:
            names = list(self._columns[table])
            self._parts[table] = list(parts_of(step, table, names, list(step.end[table])))
        deltas = [delta for part in self._parts[table] for delta in part.deltas(node)]
        return Placed(named_delta(pa.concat_tables(deltas), node.columns)) if deltas else None

    def _constant(self, node: Constant) -> Placed:
        values = _compiled(node)
        assert values is not None
        width = len(node.columns)
        rows = [values[at : at + width] for at in range(0, len(values), width)]
        columns = [
            pa.concat_arrays([row[place].of({}, 1) for row in rows])
            if rows
            else pa.nulls(0, column.type)
            for place, column in enumerate(node.columns)
        ]
        table = pa.Table.from_arrays(columns, names=node.names())
        return Placed(named_delta(weighted(table, 1), node.columns))

    def _operator(self, node: Node, inputs: Sequence[Placed | None]) -> Placed | None:
        parts = self._parts_for(lies_whole(node))
        inputs_of: dict[int, list[pa.Table]] = {}
        for place, (below, placed) in enumerate(zip(node.inputs(), inputs, strict=True)):
            if placed is None:
                continue
            deltas_of = self._by_part(parts, below, placed, shards_by(node)[place])
            for number, delta in deltas_of.items():
                inputs_of.setdefault(number, list(map(empty_delta, node.inputs())))[place] = delta
        operator, state = operator_of(node.own_text), self._states.get(node.identity)
        outputs, places = [], []
        for number, deltas in inputs_of.items():
            part = parts.all[number]
            rows_in = sum(delta.num_rows for delta in deltas)
            output = apply_operator(StatePart(self._step, state, part), operator, deltas, rows_in)
            outputs.append(named_delta(output, node.columns))
            places.append(np.full(output.num_rows, part.place))
        return Placed(pa.concat_tables(outputs), np.concatenate(places)) if outputs else None

    def _seeded(self, node: Node, placed: Placed | None) -> Placed:
        """With a row of weight 0, at the first place."""
        seed, first = seed_of(node), np.zeros(1, np.int64)
        if placed is None:
            return Placed(seed, first)
        places = None if placed.places is None else np.concatenate([placed.places, first])
        return Placed(pa.concat_tables([placed.delta, seed]), places)

    def _by_part(
        self, parts: Parts, node: Node, placed: Placed, by: Distribution
    ) -> dict[int, pa.Table]:
        """The rows of each part that an operator above needs to have them in."""
        if by is None:
            return dict.fromkeys(range(len(parts)), placed.delta)
        if not by and not lies(node, by):
            return {int(parts.of_place[0]): placed.delta}
        places = placed.places if lies(node, by) else self._slots(placed.delta, by)
        assert places is not None
        numbers, present = parts.present(places)
        if len(present) == 1:
            return {present[0]: placed.delta}
        return {number: placed.delta.filter(pa.array(numbers == number)) for number in present}

    def _slots(self, delta: pa.Table, by: Distribution) -> np.ndarray:
        assert by is not None
        columns = [delta[min(place)].combine_chunks() for place in by]
        return hashes(columns, delta.num_rows) % self._step.slots


def seed_of(node: Node) -> pa.Table:
    """A row of NULLs and weight 0: a global aggregate has a row even over nothing."""
    nulls = [pa.nulls(1, column.type) for column in node.columns]
    row = pa.Table.from_arrays([*nulls, pa.array([0])], names=[*node.names(), WEIGHT])
    return named_delta(row, node.columns)


def expressed(node: Filter | Project, placed: Placed) -> Placed:
    """The rows of a node, of those of its input."""
    delta, places = placed
    values = _compiled(node)
    assert values is not None
    columns = {name: delta[name].combine_chunks() for name in delta.column_names}
    results = [value.of(columns, delta.num_rows) for value in values]
    if isinstance(node, Filter):
        mask = results[0]
        if places is not None:
            places = places[mask.fill_null(False).to_numpy(zero_copy_only=False)]
        return Placed(delta.filter(mask), places)
    table = pa.Table.from_arrays([*results, columns[WEIGHT]], names=[*node.names(), WEIGHT])
    return Placed(named_delta(table, node.columns), places)


def run(
    views: Sequence[ViewRecord], step: Step, states: Mapping[str, str]
) -> tuple[int, list[ViewRecord]]:
    """Do a step for the views for which that is possible here; returns how many rows it touched,
    and the other views, for an engine.

    An error of ours is raised: it would be the same on an engine. Any other means that the engine
    has to try: its answer, or its error, is the one that counts.
    """
    if not is_small(step):
        return 0, list(views)
    chosen: list[ViewRecord] = []
    others: list[ViewRecord] = []
    for view in views:
        (chosen if is_direct(view) else others).append(view)

    def sink_all() -> tuple[int, list[ViewRecord]]:
        direct, touched, failing = Direct(step, states, chosen), 0, list[ViewRecord]()
        for view in chosen:
            try:
                touched += direct.sink(view)
            except EverviewError:
                raise
            except Exception:
                failing.append(view)
        return touched, failing

    try:
        touched, failing = shared_store(step.address, readonly=False).states.together(sink_all)
    except EverviewError:
        raise
    except Exception:  # an operator of some view
        return 0, list(views)
    return touched, others + failing
