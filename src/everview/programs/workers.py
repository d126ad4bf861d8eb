"""Code that runs in the engine's Python workers: it reads changes and applies operators to shards.

All arguments are plain data. Each (operator, part, epoch) is written once, however often the
engine runs a task.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from everview.delta import WEIGHT, weighted
from everview.operators.sink import ViewSink, sink_of
from everview.operators.touched import ReplaceOperator
from everview.plan.nodes import Node, Source, node_of
from everview.programs import apart
from everview.programs.applying import (
    StatePart,
    apply_operator,
    apply_sink,
    empty_delta,
    named_delta,
    operator_of,
)
from everview.programs.guarding import guarded
from everview.programs.memory import tidied
from everview.programs.pacing import Pacer, keep_pace, paced
from everview.programs.reading import deltas_of, in_chunks
from everview.programs.step import Step, Task
from everview.programs.turns import in_turn, turn
from everview.ring.parts import Part, Parts
from everview.schema import Column
from everview.stores import shared_store
from everview.stores.base import Shard

PLACE, SIDE = "_place", "_side"
STEP = "everview.step"
# used if the engine's Python is this process: the steps of running programs by name, and processes
# for large shards
RUNNING: dict[str, Step] = {}
PROCESSES: apart.Processes | None = None
Batches = Iterator[pa.RecordBatch]
_CALLS = count()

if TaskContext.get() is not None:
    # A Python worker of Spark collects garbage after every task. It leaves out the objects of
    # imports, as going through them took longer than the tasks.
    gc.freeze()


def _step(step_or_name: Step | str) -> Step:
    """The step itself; or by the name of a program for any epoch, the step of this task's job."""
    if isinstance(step_or_name, Step):
        return step_or_name
    context = TaskContext.get()
    if text := context.getLocalProperty(STEP) if context else "":
        return Step.from_json(text)
    if step_or_name not in RUNNING:
        raise RuntimeError("this program is for any epoch, and its job doesn't say for which")
    return RUNNING[step_or_name]


@guarded
@tidied
def read(step: Step | str, document: str, regions: Batches, *, whole: bool = False) -> Batches:
    """The delta of a source's table: before-images with -1, after-images with +1; with `whole`, all
    of its rows, as in a load."""
    region_numbers = [region for batch in regions for region in batch.column(0).to_pylist()]
    source = node_of(document)
    assert isinstance(source, Source)
    now = _step(step)
    pacer = Pacer(now, f"{source.identity} {region_numbers[0]}") if region_numbers else None
    now = replace(now, start=None) if whole else now
    deltas = paced(in_turn(deltas_of(now, source, region_numbers)), pacer)
    for delta in in_chunks(deltas):
        yield from _named(delta, source.columns)


def _named(delta: pa.Table, columns: tuple[Column, ...], part: Part | None = None) -> Batches:
    named = named_delta(delta, columns)
    if part is not None:
        places = pa.array(np.full(delta.num_rows, part.place, np.int32))
        named = named.append_column(pa.field(PLACE, pa.int32()), places)
    yield from named.combine_chunks().to_batches()


@guarded
@tidied
def read_operator_rows(step: Step | str, document: str, state: str, numbers: Batches) -> Batches:
    """The sum of an operator's outputs, from its state in the shards with some numbers."""
    operator = operator_of(document)
    assert isinstance(operator, ReplaceOperator)
    for part, shard in _parts_with(step, state, numbers):
        for rows, counts in shard.bags():
            yield from _named(operator.total_output(rows, counts), node_of(document).columns, part)


@guarded
@tidied
def read_view_rows(step: Step | str, document: str, state: str, numbers: Batches) -> Batches:
    """The rows of a view, in the shards with some numbers."""
    sink, epoch = _view_sink(document), _step(step).epoch
    columns = plain(sink.columns)
    for _, shard in _parts_with(step, state, numbers):
        for rows, counts in sink.counted(shard.values(), epoch):
            yield from _named(weighted(rows, counts), columns)


