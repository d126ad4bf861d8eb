"""A view's plan as one Spark program for an epoch, through the public DataFrame API only.

What runs in Python workers is here too: reading changes, and applying operators to shards. It is
told everything in plain data, and writes each (operator, shard, epoch) once, however often Spark
runs a task.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from everview.delta import WEIGHT, weighted
from everview.errors import UnsupportedSql
from everview.operators.aggregate import AggregateOperator
from everview.operators.sink import ViewSink
from everview.plan.nodes import Aggregate, Filter, Node, Project, Source
from everview.schema import Column, quoted, sql_name
from everview.stores.embedded import EmbeddedStore

SHARD = "_shard"
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Step:
    """One epoch of one view: which changes of which tables, and where its state is.

    `start` None means a load: all rows as of `end` instead of the changes since `start`.
    """

    db: str
    state: str
    shards: int
    epoch: int
    start: Mapping[str, Mapping[int, int]] | None
    end: Mapping[str, Mapping[int, int]]


def program(session: SparkSession, plan: Node, key: tuple[str, ...], step: Step) -> DataFrame:
    """The whole plan and its sink; running it gives (shard, rows touched).

    Spark can't pass columns with dots or backticks in their names to Python, and a view may have
    such; so its columns have other names on the way to the sink.
    """
    plain = tuple(replace(column, name=f"column_{i}") for i, column in enumerate(plan.columns))
    frame = _Rounds(session, step).frame(replace(plan, columns=plain))
    columns = [column.to_json() for column in plan.columns]
    sink = partial(_sink, step, json.dumps([columns, list(key)]))
    keys = [plain[i] for i, column in enumerate(plan.columns) if column.name in key]
    return _sharded(frame, keys, step).mapInArrow(sink, "shard INT, touched BIGINT")


class _Rounds:
    """Builds frames for plan nodes; operators are numbered in the order they are met."""

    def __init__(self, session: SparkSession, step: Step) -> None:
        self._session = session
        self._step = step
        self._operators = 0

    def frame(self, node: Node) -> DataFrame:
        if isinstance(node, Source):
            return self._source(node)
        if isinstance(node, Filter):
            return self.frame(node.input).where(node.condition)
        if isinstance(node, Project):
            made = zip(node.expressions, node.columns, strict=True)
            texts = [f"{text} AS {quoted(column.name)}" for text, column in made]
            return self.frame(node.input).selectExpr(*texts, WEIGHT)
        if isinstance(node, Aggregate):
            return self._aggregate(node)
        raise UnsupportedSql(f"a plan with {node.kind} can't be run yet")

    def _source(self, node: Source) -> DataFrame:
        regions = len(self._step.end[node.table])
        read = partial(_read, self._step, node.table, list(node.read), node.columns)
        frame = self._session.range(0, regions, 1, regions)
        return frame.mapInArrow(read, _ddl(node.columns))

    def _aggregate(self, node: Aggregate) -> DataFrame:
        frame = self.frame(node.input)
        if self._step.start is None and not node.groups:
            nulls = [f"CAST(NULL AS {sql_name(column.type)})" for column in node.input.columns]
            frame = frame.union(self._session.sql(f"SELECT {', '.join([*nulls, '0L'])}"))
        self._operators += 1
        apply = partial(
            _operate, self._step, self._operators, json.dumps(node.to_json()), node.columns
        )
        groups = list(node.columns[: len(node.groups)])
        return _sharded(frame, groups, self._step).mapInArrow(apply, _ddl(node.columns))


def _sharded(frame: DataFrame, keys: list[Column], step: Step) -> DataFrame:
    """Rows of one shard meet in one partition.

    Floats have no part in it: equal ones may differ in their bits, and so in their hash.
    """
    names = ", ".join(quoted(key.name) for key in keys if not pa.types.is_floating(key.type))
    shard = f"CAST(pmod(xxhash64({names}), {step.shards}) AS INT)" if names else "0"
    return frame.selectExpr("*", f"{shard} AS {SHARD}").repartition(step.shards, SHARD)


def _ddl(columns: tuple[Column, ...]) -> str:
    fields = [f"{quoted(column.name)} {sql_name(column.type)}" for column in columns]
    return ", ".join([*fields, f"{WEIGHT} BIGINT"])


@lru_cache(8)
def _store(db: str, readonly: bool) -> EmbeddedStore:
    return EmbeddedStore(db, readonly=readonly)


def _read(
    step: Step, table: str, names: list[str], columns: tuple[Column, ...], regions: Batches
) -> Batches:
    """The delta of a table: before-images with -1, after-images with +1."""
    store = _store(step.db, True)
    for batch in regions:
        for region in batch.column(0).to_pylist():
            end = step.end[table][region]
            if step.start is None:
                scan = store.scan(table, names, region=region, at={region: end}, ordered=False)
                for rows in scan:
                    yield from _renamed(weighted(pa.Table.from_batches([rows]), 1), columns)
                continue
            for changes in store.changes(table, region, step.start[table][region], end, names):
                for image, weight in (("before", -1), ("after", 1)):
                    found = changes.column(image).drop_null()
                    rows_ = pa.Table.from_arrays(found.flatten(), names=names)
                    yield from _renamed(weighted(rows_, weight), columns)


def _renamed(delta: pa.Table, columns: tuple[Column, ...]) -> Batches:
    fields = [pa.field(column.name, column.type) for column in columns]
    schema = pa.schema([*fields, pa.field(WEIGHT, pa.int64())])
    yield from pa.Table.from_arrays(delta.columns, schema=schema).combine_chunks().to_batches()


@lru_cache(64)
def _operator(document: str) -> AggregateOperator:
    node = Node.from_json(json.loads(document))
    assert isinstance(node, Aggregate)
    return AggregateOperator(node)


def _operate(
    step: Step, number: int, document: str, columns: tuple[Column, ...], batches: Batches
) -> Batches:
    operator = _operator(document)
    for shard, delta in _by_shard(batches):
        state = _store(step.db, False).shard(f"{step.state}/{number}", shard)
        given = state.apply(step.epoch, partial(operator.apply, delta))
        yield from _renamed(given, columns)


@lru_cache(64)
def _view_sink(document: str) -> ViewSink:
    columns, key = json.loads(document)
    return ViewSink(tuple(Column.from_json(column) for column in columns), tuple(key))


def _sink(step: Step, document: str, batches: Batches) -> Batches:
    sink = _view_sink(document)
    names = [column.name for column in sink.columns]
    for shard, delta in _by_shard(batches):
        delta = delta.rename_columns([*names, WEIGHT])
        state = _store(step.db, False).shard(f"{step.state}/view", shard)

        def work(rows: Any, delta: pa.Table = delta) -> pa.Table:
            touched = sink.apply(delta, rows, step.epoch, step.epoch - 1)
            return pa.table({"touched": pa.array([touched], pa.int64())})

        done = state.apply(step.epoch, work)["touched"].to_pylist()
        yield pa.record_batch(
            {"shard": pa.array([shard], pa.int32()), "touched": pa.array(done, pa.int64())}
        )


def _by_shard(batches: Batches) -> Iterator[tuple[int, pa.Table]]:
    """A partition's rows by shard; a partition may hold any number of shards, or none."""
    held = list(batches)
    if not held:
        return
    table = pa.Table.from_batches(held).combine_chunks()
    shards = table[SHARD].to_numpy()
    for shard in sorted(set(shards.tolist())):
        yield shard, table.filter(pa.array(shards == shard)).drop_columns(SHARD)
