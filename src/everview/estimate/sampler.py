"""Samples of tables for estimates: rows come from the store, and the engine computes on them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from everview.delta import WEIGHT, weighted
from everview.errors import EverviewError
from everview.operators.aggregate import AggregateOperator
from everview.operators.base import MemoryState
from everview.plan.conditions import passing
from everview.plan.estimates import STATELESS, not_null
from everview.plan.expressions import column_of
from everview.plan.nodes import Aggregate, Filter, Node, Project, Source
from everview.plan.statistics import RANGE
from everview.programs.computed import PLACED, WEIGHTED
from everview.programs.program import Program
from everview.programs.reading import names_read
from everview.programs.step import Step
from everview.programs.workers import PLACE
from everview.schema import Column, quoted
from everview.spark.types import struct

if TYPE_CHECKING:
    from everview.stores.base import Store


class Sampler:
    """The `Samples` of a database as it is now."""

    def __init__(self, store: Store, session: SparkSession) -> None:
        self._store = store
        self._session = session
        self.rows = lru_cache(None)(self._rows)

    def _rows(self, table: str) -> int:
        return sum(region.rows for region in self._store.status(table))

    def key(self, table: str) -> tuple[str, ...]:
        return self._store.describe(table).key

    def sample(self, source: Source) -> tuple[pa.Table, int]:
        rows = self._store.sample(source.table, names_read(source))
        return _passing(source, rows, RANGE), rows.num_rows

    def find(self, source: Source, keys: pa.Table) -> pa.Table:
        rows, _ = self._store.get(source.table, keys, names_read(source))
        return _passing(source, rows)

    def aggregate(self, node: Aggregate, rows: pa.Table) -> pa.Table | None:
        ranged = Column(RANGE, pa.int32())
        below = replace(node.input, columns=(*node.input.columns, ranged))
        groups = len(node.groups)
        columns = (*node.columns[:groups], ranged, *node.columns[groups:])
        node = replace(node, input=below, groups=(*node.groups, RANGE), columns=columns)
        try:
            groups_of_ranges = AggregateOperator(node).apply([weighted(rows, 1)], MemoryState())
        except EverviewError:  # a sum that doesn't fit its type
            return None
        names = [column.name for column in columns if column != ranged]
        return groups_of_ranges.select([*names, RANGE])

    def compute(self, node: Node, below: Node, rows: pa.Table) -> pa.Table | None:
        result = _plainly(node, below, rows)
        if result is not None:
            return result
        step = Step("", (0,), 0, 0, None, {})
        program = Program(self._session, step, {})
        input_rows = rows.select([*below.names(), RANGE]).rename_columns([*below.names(), WEIGHT])
        input_rows = input_rows.append_column(PLACE, pa.array(np.zeros(len(rows), np.int32)))
        schema = struct((*below.columns, WEIGHTED, PLACED))
        try:
            program.put(below, self._session.createDataFrame(input_rows, schema).coalesce(1))
            frame = program.frame(node)
            assert frame is not None
            result = frame.select(*map(quoted, (*node.names(), WEIGHT))).toArrow()
        except (PySparkException, Py4JJavaError):
            return None  # the sample may have rows for which the plan would not compute this
        return result.rename_columns([*node.names(), RANGE])


def _passing(source: Source, rows: pa.Table, *others: str) -> pa.Table:
    """The rows of a table that pass the source's conditions, by the source's names."""
    if source.where:
        rows = rows.filter(passing(source.where, rows))
    return rows.select([*source.read, *others]).rename_columns([*source.names(), *others])


def _plainly(node: Node, below: Node, rows: pa.Table) -> pa.Table | None:
    """The result of nodes that only choose columns and remove NULLs; None if one does more."""
    if node is below:
        return rows
    assert isinstance(node, STATELESS)
    input_rows = _plainly(node.input, below, rows)
    if input_rows is None:
        return None
    if isinstance(node, Filter):
        names = not_null(node)
        return None if names is None else _without_nulls(input_rows, names)
    if not isinstance(node, Project):
        return None
    chosen = [name for tree in node.expressions if (name := column_of(tree)) is not None]
    if len(chosen) < len(node.expressions) or not set(chosen) <= set(node.input.names()):
        return None
    return input_rows.select([*chosen, RANGE]).rename_columns([*node.names(), RANGE])


def _without_nulls(rows: pa.Table, names: list[str]) -> pa.Table:
    for name in names:
        rows = rows.filter(rows[name].is_valid()) if rows[name].null_count else rows
    return rows