@guarded
@tidied
def read_ahead_output(
    step: Step | str, document: str, state: str, numbers: Batches, *, whole: bool
) -> Batches:
    """The output of an operator that was run ahead, in the parts with some numbers."""
    epoch, columns = _step(step).epoch, node_of(document).columns
    for part, shard in _parts_with(step, state, numbers, whole):
        output = shard.output(epoch, part.slots)
        if output is not None and output.num_rows:
            yield from _named(output, columns, part)


def _parts_with(
    step: Step | str, state: str, numbers: Batches, whole: bool = True
) -> Iterator[tuple[Part, Shard]]:
    now = _step(step)
    store, parts = shared_store(now.address, readonly=True), _parts(now, whole)
    for number in [number for batch in numbers for number in batch.column(0).to_pylist()]:
        part = parts.all[number]
        yield part, store.states.shard(state, part.shard)


def _parts(step: Step, whole: bool) -> Parts:
    return step.whole_parts if whole else step.parts


@guarded
@tidied
def partial_of(document: str, batches: Batches) -> Batches:
    """Deltas added up by group before they are shuffled."""
    operator = operator_of(document)
    for delta in in_chunks(pa.Table.from_batches([batch]) for batch in batches):
        with turn:
            added_up = operator.partial(delta).combine_chunks()
        yield from added_up.to_batches()


@guarded
@tidied
def operate(task: Task, batches: Batches) -> Batches:
    columns = node_of(task.node).columns
    for rows in in_turn(_by_part(task, list(batches))):
        yield from _named(_work_on("operator", task, rows), columns, rows.part)
    _note_end(task)


@guarded
@tidied
def operate_ahead(task: Task, place: str | None, batches: Batches) -> Batches:
    """Run an operator for a later job, which reads the output from the operator's own state; or in
    a load, from the state at `place`. Shards whose output is there already are done."""
    step, store = _step(task.step), shared_store(_step(task.step).address, readonly=False)
    for rows in in_turn(_by_part(task, list(batches))):
        at = None if place is None else store.states.shard(place, rows.part.shard)
        if at is None or not at.is_at(step.epoch):
            keep_pace(step)
            output = _work_on("operator", task, rows)
            if at is not None:
                at.hand(step.epoch, step.token, output)
        yield _result_batch("", rows.part, pa.array([0], pa.int64()))
    _note_end(task)


def _note_end(task: Task) -> None:
    """Note for the maintainer that this part of a task has ended, even if it had no rows."""
    if task.state is None:
        return
    step, context = _step(task.step), TaskContext.get()
    # on Spark a part that runs again has the same number; on Sail it runs again in another job only
    number = next(_CALLS) if context is None else context.partitionId()
    first = shared_store(step.address, readonly=False).states.shard(task.state, step.shards[0])
    first.note_end(step.epoch, step.token, number)


def _result_batch(view: str, part: Part, touched: pa.Array) -> pa.RecordBatch:
    shards = pa.array([part.shard], pa.int32())
    return pa.record_batch({"view": pa.array([view]), "shard": shards, "touched": touched})


class PartRows(NamedTuple):
    """The rows that came to a part; and to each slot, if that is known."""

    number: int
    part: Part
    rows: pa.Table
    of_slots: np.ndarray | None


def _work_on(kind: str, task: Task, rows: PartRows) -> pa.Table:
    """Do a part of a task; in another process, if it is large and the engine's Python is this
    process."""
    if PROCESSES is None or task.state is None or rows.rows.num_rows < apart.MANY_ROWS:
        return _KINDS[kind](task, rows)
    of_slots = None if rows.of_slots is None else rows.of_slots.tolist()
    own = {"kind": kind, "number": rows.number, "of_slots": of_slots}
    document = vars(task) | {"step": _step(task.step).to_json(), **own}
    return PROCESSES.work(document, rows.rows)


def serve() -> None:
    """Do the work of this module in another process."""
    apart.serve(_run_document)


def _run_document(document: dict[str, Any], rows: pa.Table) -> pa.Table:
    inputs = tuple((place, tuple(map(tuple, slots))) for place, slots in document["inputs"])
    step, whole = Step.from_json(document["step"]), document["whole"]
    task = Task(step, document["node"], document["state"], inputs, whole, document["hashed"])
    number, of_slots = document["number"], document["of_slots"]
    counts = None if of_slots is None else np.array(of_slots, np.int64)
    part_rows = PartRows(number, _parts(step, whole).all[number], rows, counts)
    return _KINDS[document["kind"]](task, part_rows)


