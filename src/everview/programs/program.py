"""Plans as one Spark program for an epoch, through the public DataFrame API only.

Every frame has the columns of its node and a weight; one whose rows lie in shards also has the
place of each.
A frame is None where no change of the epoch can reach.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType

from everview.catalog import ViewRecord
from everview.delta import WEIGHT
from everview.operators.registry import operator_for
from everview.plan.distribution import (
    UNNAMED,
    Distribution,
    distribution,
    hashed,
    keyed_by,
    lies,
    lies_whole,
    shards_by,
    takes_whole,
)
from everview.plan.expressions import Ref, column_of
from everview.plan.nodes import (
    Constant,
    Filter,
    Generate,
    Node,
    Project,
    Recompute,
    Refresh,
    Source,
    Union,
)
from everview.programs import workers
from everview.programs.computed import PLACED, REGION, WEIGHTED, Computed, nulls
from everview.programs.step import Step, Task
from everview.programs.workers import PLACE, SIDE
from everview.reach import check_node
from everview.ring.parts import Parts
from everview.schema import Column, quoted
from everview.spark.types import spark_type, struct

Slots = tuple[tuple[str, str], ...]
RESULT_COLUMNS = (
    Column("view", pa.string()),
    Column("shard", pa.int32()),
    Column("touched", pa.int64()),
)


@dataclass(frozen=True)
class StoredRows:
    """Where all rows of a node are stored already, since another view has the same node: in the
    state of an operator, or as the rows of a view that has this key."""

    state: str
    key: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Duty:
    """A part of a program that must run, since it writes state: its name, where the state is, in
    how many tasks the engine runs it, its input, and a job that runs it and nothing above it."""

    name: str
    state: str
    tasks: int
    input: DataFrame
    job: Callable[[], DataFrame]


class Program:
    """The frames of one epoch; equal nodes of several views have one frame.

    An engine may leave out a part that no row of its answer needs, and that part then writes no
    state. `duties` are the parts that must run, each after those whose rows it reads.

    `states` says by identity where an operator's state is; an operator that is missing there keeps
    none. A load reads `stored_rows`, by identity, instead of computing them again: doubles could
    differ in their last digits, and ties fall otherwise. `places` say where a load stores the
    output of operators that run ahead; in epochs their own state has it.

    With few changes, all rows are in one partition: more partitions would take longer to schedule
    and to shuffle than the work takes. A program that has a name is for any epoch: it can run again
    for steps in which the same tables change, spread in the same way.
    """

    def __init__(
        self,
        session: SparkSession,
        step: Step,
        states: Mapping[str, str],
        *,
        stored_rows: Mapping[str, StoredRows] = MappingProxyType({}),
        places: Mapping[str, str] = MappingProxyType({}),
        name: str | None = None,
    ) -> None:
        self._session, self._stored_rows, self._places = session, stored_rows, places
        self._computed = Computed(session)
        self._f = self._computed.functions
        self._step = step
        self._step_or_name = step if name is None else name
        self._states = states
        self._spread = self.shuffles = step.is_spread
        self._frames: dict[str, DataFrame | None] = {}
        self._tasks: dict[str, int] = {}  # of nodes whose rows lie in shards, in how many tasks
        self.duties: list[Duty] = []

    def sink(self, view: ViewRecord) -> DataFrame | None:
        """A view's whole plan and its sink; running it gives (view, shard, rows touched).

        Spark can't pass columns with dots or backticks in their names to Python, and a view may
        have such; so its columns have other names on the way to the sink.
        """
        plan, key = view.plan, view.key
        plain = workers.plain(plan.columns)
        names = dict(zip(plan.names(), plain, strict=True))
        renamed = Project(plain, plan, tuple(map(Ref, plan.names())))
        frame = self.frame(renamed)
        if frame is None:
            return None
        by = tuple(frozenset(names[name].name for name in place) for place in keyed_by(plan, key))
        document = workers.view_document(plan.columns, key, view.parameters)
        slots = tuple((column.name, column.name) for column in plain)
        whole, is_hashed = takes_whole(renamed, by), not lies(renamed, by)
        task = Task(self._step_or_name, document, view.rows, ((0, slots),), whole, is_hashed)
        placed, tasks = self._placed(frame, renamed, (*plain, WEIGHTED), by, self._parts(whole))
        job = placed.mapInArrow(partial(workers.sink, task, view.name), struct(RESULT_COLUMNS))
        self.duties.append(Duty(f"view {view.name}", view.rows, tasks, placed, lambda: job))
        return job

    def ahead(self, node: Node) -> DataFrame | None:
        """A job that runs one operator; nodes that read it then read its stored output."""
        operator_task = self._task(node)
        self._frames[node.identity] = None
        if operator_task is None:
            return None
        task, frame, tasks = operator_task
        place = self._places.get(node.identity)
        at = place or self._states[node.identity]
        self._frames[node.identity] = self._read_ahead(node, at, task.whole)
        run: Callable[[Any], Any] = partial(workers.operate_ahead, task, place)
        job = frame.mapInArrow(run, struct(RESULT_COLUMNS))
        self._add_duty(node, task, tasks, frame, lambda: job)
        return job

    def read_ahead(self, node: Node) -> None:
        """Read the output that an earlier job stored, instead of running the operator."""
        at = self._places[node.identity]
        self._frames[node.identity] = self._read_ahead(node, at, whole=True)

    def _read_ahead(self, node: Node, state: str, whole: bool) -> DataFrame:
        read = partial(workers.read_ahead_output, whole=whole)
        return self._read_parts(read, node, state, self._parts(whole))

    def _parts(self, whole: bool) -> Parts:
        return self._step.whole_parts if whole else self._step.parts

    def _add_duty(
        self,
        node: Node,
        task: Task,
        tasks: int,
        frame: DataFrame,
        job: Callable[[], DataFrame],
    ) -> None:
        if task.state is not None:
            self.duties.append(Duty(node.label(), task.state, tasks, frame, job))

    def put(self, node: Node, frame: DataFrame) -> None:
        """Use this as the frame of a node."""
        self._frames[node.identity] = frame

    def frame(self, node: Node) -> DataFrame | None:
        # inputs first, as plans may be deeper than Python's stack
        for next_node in node.walk(self._ends):
            if next_node.identity not in self._frames:
                self._frames[next_node.identity] = self._build(next_node)
        return self._frames[node.identity]

    def _ends(self, node: Node) -> bool:
        """Whether a node has its frame, or needs no frames of its inputs for it."""
        identity = node.identity
        return (
            identity in self._frames or identity in self._stored_rows or isinstance(node, Refresh)
        )

    def _build(self, node: Node) -> DataFrame | None:
        check_node(node)
        if stored := self._stored_rows.get(node.identity):
            if stored.key is not None:
                return self._view_rows(node, stored)
            whole = self._step.whole_parts
            return self._read_parts(workers.read_operator_rows, node, stored.state, whole)
        if isinstance(node, Source):
            return self._source(node)
        if isinstance(node, Constant):
            return self._computed.constant(node) if self._step.start is None else None
        if isinstance(node, Refresh):
            return self._refreshed(node)
        if isinstance(node, Filter | Project | Generate | Recompute):
            frame = self.frame(node.input)
            return None if frame is None else self._computed.expressed(node, frame)
        if isinstance(node, Union):
            frames = [self.frame(part) for part in node.parts]
            names = self._computed.columns([*node.names(), WEIGHT])
            present = [frame.select(*names) for frame in frames if frame is not None]
            return _all(present) if present else None
        return self._operator(node)

    def _source(self, node: Source) -> DataFrame | None:
        return self._read(node, whole=False) if self._has_changed(node.table) else None

    def _has_changed(self, table: str) -> bool:
        return self._step.start is None or self._step.start[table] != self._step.end[table]

    def _refreshed(self, node: Refresh) -> DataFrame | None:
        """The rows of a query over whole tables, and a row of weight 0, so that there is one even
        if the query has none."""
        if not any(map(self._has_changed, node.tables())):
            return None
        self.shuffles = True  # as the query likes
        tables = [self._read(source, whole=True) for source in node.sources]
        return self._computed.whole_query(node, tables).union(self._seed(node))

    def _read(self, node: Source, whole: bool) -> DataFrame:
        end = self._step.end[node.table]
        read = partial(workers.read, self._step_or_name, node.text, whole=whole)
        cores = min(len(end), os.cpu_count() or 1) if self._spread or whole else 1
        regions = self._computed.shaped(self._session.range(0, len(end), 1, cores), [REGION])
        return regions.mapInArrow(read, struct((*node.columns, WEIGHTED)))

    def _view_rows(self, node: Node, stored: StoredRows) -> DataFrame:
        """The stored rows of a view, in the shards in which those of its plan lie."""
        assert stored.key is not None
        plain = workers.plain(node.columns)
        document = workers.view_document(node.columns, stored.key)
        read = partial(workers.read_view_rows, self._step_or_name, document, stored.state)
        parts = self._step.whole_parts
        frame = self._numbers(parts).mapInArrow(read, struct((*plain, WEIGHTED)))
        names, by = (
            dict(zip(node.names(), (column.name for column in plain), strict=True)),
            distribution(node),
        )
        placed = [WEIGHT]
        if by is not None:
            if by == UNNAMED:  # no node above asks where they lie
                by = hashed(node, tuple(node.names()))
            by = tuple(frozenset(names[name] for name in place) for place in by)
            frame = frame.select("*", self._place(by))
            frame = self._shuffled(self._computed.shaped(frame, (*plain, WEIGHTED, PLACED)), parts)
            self._tasks[node.identity] = self._tasks_for(parts)
            placed = [WEIGHT, PLACE]
        columns = [self._f.col(plain_name).alias(name) for name, plain_name in names.items()]
        return frame.select(*columns, *self._computed.columns(placed))

    def _read_parts(
        self, read: Callable[..., Any], node: Node, state: str, parts: Parts
    ) -> DataFrame:
        read_node = partial(read, self._step_or_name, node.own_text, state)
        self._tasks[node.identity] = self._tasks_for(parts)
        columns = struct((*node.columns, WEIGHTED, PLACED))
        return self._numbers(parts).mapInArrow(read_node, columns)

    def _numbers(self, parts: Parts) -> DataFrame:
        numbers = self._session.range(0, len(parts), 1, self._tasks_for(parts))
        return self._computed.shaped(numbers, [REGION])

    def _operator(self, node: Node) -> DataFrame | None:
        operator_task = self._task(node)
        if operator_task is None:
            return None
        task, frame, tasks = operator_task
        operate: Callable[[Any], Any] = partial(workers.operate, task)
        operate_alone: Callable[[Any], Any] = partial(workers.operate_ahead, task, None)
        self._tasks[node.identity] = tasks
        self._add_duty(
            node,
            task,
            tasks,
            frame,
            lambda: frame.mapInArrow(operate_alone, struct(RESULT_COLUMNS)),
        )
        return frame.mapInArrow(operate, struct((*node.columns, WEIGHTED, PLACED)))

    def _task(self, node: Node) -> tuple[Task, DataFrame, int] | None:
        """What an operator has to do, its rows, and in how many tasks they are."""
        frames = [self.frame(node_input) for node_input in node.inputs()]
        present = {i: frame for i, frame in enumerate(frames) if frame is not None}
        if not present:
            return None
        whole = lies_whole(node)
        if len(present) == 1:
            ((place, frame),) = present.items()
            slots, frame, tasks = self._single_input(node, place, frame, self._parts(whole))
        else:
            slots, frame, tasks = self._several_inputs(node, present, self._parts(whole))
        inputs = tuple(zip(present, slots, strict=True))
        is_hashed = any(not lies(node.inputs()[place], shards_by(node)[place]) for place in present)
        state = self._states.get(node.identity)
        task = Task(self._step_or_name, node.own_text, state, inputs, whole, is_hashed)
        return task, frame, tasks

    def _is_seeded(self, node: Node) -> bool:
        """A global aggregate has a row even over nothing: a row of weight 0 makes it, in the
        partition of the others."""
        return node.has_row_of_nothing() and self._step.start is None

    def _seed(self, node: Node) -> DataFrame:
        """A row of NULLs and weight 0, to add to those of a node; in the first slot, if the node's
        rows lie in shards."""
        slot = [] if distribution(node) is None else ["0"]
        return self._session.sql(f"SELECT {', '.join([*nulls(node), '0L', *slot])}")

    def _single_input(
        self, node: Node, place: int, frame: DataFrame, parts: Parts
    ) -> tuple[list[Slots], DataFrame, int]:
        """The one input that has rows, by shards; that of an aggregate is perhaps added up."""
        input_node, by = node.inputs()[place], shards_by(node)[place]
        columns = (*input_node.columns, WEIGHTED)
        if self._is_seeded(node):
            frame = frame.union(self._seed(input_node))
        if self._spread and not lies(input_node, by):
            partial_columns = operator_for(node).partial_columns
            if partial_columns is not None:
                names = self._computed.columns(column.name for column in columns)
                frame = self._computed.shaped(frame.select(*names), columns)
                combine = partial(workers.partial_of, node.own_text)
                frame, columns = frame.mapInArrow(combine, struct(partial_columns)), partial_columns
        slots = tuple((column.name, column.name) for column in columns)
        frame, tasks = self._placed(frame, input_node, columns, by, parts)
        if self._is_seeded(node) and lies(input_node, by):
            # these rows are not shuffled, but the seed has to be among them
            frame, tasks = frame.coalesce(1), 1
        return [slots], frame, tasks

    def _several_inputs(
        self, node: Node, present: Mapping[int, DataFrame], parts: Parts
    ) -> tuple[list[Slots], DataFrame, int]:
        """Several inputs in one frame: columns of one type share a slot, and the side of a row says
        which input it is of."""
        slots, shared = _slots([node.inputs()[place].columns for place in present])
        sides = []
        for (place, frame), own_slots in zip(present.items(), slots, strict=True):
            named = {slot: self._f.col(quoted(name)) for name, slot in own_slots}
            filled = [
                named.get(slot.name, self._f.lit(None).cast(spark_type(slot.type))).alias(slot.name)
                for slot in shared
            ]
            side = self._f.lit(place).alias(SIDE)
            by = shards_by(node)[place]
            lies_right = lies(node.inputs()[place], by)
            place_of = self._f.col(PLACE) if lies_right else self._place(by)
            sides.append(frame.select(*filled, *self._computed.columns([WEIGHT]), side, place_of))
        columns = (*shared, WEIGHTED, Column(SIDE, pa.int32()), PLACED)
        frame = self._shuffled(self._computed.shaped(_all(sides), columns), parts)
        tasks = self._tasks_for(parts)
        return [(*own_slots, (WEIGHT, WEIGHT)) for own_slots in slots], frame, tasks

    def _placed(
        self,
        frame: DataFrame,
        node: Node,
        columns: Sequence[Column],
        by: Distribution,
        parts: Parts,
    ) -> tuple[DataFrame, int]:
        """Rows of one part in one partition, and in how many partitions they are."""
        names = self._computed.columns(column.name for column in columns)
        if lies(node, by):
            names += self._computed.columns([PLACE])
            frame = self._computed.shaped(frame.select(*names), (*columns, PLACED))
            if not self._deals_out(node):
                return frame, self._tasks_of(node)
        else:
            frame = frame.select(*names, self._place(by))
            frame = self._computed.shaped(frame, (*columns, PLACED))
        return self._shuffled(frame, parts), self._tasks_for(parts)

    def _deals_out(self, node: Node) -> bool:
        """Whether rows of one shard may be in several tasks though they lie in shards: to have work
        for all cores, Sail deals out batches before it filters or computes. These tasks would
        overwrite each other's state."""
        if isinstance(self._session, SparkSession):
            return False
        while node.identity not in self._tasks:
            chooses = isinstance(node, Project) and all(map(column_of, node.expressions))
            if not chooses:
                return True
            (node,) = node.inputs()
        return False

    def _tasks_of(self, node: Node) -> int:
        """In how many tasks the rows of a node are, if they lie in shards."""
        while node.identity not in self._tasks:
            (node,) = node.inputs()
        return self._tasks[node.identity]

    def _tasks_for(self, parts: Parts) -> int:
        return parts.tasks if self._spread else 1

    def _place(self, by: Distribution) -> Any:
        """The slot of a row; or if all shards need the row, each of them."""
        if by is None:
            places = [self._f.lit(part.place) for part in self._step.whole_parts.all]
            return self._f.explode(self._f.array(*places)).alias(PLACE)
        names = self._computed.columns(min(place) for place in by)
        if not names:
            return self._f.lit(0).alias(PLACE)
        slot = self._f.pmod(self._f.xxhash64(*names), self._f.lit(self._step.slots))
        return slot.cast(IntegerType()).alias(PLACE)

    def _shuffled(self, frame: DataFrame, parts: Parts) -> DataFrame:
        if not self._spread:
            return frame.coalesce(1)
        return frame.repartition(parts.tasks, self._label(parts))

    def _label(self, parts: Parts) -> Any:
        """What the engine shuffles a row by, so that each task gets its parts."""
        place, labels = self._f.col(PLACE), parts.labels
        if not self._step.tasks:  # then they repeat, and few in the plan are enough
            labels = labels[: len(self._step.shards)]
            place = self._f.pmod(place, self._f.lit(len(labels)))
        every = self._f.array(*map(self._f.lit, labels))
        return self._f.element_at(every, (place + 1).cast(IntegerType()))


def _all(frames: list[DataFrame]) -> DataFrame:
    return reduce(lambda first, second: first.union(second), frames)


def _slots(sides: list[tuple[Column, ...]]) -> tuple[list[Slots], list[Column]]:
    """A slot for each column of each side, shared between sides, and all the slots."""
    slots: list[Column] = []
    slots_by_side = []
    for columns in sides:
        free = list(slots)
        own_slots = []
        for column in columns:
            slot = next((candidate for candidate in free if candidate.type == column.type), None)
            if slot is None:
                slot = Column(f"slot_{len(slots)}", column.type)
                slots.append(slot)
            else:
                free.remove(slot)
            own_slots.append((column.name, slot.name))
        slots_by_side.append(tuple(own_slots))
    return slots_by_side, slots
