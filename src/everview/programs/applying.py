"""What is done to one shard in a step: an operator or the sink of a view, applied once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from everview.delta import WEIGHT, weighted
from everview.operators.base import MemoryState, Operator
from everview.operators.registry import operator_for
from everview.operators.sink import ViewSink
from everview.plan.nodes import Node, node_of
from everview.programs.step import Step
from everview.programs.turns import turn
from everview.schema import Column
from everview.state import State
from everview.stores import shared_store
from everview.stores.base.states import CountedState

Work = Callable[[Any], tuple[pa.Table, int]]


@dataclass(frozen=True)
class ShardPlace:
    """A shard of a state in a step; a `state` None computes without keeping any."""

    step: Step
    state: str | None
    shard: int

    def once(self, rows_in: int, work: Work) -> pa.Table:
        """Do `work` in a turn, once for each epoch; it returns its output and how many rows to
        count for it."""
        if self.state is None:
            with turn:
                return work(MemoryState())[0]

        def timed_work(state: CountedState) -> pa.Table:
            with turn:
                begun = time.perf_counter_ns()
                output, rows_out = work(state)
                state.tally.nanoseconds += time.perf_counter_ns() - begun
            state.tally.rows_in, state.tally.rows_out = rows_in, rows_out
            return output

        step = self.step
        shard = shared_store(step.address, readonly=False).states.shard(self.state, self.shard)
        if step.start is None:
            return shard.load(step.epoch, step.token, timed_work)
        return shard.apply(step.epoch, step.token, timed_work, step.logs.get(self.state))


def apply_operator(
    place: ShardPlace, operator: Operator, deltas: list[pa.Table], rows_in: int
) -> pa.Table:
    """The output of an operator for the deltas of its inputs in a shard."""

    def work(state: State) -> tuple[pa.Table, int]:
        output = operator.apply(deltas, state)
        return output, output.num_rows

    return place.once(rows_in, work)


def apply_sink(place: ShardPlace, sink: ViewSink, delta: pa.Table) -> int:
    """Write the rows of a view in a shard; returns how many it touched."""
    epoch = place.step.epoch

    def work(state: CountedState) -> tuple[pa.Table, int]:
        touched = sink.apply(delta, state, epoch, epoch - 1)
        if place.state in place.step.logs:
            state.log = touched.log()
        number = len(touched.after)
        return pa.table({"touched": pa.array([number], pa.int64())}), number

    touched: int = place.once(delta.num_rows, work)["touched"][0].as_py()
    return touched


@lru_cache(1024)
def operator_of(document: str) -> Operator:
    return operator_for(node_of(document))


@lru_cache(1024)
def empty_delta(node: Node) -> pa.Table:
    schema = pa.schema([pa.field(column.name, column.type) for column in node.columns])
    return weighted(schema.empty_table(), 0)


def named_delta(delta: pa.Table, columns: tuple[Column, ...]) -> pa.Table:
    """A delta with the names of a node's columns."""
    fields = [pa.field(column.name, column.type) for column in columns]
    schema = pa.schema([*fields, pa.field(WEIGHT, pa.int64())])
    return pa.Table.from_arrays(delta.columns, schema=schema)
