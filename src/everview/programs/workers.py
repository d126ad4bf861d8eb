"""What runs in the engine's Python workers: reading changes, and applying operators to shards.

Told everything in plain data. Each (operator, shard, epoch) is written once, however often the
engine runs a task.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from everview.delta import WEIGHT, weighted
from everview.operators.base import MemoryState, Operator
from everview.operators.registry import operator_for
from everview.operators.sink import ViewSink
from everview.operators.touched import ReplaceOperator
from everview.plan.conditions import passing
from everview.plan.nodes import Node, Source, node_of
from everview.programs import apart
from everview.programs.guarding import guarded
from everview.programs.memory import tidied
from everview.programs.step import Step, Task
from everview.programs.turns import in_turn, turn
from everview.schema import Column, is_nested
from everview.state import State
from everview.stores import shared_store
from everview.stores.base import Shard
from everview.stores.base.states import CountedState

SHARD, SIDE = "_shard", "_side"
STEP = "everview.step"
# where the engine's Python is the maintainer's: the steps of programs, and other processes
RUNNING: dict[str, Step] = {}
PROCESSES: apart.Processes | None = None
Batches = Iterator[pa.RecordBatch]
_CHUNK_ROWS = 1 << 17
_CALLS = count()
_IMAGES = ("before", "after")

if TaskContext.get() is not None:
    # a Python worker of Spark's, which collects garbage after every task: not among what imports
    # made, which here took longer than the tasks
    gc.freeze()


def _step(given: Step | str) -> Step:
    """The step, or of a program for any epoch the one that this task's job is for."""
    if isinstance(given, Step):
        return given
    context = TaskContext.get()
    if text := context.getLocalProperty(STEP) if context else "":
        return Step.from_json(text)
    if given not in RUNNING:
        raise RuntimeError("this program is for any epoch, and its job doesn't say for which")
    return RUNNING[given]


@lru_cache(1024)
def operator_of(document: str) -> Operator:
    return operator_for(node_of(document))


@guarded
@tidied
def read(step: Step | str, document: str, regions: Batches, *, whole: bool = False) -> Batches:
    """The delta of a table that a source asks for: before-images with -1, after-images with +1; or
    all of its rows, as in a load."""
    given = [region for batch in regions for region in batch.column(0).to_pylist()]
    source = node_of(document)
    assert isinstance(source, Source)
    now = replace(_step(step), start=None) if whole else _step(step)
    for delta in _in_chunks(in_turn(_deltas(now, source, given))):
        yield from _named(delta, source.columns)


def _deltas(step: Step, source: Source, regions: list[int]) -> Iterator[pa.Table]:
    store, table = shared_store(step.address, readonly=True), source.table
    names = names_read(source)
    for region in regions:
        end = step.end[table][region]
        if step.start is None:
            for rows in store.scan(table, names, region=region, at={region: end}, ordered=False):
                if source.where:
                    rows = rows.filter(passing(source.where, dict(zip(names, rows, strict=True))))
                yield weighted(pa.Table.from_batches([rows]).select(list(source.read)), 1)
            continue
        for changes in store.changes(table, region, step.start[table][region], end, names):
            yield from images(changes, source, names)


def names_read(source: Source) -> list[str]:
    """The columns that it takes to read a source: its own, and those of its conditions."""
    tested = [name for condition in source.where for name in condition.columns()]
    return list(dict.fromkeys([*source.read, *tested]))


def images(changes: pa.RecordBatch, source: Source, names: list[str]) -> Iterator[pa.Table]:
    """Rows that went and rows that came: each image is held against the conditions by itself, and
    updates that leave all columns that are read as they were are none."""
    images = [dict(zip(names, changes.column(i).flatten(), strict=True)) for i in _IMAGES]
    passed = [changes.column(i).is_valid() for i in _IMAGES]
    if source.where:
        held = [passing(source.where, image) for image in images]
        passed = [pc.and_(there, holds) for there, holds in zip(passed, held, strict=True)]
    before, after = ([image[name] for name in source.read] for image in images)
    changed = pc.invert(_unchanged(before, after, pc.and_(*passed)))
    for arrays, mask, weight in zip((before, after), passed, (-1, 1), strict=True):
        rows = pa.Table.from_arrays(arrays, names=list(source.read))
        yield weighted(rows.filter(pc.and_(mask, changed)), weight)


def _unchanged(before: list[pa.Array], after: list[pa.Array], both: pa.Array) -> pa.Array:
    """Of rows that are there before and after, those that are equal."""
    same = both
    for one, other in zip(before, after, strict=True):
        if not pc.any(same).as_py() or is_nested(one.type):
            return pc.and_not(both, both)
        if pa.types.is_floating(one.type):  # -0.0 is another row than 0.0
            bits = pa.int32() if one.type == pa.float32() else pa.int64()
            one, other = one.view(bits), other.view(bits)
        equal = pc.fill_null(pc.equal(one, other), False)
        same = pc.and_(same, pc.or_(equal, pc.and_(one.is_null(), other.is_null())))
    return same