def _apply_operator(task: Task, rows: PartRows) -> pa.Table:
    deltas = _inputs(task, node_of(task.node), rows.rows)
    part = StatePart(_step(task.step), task.state, rows.part, rows.of_slots)
    return apply_operator(part, operator_of(task.node), deltas, rows.rows.num_rows)


def _inputs(task: Task, node: Node, rows: pa.Table) -> list[pa.Table]:
    """The deltas of all inputs of the node; some have no rows."""
    deltas = [empty_delta(node_input) for node_input in node.inputs()]
    sides = rows[SIDE].to_numpy() if SIDE in rows.column_names else None
    for place, names in task.inputs:
        own_rows = rows if sides is None else rows.filter(pa.array(sides == place))
        deltas[place] = own_rows.select([slot for _, slot in names]).rename_columns(
            [name for name, _ in names]
        )
    return deltas


def plain(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns of a view under names without dots, as Spark can't pass those to Python."""
    return tuple(replace(column, name=f"column_{i}") for i, column in enumerate(columns))


def view_document(
    columns: tuple[Column, ...], key: tuple[str, ...], parameters: tuple[str, ...] = ()
) -> str:
    """The columns of a view, its key and its parameters as text, for its sink."""
    return json.dumps([[column.to_json() for column in columns], key, parameters])


@lru_cache(1024)
def _view_sink(document: str) -> ViewSink:
    columns, key, parameters = json.loads(document)
    column_objects = tuple(Column.from_json(column) for column in columns)
    return sink_of(column_objects, tuple(key), tuple(parameters))


@guarded
@tidied
def sink(task: Task, view: str, batches: Batches) -> Batches:
    """Write view rows; yields (view, shard, rows touched)."""
    step = _step(task.step)
    for rows in in_turn(_by_part(task, list(batches))):
        keep_pace(step)
        if _was_loaded(step, task.state, rows.part.shard):
            continue
        touched = _work_on("view", task, rows)["touched"]
        yield _result_batch(view, rows.part, touched.combine_chunks())
    _note_end(task)


def _was_loaded(step: Step, state: str | None, shard: int) -> bool:
    """Whether a load beside epochs has done a shard before it was interrupted."""
    if step.notes is None or step.start is not None or state is None:
        return False
    return shared_store(step.address, readonly=True).states.shard(state, shard).is_at(step.epoch)


def _apply_sink(task: Task, rows: PartRows) -> pa.Table:
    view_sink = _view_sink(task.node)
    delta = rows.rows.rename_columns([*(column.name for column in view_sink.columns), WEIGHT])
    part = StatePart(_step(task.step), task.state, rows.part, rows.of_slots)
    touched = apply_sink(part, view_sink, delta)
    return pa.table({"touched": pa.array([touched], pa.int64())})


_KINDS: dict[str, Callable[[Task, PartRows], pa.Table]] = {
    "operator": _apply_operator,
    "view": _apply_sink,
}


def _by_part(task: Task, batches: list[pa.RecordBatch]) -> Iterator[PartRows]:
    """The rows of a partition by part; a partition may hold any number of parts, or none."""
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return
    step = _step(task.step)
    parts = _parts(step, task.whole)
    table = pa.Table.from_batches(filled).combine_chunks()
    places = table[PLACE].to_numpy()
    table = table.drop_columns(PLACE)
    numbers, present = parts.present(places)
    for number in present:
        is_own = numbers == number
        rows = table if len(present) == 1 else table.filter(pa.array(is_own))
        yield PartRows(number, parts.all[number], rows, _of_slots(task, step, places[is_own]))


def _of_slots(task: Task, step: Step, places: np.ndarray) -> np.ndarray | None:
    """How many rows came to each slot, of those that were shuffled by their slots."""
    if not task.hashed or step.start is None:
        return None
    return np.bincount(places[places < step.slots], minlength=step.slots)
