"""Plans as one Spark program for an epoch, through the public DataFrame API only.

Every frame has the columns of its node and a weight; one whose rows lie in shards also says which.
A frame is None where no change of the epoch can reach.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, connect, functions
from pyspark.sql.types import IntegerType

from everview.delta import WEIGHT
from everview.operators.registry import operator_for
from everview.plan.distribution import (
    UNNAMED,
    Distribution,
    distribution,
    hashed,
    keyed_by,
    lies,
    shards_by,
)
from everview.plan.expressions import Ref, Tree, column_of, verbatim
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
from everview.programs.dialect import asked
from everview.programs.step import Step, Task
from everview.programs.workers import SHARD, SIDE
from everview.reach import check_node
from everview.reach.asking import ask
from everview.schema import Column, quoted, sql_name
from everview.spark.types import spark_type, struct

Slots = tuple[tuple[str, str], ...]
REGION = Column("id", pa.int64())
WEIGHTED = Column(WEIGHT, pa.int64())
SHARDED = Column(SHARD, pa.int32())
DONE = (Column("view", pa.string()), Column("shard", pa.int32()), Column("touched", pa.int64()))


@dataclass(frozen=True)
class Kept:
    """Where all is that a node gave while another view was maintained: in the state of an operator,
    or in the rows of a view that has this key."""

    state: str
    key: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Duty:
    """What a program must run, as it writes state: its name, where the state is, in how many tasks
    the engine runs it, its input, and a job that runs it and nothing above it."""

    name: str
    state: str
    tasks: int
    input: DataFrame
    job: Callable[[], DataFrame]


class Program:
    """The frames of one epoch; equal nodes of several views have one frame.

    An engine may leave out what no row of its answer needs, and what it leaves out writes no state.
    `duties` are all that must run, each after those whose rows it reads.

    `states` says by identity where an operator's state is; one that isn't there keeps none. `kept`
    is what is there while another view is loaded, which reads it: were it recomputed, doubles could
    be others in their last digits, and what ties another. `places` are for what operators give that
    are run ahead while a view is loaded; in epochs their state has it. Where
    there are few changes all rows are in one partition: to schedule more, and to shuffle between
    them, would take longer than the work. A program that has a name is for any epoch: it can be run
    again for steps in which the same tables change, spread in the same way.
    """

    def __init__(
        self,
        session: SparkSession,
        step: Step,
        states: Mapping[str, str],
        *,
        kept: Mapping[str, Kept] = MappingProxyType({}),
        places: Mapping[str, str] = MappingProxyType({}),
        name: str | None = None,
    ) -> None:
        self._session, self._kept, self._places = session, kept, places
        self._f: Any = functions if isinstance(session, SparkSession) else connect.functions
        self._step = step
        self._told = step if name is None else name
        self._states = states
        self._spread = self.shuffles = step.is_spread
        self._frames: dict[str, DataFrame | None] = {}
        self._tasks: dict[str, int] = {}  # of nodes whose rows lie in shards, in how many tasks
        self.duties: list[Duty] = []

    def sink(self, view: str, plan: Node, key: tuple[str, ...], state: str) -> DataFrame | None:
        """A view's whole plan and its sink; running it gives (view, shard, rows touched).

        Spark can't pass columns with dots or backticks in their names to Python, and a view may
        have such; so its columns have other names on the way to the sink.
        """
        plain = workers.plain(plan.columns)
        names = dict(zip(plan.names(), plain, strict=True))
        renamed = Project(plain, plan, tuple(map(Ref, plan.names())))
        frame = self.frame(renamed)
        if frame is None:
            return None
        by = tuple(frozenset(names[name].name for name in place) for place in keyed_by(plan, key))
        document = workers.view_document(plan.columns, key)
        slots = tuple((column.name, column.name) for column in plain)
        task = Task(self._told, document, state, ((0, slots),))
        placed, tasks = self._placed(frame, renamed, (*plain, WEIGHTED), by)
        sunk = placed.mapInArrow(partial(workers.sink, task, view), struct(DONE))
        self.duties.append(Duty(f"view {view}", state, tasks, placed, lambda: sunk))
        return sunk

    def ahead(self, node: Node) -> DataFrame | None:
        """An operator alone; those who read it then read what it gave when it was run."""
        found = self._task(node)
        self._frames[node.identity] = None
        if found is None:
            return None
        task, frame, tasks = found
        place = self._places.get(node.identity)
        at = place or self._states[node.identity]
        self._frames[node.identity] = self._read_shards(workers.handed, node, at)
        run: Callable[[Any], Any] = partial(workers.operate_ahead, task, place)
        done = frame.mapInArrow(run, struct(DONE))
        self._add_duty(node, task, tasks, frame, lambda: done)
        return done

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
        """Take this for the frame of a node."""
        self._frames[node.identity] = frame

    def frame(self, node: Node) -> DataFrame | None:
        for one in node.walk(self._ends):  # from below, as plans may be deeper than Python's stack
            if one.identity not in self._frames:
                self._frames[one.identity] = self._build(one)
        return self._frames[node.identity]

    def _ends(self, node: Node) -> bool:
        """Whether the frame of a node is made, or made without those of its inputs."""
        identity = node.identity
        return identity in self._frames or identity in self._kept or isinstance(node, Refresh)

    def _build(self, node: Node) -> DataFrame | None:
        check_node(node)
        if kept := self._kept.get(node.identity):
            return self._of_view(node, kept) if kept.key is not None else self._given(node, kept)
        if isinstance(node, Source):
            return self._source(node)
        if isinstance(node, Constant):
            return self._constant(node)
        if isinstance(node, Refresh):
            return self._refreshed(node)
        if isinstance(node, Filter | Project | Generate | Recompute):
            frame = self.frame(node.input)
            return None if frame is None else self._expressed(node, frame)
        if isinstance(node, Union):
            frames = [self.frame(part) for part in node.parts]
            names = self._named([*node.names(), WEIGHT])
            found = [frame.select(*names) for frame in frames if frame is not None]
            return _all(found) if found else None
        return self._operator(node)

    def _expressed(
        self, node: Filter | Project | Generate | Recompute, frame: DataFrame
    ) -> DataFrame:
        """What the engine computes, one row or one group after another."""
        if isinstance(node, Filter):
            return frame.where(self._open(asked(self._session, node.condition)))
        placed = self._named([WEIGHT] if distribution(node) is None else [WEIGHT, SHARD])
        if isinstance(node, Generate):
            fresh = ", ".join(map(quoted, node.names()[len(node.kept) :]))
            generator = asked(self._session, node.generator)
            made = self._f.expr(f"{generator} AS ({fresh})")
            made_rows = frame.select(*self._named(node.kept), *placed, made)
            return made_rows.select(*self._named(node.names()), *placed)
        names = node.names()
        fixed = names[: len(names) - len(node.expressions)]
        made = [self._computed(tree, node.input) for tree in node.expressions]
        made = [one.alias(name) for one, name in zip(made, names[len(fixed) :], strict=True)]
        if isinstance(node, Project) or node.rows_stay:
            return frame.select(*self._named(fixed), *made, *placed)
        return frame.groupBy(*self._named([*node.input.groups, WEIGHT])).agg(*made)

    def _open(self, condition: str) -> Any:
        """A condition of which no optimizer can say that it is never true, as for all it knows a
        weight may be NULL.

        Sail moves a condition that is `false`, and so uses no column, below Python functions: they
        would run, be given no rows, and note their end. Spark leaves such functions out, for which
        there are duties.
        """
        if isinstance(self._session, SparkSession):
            return condition
        return self._f.expr(condition) | self._f.col(WEIGHT).isNull()

    def _computed(self, tree: Tree, given: Node) -> Any:
        name = column_of(tree)
        if name is not None and name in given.names():
            return self._f.col(quoted(name))
        return self._f.expr(asked(self._session, tree))

    def _named(self, names: Iterable[str]) -> list[Any]:
        """Columns by name. Names and not texts, wherever it can be: a text is parsed in every
        epoch, and Sail keeps some kilobytes of each."""
        return [self._f.col(quoted(name)) for name in names]

    def _constant(self, node: Constant) -> DataFrame | None:
        """All of its rows are new when a view is loaded, and never again."""
        if self._step.start is not None:
            return None
        names = ", ".join(map(quoted, (*node.names(), WEIGHT)))
        asked_rows = ([asked(self._session, one) for one in row] for row in node.rows)
        rows = ", ".join(f"({', '.join((*row, '1L'))})" for row in asked_rows)
        if not rows:
            rows = f"({', '.join((*_nulls(node), '0L'))})"
        frame = self._session.sql(f"SELECT * FROM VALUES {rows} AS rows({names})")
        return frame if node.rows else frame.where("false")

    def _source(self, node: Source) -> DataFrame | None:
        return self._read(node, whole=False) if self._has_changed(node.table) else None

    def _has_changed(self, table: str) -> bool:
        return self._step.start is None or self._step.start[table] != self._step.end[table]

    def _refreshed(self, node: Refresh) -> DataFrame | None:
        """The rows of a query over whole tables, and one of weight 0, which says that there may be
        none. Within the query the tables are what a WITH around it calls so."""
        if not any(map(self._has_changed, node.tables())):
            return None
        frames: dict[str, Any] = {}
        called, query = [], asked(self._session, node.query)
        for i, source in enumerate(node.sources):
            rows = self._read(source, whole=True)
            frames[f"table_{i}"] = rows.select(*self._named(source.names()))
            for name in sorted(spellings(self._session, source.table, query)):
                called.append(f"{quoted(name)} AS (SELECT * FROM {{table_{i}}})")
        self.shuffles = True  # as the query likes
        text = f"WITH {', '.join(called)} SELECT * FROM (\n{verbatim(query)}\n)"
        known = [source.table for source in node.sources]
        found = ask(self._session, query, known, text, **frames)
        made = [
            self._f.col(column.name).cast(spark_type(column.type)).alias(column.name)
            for column in node.columns
        ]
        weight = self._f.lit(1).cast(spark_type(WEIGHTED.type)).alias(WEIGHT)
        return found.toDF(*node.names()).select(*made, weight).union(self._seed(node))

    def _read(self, node: Source, whole: bool) -> DataFrame:
        end = self._step.end[node.table]
        read = partial(workers.read, self._told, node.text, whole=whole)
        cores = min(len(end), os.cpu_count() or 1) if self._spread or whole else 1
        regions = self._shaped(self._session.range(0, len(end), 1, cores), [REGION])
        return regions.mapInArrow(read, struct((*node.columns, WEIGHTED)))

    def _given(self, node: Node, kept: Kept) -> DataFrame:
        """What an operator gave that has its state already."""
        return self._read_shards(workers.kept, node, kept.state)

    def _of_view(self, node: Node, kept: Kept) -> DataFrame:
        """The rows of a view, lying as those of its plan do."""
        assert kept.key is not None
        plain = workers.plain(node.columns)
        document = workers.view_document(node.columns, kept.key)
        read = partial(workers.shown, self._told, document, kept.state)
        frame = self._shards().mapInArrow(read, struct((*plain, WEIGHTED)))
        names, by = (
            dict(zip(node.names(), (one.name for one in plain), strict=True)),
            distribution(node),
        )
        placed = [WEIGHT]
        if by is not None:
            if by == UNNAMED:  # then nobody asks where they lie
                by = hashed(node, tuple(node.names()))
            by = tuple(frozenset(names[name] for name in place) for place in by)
            frame = frame.select("*", self._shard(by))
            frame = self._shuffled(self._shaped(frame, (*plain, WEIGHTED, SHARDED)))
            self._tasks[node.identity] = self._most_tasks
            placed = [WEIGHT, SHARD]
        shown = [self._f.col(own).alias(name) for name, own in names.items()]
        return frame.select(*shown, *self._named(placed))

    def _read_shards(self, read: Callable[..., Any], node: Node, state: str) -> DataFrame:
        made = partial(read, self._told, node.alone, state)
        self._tasks[node.identity] = self._most_tasks
        return self._shards().mapInArrow(made, struct((*node.columns, WEIGHTED, SHARDED)))

    def _shards(self) -> DataFrame:
        shards = self._session.range(0, len(self._step.shards), 1, self._most_tasks)
        return self._shaped(shards, [REGION])

    def _operator(self, node: Node) -> DataFrame | None:
        found = self._task(node)
        if found is None:
            return None
        task, frame, tasks = found
        operate: Callable[[Any], Any] = partial(workers.operate, task)
        alone: Callable[[Any], Any] = partial(workers.operate_ahead, task, None)
        self._tasks[node.identity] = tasks
        self._add_duty(node, task, tasks, frame, lambda: frame.mapInArrow(alone, struct(DONE)))
        return frame.mapInArrow(operate, struct((*node.columns, WEIGHTED, SHARDED)))

    def _task(self, node: Node) -> tuple[Task, DataFrame, int] | None:
        """What an operator is to do, with which rows, and in how many tasks."""
        frames = [self.frame(one) for one in node.inputs()]
        present = {i: frame for i, frame in enumerate(frames) if frame is not None}
        if not present:
            return None
        if len(present) == 1:
            ((place, frame),) = present.items()
            slots, frame, tasks = self._alone(node, place, frame)
        else:
            slots, frame, tasks = self._together(node, present)
        inputs = tuple(zip(present, slots, strict=True))
        return Task(self._told, node.alone, self._states.get(node.identity), inputs), frame, tasks

    def _is_seeded(self, node: Node) -> bool:
        """A global aggregate has a row even over nothing: a row of weight 0 makes it, in the
        partition of the others."""
        return node.has_row_of_nothing() and self._step.start is None

    def _seed(self, node: Node) -> DataFrame:
        """A row of weight 0 and NULLs beside those of a node; in the first shard, if those lie."""
        shard = [] if distribution(node) is None else [str(self._step.shards[0])]
        return self._session.sql(f"SELECT {', '.join([*_nulls(node), '0L', *shard])}")

    def _alone(
        self, node: Node, place: int, frame: DataFrame
    ) -> tuple[list[Slots], DataFrame, int]:
        """The one input that has rows, where its shards are; an aggregate's perhaps added up."""
        given, by = node.inputs()[place], shards_by(node)[place]
        columns = (*given.columns, WEIGHTED)
        if self._is_seeded(node):
            frame = frame.union(self._seed(given))
        if self._spread and not lies(given, by):
            partial_columns = operator_for(node).partial_columns
            if partial_columns is not None:
                names = self._named(column.name for column in columns)
                frame = self._shaped(frame.select(*names), columns)
                combine = partial(workers.partial_of, node.alone)
                frame, columns = frame.mapInArrow(combine, struct(partial_columns)), partial_columns
        slots = tuple((column.name, column.name) for column in columns)
        frame, tasks = self._placed(frame, given, columns, by)
        if self._is_seeded(node) and lies(given, by):
            # these rows are not shuffled, and the seed is to be with them
            frame, tasks = frame.coalesce(1), 1
        return [slots], frame, tasks

    def _together(
        self, node: Node, present: Mapping[int, DataFrame]
    ) -> tuple[list[Slots], DataFrame, int]:
        """Several inputs in one frame: columns of one type share a slot, and a side says whose."""
        slots, shared = _slots([node.inputs()[place].columns for place in present])
        parts = []
        for (place, frame), mine in zip(present.items(), slots, strict=True):
            named = {slot: self._f.col(quoted(name)) for name, slot in mine}
            filled = [
                named.get(slot.name, self._f.lit(None).cast(spark_type(slot.type))).alias(slot.name)
                for slot in shared
            ]
            side = self._f.lit(place).alias(SIDE)
            by = shards_by(node)[place]
            lies_right = lies(node.inputs()[place], by)
            shard = self._f.col(SHARD) if lies_right else self._shard(by)
            parts.append(frame.select(*filled, *self._named([WEIGHT]), side, shard))
        columns = (*shared, WEIGHTED, Column(SIDE, pa.int32()), SHARDED)
        frame = self._shuffled(self._shaped(_all(parts), columns))
        return [(*mine, (WEIGHT, WEIGHT)) for mine in slots], frame, self._most_tasks

    def _placed(
        self, frame: DataFrame, node: Node, columns: Sequence[Column], by: Distribution
    ) -> tuple[DataFrame, int]:
        """Rows of one shard in one partition, and in how many partitions they are."""
        names = self._named(column.name for column in columns)
        if lies(node, by):
            names += self._named([SHARD])
            frame = self._shaped(frame.select(*names), (*columns, SHARDED))
            if not self._deals_out(node):
                return frame, self._tasks_of(node)
            return self._shuffled(frame), self._most_tasks
        frame = frame.select(*names, self._shard(by))
        return self._shuffled(self._shaped(frame, (*columns, SHARDED))), self._most_tasks

    def _deals_out(self, node: Node) -> bool:
        """Whether rows of one shard may be in several tasks though they lie in shards: to have work
        for all cores, Sail deals out batches before it filters or computes. The tasks would take
        each other's place in the state."""
        if isinstance(self._session, SparkSession):
            return False
        while node.identity not in self._tasks:
            chooses = isinstance(node, Project) and all(map(column_of, node.expressions))
            if not chooses:
                return True
            (node,) = node.inputs()
        return False

    def _tasks_of(self, node: Node) -> int:
        """In how many tasks the rows of a node are that lie in shards."""
        while node.identity not in self._tasks:
            (node,) = node.inputs()
        return self._tasks[node.identity]

    @property
    def _most_tasks(self) -> int:
        return len(self._step.shards) if self._spread else 1

    def _shard(self, by: Distribution) -> Any:
        """The shard of a row; every shard, where all are to have it."""
        shards = self._step.shards
        if by is None:
            return self._f.explode(self._f.array(*map(self._f.lit, shards))).alias(SHARD)
        names = self._named(min(place) for place in by)
        if not names:
            return self._f.lit(shards[0]).alias(SHARD)
        number = self._f.pmod(self._f.xxhash64(*names), self._f.lit(len(shards)))
        every = self._f.array(*map(self._f.lit, shards))
        shard = self._f.element_at(every, (number + 1).cast(IntegerType()))
        return shard.alias(SHARD)

    def _shaped(self, frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
        """A frame that goes to Python. With Spark Connect it says its schema, since asking for it
        is a round trip."""
        return frame if isinstance(self._session, SparkSession) else frame.to(struct(columns))

    def _shuffled(self, frame: DataFrame) -> DataFrame:
        if self._spread:
            return frame.repartition(self._most_tasks, self._f.col(SHARD))
        return frame.coalesce(1)


def spellings(session: SparkSession, name: str, sql: str) -> set[str]:
    """What a relation has to be called in a query: Sail finds one only by the case that it has."""
    if isinstance(session, SparkSession):
        return {name}
    return {name, *re.findall(re.escape(name), sql, re.IGNORECASE)}


def _nulls(node: Node) -> list[str]:
    return [f"CAST(NULL AS {sql_name(column.type)})" for column in node.columns]


def _all(frames: list[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.union(other), frames)


def _slots(sides: list[tuple[Column, ...]]) -> tuple[list[Slots], list[Column]]:
    """A slot for each column of each side, shared between sides, and all the slots."""
    slots: list[Column] = []
    found = []
    for columns in sides:
        free = list(slots)
        mine = []
        for column in columns:
            slot = next((one for one in free if one.type == column.type), None)
            if slot is None:
                slot = Column(f"slot_{len(slots)}", column.type)
                slots.append(slot)
            else:
                free.remove(slot)
            mine.append((column.name, slot.name))
        found.append(tuple(mine))
    return found, slots