def _in_chunks(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows in fewer and larger tables, none of them empty."""
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        if sum(one.num_rows for one in held) >= _CHUNK_ROWS:
            yield pa.concat_tables(held)
            held = []
    if any(one.num_rows for one in held):
        yield pa.concat_tables(held)


def _named(delta: pa.Table, columns: tuple[Column, ...], shard: int | None = None) -> Batches:
    fields = [pa.field(column.name, column.type) for column in columns]
    fields.append(pa.field(WEIGHT, pa.int64()))
    arrays = list(delta.columns)
    if shard is not None:
        fields.append(pa.field(SHARD, pa.int32()))
        arrays.append(pa.array(np.full(delta.num_rows, shard, np.int32)))
    yield from pa.Table.from_arrays(arrays, schema=pa.schema(fields)).combine_chunks().to_batches()


@guarded
@tidied
def kept(step: Step | str, document: str, state: str, places: Batches) -> Batches:
    """All that an operator gave, from its state in the shards at some places."""
    operator = operator_of(document)
    assert isinstance(operator, ReplaceOperator)
    for shard, found in _shards_at(step, state, places):
        for rows, counts in found.bags():
            yield from _named(operator.given(rows, counts), node_of(document).columns, shard)


@guarded
@tidied
def shown(step: Step | str, document: str, state: str, places: Batches) -> Batches:
    """The rows of a view, in the shards at some places."""
    sink, epoch = _view_sink(document), _step(step).epoch
    columns = plain(sink.columns)
    for _, found in _shards_at(step, state, places):
        for rows, counts in sink.counted(found.values(), epoch):
            yield from _named(weighted(rows, counts), columns)


@guarded
@tidied
def handed(step: Step | str, document: str, state: str, places: Batches) -> Batches:
    """What an operator that was run ahead gave, in the shards at some places."""
    epoch, columns = _step(step).epoch, node_of(document).columns
    for shard, found in _shards_at(step, state, places):
        given = found.output(epoch)
        if given is not None and given.num_rows:
            yield from _named(given, columns, shard)


def _shards_at(step: Step | str, state: str, places: Batches) -> Iterator[tuple[int, Shard]]:
    now = _step(step)
    store = shared_store(now.address, readonly=True)
    for place in [one for batch in places for one in batch.column(0).to_pylist()]:
        yield now.shards[place], store.states.shard(state, now.shards[place])


@guarded
@tidied
def partial_of(document: str, batches: Batches) -> Batches:
    """Deltas added up by group before they are shuffled."""
    operator = operator_of(document)
    for delta in _in_chunks(pa.Table.from_batches([batch]) for batch in batches):
        with turn:
            added_up = operator.partial(delta).combine_chunks()
        yield from added_up.to_batches()


@guarded
@tidied
def operate(task: Task, batches: Batches) -> Batches:
    columns = node_of(task.node).columns
    for shard, rows in in_turn(_by_shard(list(batches))):
        yield from _named(_shard_of("operator", task, shard, rows), columns, shard)
    _note_end(task)


@guarded
@tidied
def operate_ahead(task: Task, place: str | None, batches: Batches) -> Batches:
    """Give nothing on, as those who read it come later: they ask the shard for it, or when it is
    loaded the one at `place`."""
    step = _step(task.step)
    for shard, rows in in_turn(_by_shard(list(batches))):
        given = _shard_of("operator", task, shard, rows)
        if place is not None:
            store = shared_store(step.address, readonly=False)
            store.states.shard(place, shard).hand(step.epoch, step.token, given)
        yield _done("", shard, pa.array([0], pa.int64()))
    _note_end(task)


def _note_end(task: Task) -> None:
    """Tell the maintainer that this part of a task did all that it had to do, be it nothing."""
    if task.state is None:
        return
    step, context = _step(task.step), TaskContext.get()
    # a part that runs again has its number on Spark; on Sail it runs in another job, if at all
    number = next(_CALLS) if context is None else context.partitionId()
    first = shared_store(step.address, readonly=False).states.shard(task.state, step.shards[0])
    first.note_end(step.epoch, step.token, number)


def _done(view: str, shard: int, touched: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(
        {"view": pa.array([view]), "shard": pa.array([shard], pa.int32()), "touched": touched}
    )


def _shard_of(kind: str, task: Task, shard: int, rows: pa.Table) -> pa.Table:
    """A shard's part of a task; if it is large, and the engine's Python is this one process, in
    another process."""
    if PROCESSES is None or task.state is None or rows.num_rows < apart.MANY_ROWS:
        return _KINDS[kind](task, shard, rows)
    document = vars(task) | {"step": _step(task.step).to_json(), "kind": kind, "shard": shard}
    return PROCESSES.work(document, rows)


def serve() -> None:
    """What another process does."""
    apart.serve(_told)


def _told(document: dict[str, Any], rows: pa.Table) -> pa.Table:
    inputs = tuple((place, tuple(map(tuple, slots))) for place, slots in document["inputs"])
    step = Step.from_json(document["step"])
    task = Task(step, document["node"], document["state"], inputs)
    return _KINDS[document["kind"]](task, document["shard"], rows)


def _operated(task: Task, shard: int, rows: pa.Table) -> pa.Table:
    operator, node = operator_of(task.node), node_of(task.node)

    def work(state: State) -> tuple[pa.Table, int]:
        given = operator.apply(_inputs(task, node, rows), state)
        return given, given.num_rows

    return _once(task, shard, rows.num_rows, work)


def _once(
    task: Task, shard: int, rows_in: int, work: Callable[[State], tuple[pa.Table, int]]
) -> pa.Table:
    """Do `work`, which gives its outcome and how many rows that stands for, in a turn."""
    if task.state is None:
        with turn:
            return work(MemoryState())[0]

    def told(state: CountedState) -> pa.Table:
        with turn:
            begun = time.perf_counter_ns()
            given, rows_out = work(state)
            state.tally.nanoseconds += time.perf_counter_ns() - begun
        state.tally.rows_in, state.tally.rows_out = rows_in, rows_out
        return given

    step = _step(task.step)
    state = shared_store(step.address, readonly=False).states.shard(task.state, shard)
    if step.start is None:
        return state.load(step.epoch, step.token, told)
    return state.apply(step.epoch, step.token, told)


def _inputs(task: Task, node: Node, rows: pa.Table) -> list[pa.Table]:
    """The deltas of the node's inputs, of which some have no rows."""
    found = [_empty(one) for one in node.inputs()]
    sides = rows[SIDE].to_numpy() if SIDE in rows.column_names else None
    for place, names in task.inputs:
        mine = rows if sides is None else rows.filter(pa.array(sides == place))
        found[place] = mine.select([slot for _, slot in names]).rename_columns(
            [name for name, _ in names]
        )
    return found


@lru_cache(1024)
def _empty(node: Node) -> pa.Table:
    schema = pa.schema([pa.field(column.name, column.type) for column in node.columns])
    return weighted(schema.empty_table(), 0)


def plain(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns of a view by names that Spark can pass to Python, which it can't with dots."""
    return tuple(replace(column, name=f"column_{i}") for i, column in enumerate(columns))


def view_document(columns: tuple[Column, ...], key: tuple[str, ...]) -> str:
    """What tells a view's sink its rows."""
    return json.dumps([[column.to_json() for column in columns], key])


@lru_cache(1024)
def _view_sink(document: str) -> ViewSink:
    columns, key = json.loads(document)
    return ViewSink(tuple(Column.from_json(column) for column in columns), tuple(key))


@guarded
@tidied
def sink(task: Task, view: str, batches: Batches) -> Batches:
    """View rows written; gives (view, shard, rows touched)."""
    for shard, rows in in_turn(_by_shard(list(batches))):
        touched = _shard_of("view", task, shard, rows)["touched"]
        yield _done(view, shard, touched.combine_chunks())
    _note_end(task)


def _sunk(task: Task, shard: int, rows: pa.Table) -> pa.Table:
    kept = _view_sink(task.node)
    delta = rows.rename_columns([*(column.name for column in kept.columns), WEIGHT])
    epoch = _step(task.step).epoch

    def work(state: State) -> tuple[pa.Table, int]:
        touched = kept.apply(delta, state, epoch, epoch - 1)
        return pa.table({"touched": pa.array([touched], pa.int64())}), touched

    return _once(task, shard, rows.num_rows, work)


_KINDS: dict[str, Callable[[Task, int, pa.Table], pa.Table]] = {
    "operator": _operated,
    "view": _sunk,
}


def _by_shard(batches: list[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """A partition's rows by shard; a partition may hold any number of shards, or none."""
    held = [batch for batch in batches if batch.num_rows]
    if not held:
        return
    table = pa.Table.from_batches(held).combine_chunks()
    shards = table[SHARD].to_numpy()
    table = table.drop_columns(SHARD)
    present = np.unique(shards).tolist()
    for shard in present:
        yield shard, table if len(present) == 1 else table.filter(pa.array(shards == shard))
