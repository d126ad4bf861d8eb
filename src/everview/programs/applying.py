"""What is done to one part in a step: an operator or the sink of a view, applied once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from everview.delta import WEIGHT, weighted
from everview.operators.base import MemoryState, Operator
from everview.operators.registry import operator_for
from everview.operators.sink import ViewSink
from everview.plan.nodes import Node, node_of
from everview.programs.step import Step
from everview.programs.turns import turn
from everview.ring.parts import Part
from everview.schema import Column
from everview.state import State
from everview.stores import shared_store
from everview.stores.base.states import CountedState

Work = Callable[[Any], tuple[pa.Table, int]]


@dataclass(frozen=True)
class StatePart:
    """A part of a state in a step; a `state` None computes without keeping any. `rows_of_slots`
    says how many rows came to each slot, if that is known."""

    step: Step
    state: str | None
    part: Part
    rows_of_slots: np.ndarray | None = None

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
            state.tally.rows_of_slots = self.rows_of_slots
            return output

        step = self.step
        shard = shared_store(step.address, readonly=False).states.shard(self.state, self.part.shard)
        if step.start is None:
            return shard.load(step.epoch, step.token, timed_work)
        log_after = step.logs.get(self.state)
        return shard.apply(step.epoch, step.token, timed_work, log_after, self.part.slots)


def apply_operator(
    part: StatePart, operator: Operator, deltas: list[pa.Table], rows_in: int
) -> pa.Table:
    """The output of an operator for the deltas of its inputs in a part."""

    def work(state: State) -> tuple[pa.Table, int]:
        output = operator.apply(deltas, state)
        return output, output.num_rows

    return part.once(rows_in, work)


def apply_sink(part: StatePart, sink: ViewSink, delta: pa.Table) -> int:
    """Write the rows of a view in a part; returns how many it touched."""
    epoch = part.step.epoch

    def work(state: CountedState) -> tuple[pa.Table, int]:
        touched = sink.apply(delta, state, epoch, epoch - 1)
        if part.state in part.step.logs:
            state.log = touched.log()
        number = len(touched.after)
        return pa.table({"touched": pa.array([number], pa.int64())}), number

    touched: int = part.once(delta.num_rows, work)["touched"][0].as_py()
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
