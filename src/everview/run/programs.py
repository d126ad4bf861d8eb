"""Programs of epochs, made once and run again.

To make the DataFrames of an epoch and to plan them takes Spark longer than a small epoch's work.
So there a program doesn't say which epoch it is for: each of its jobs does, in a local property
that its tasks see. A task left over from an earlier job can't take part in a later epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from everview.delta import weights_of
from everview.plan.nodes import Node, node_of
from everview.run.rounds import Program
from everview.run.workers import STEP, Step

View = dict[str, Any]
_KEPT = 16


class Programs:
    """The programs of one session; Spark Connect has no local properties, and makes them anew."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._again = isinstance(session, SparkSession)
        self._made: dict[Any, DataFrame | None] = {}

    def run(self, views: list[View], step: Step, states: Mapping[str, str]) -> int:
        """One program for the views' part of a step; returns the view rows touched."""
        if step.start is None or not self._again:
            return _touched(self._make(views, Program(self._session, step, states)))
        shape = _shape(views, step)
        whole = self._made.pop(shape, None)
        if whole is None:
            program = Program(self._session, step, states, any_epoch=True)
            whole = self._make(views, program)
        self._made[shape] = whole
        if len(self._made) > _KEPT:
            self._made.pop(next(iter(self._made)))
        if whole is not None and step.is_spread:
            whole = whole.select("*")  # what a plan has shuffled once, it would not shuffle again
        context = self._session.sparkContext
        context.setLocalProperty(STEP, step.to_json())
        try:
            return _touched(whole)
        finally:
            context.setLocalProperty(STEP, "")

    def _make(self, views: list[View], program: Program) -> DataFrame | None:
        sinks = [
            program.sink(
                view["name"], node_of(view["plan"]), tuple(view["key"]), view["states"]["view"]
            )
            for view in views
        ]
        frames = [frame for frame in sinks if frame is not None]
        return reduce(lambda one, other: one.union(other), frames) if frames else None


def recompute(
    session: SparkSession, db: str, plan: Node, positions: Mapping[str, Mapping[Any, int]]
) -> pa.Table:
    """The rows that a plan gives, from tables as they were at some positions and without state."""
    end = {t: {int(r): n for r, n in regions.items()} for t, regions in positions.items()}
    step = Step(db, "never", (0,), 0, 0, None, end)
    frame = Program(session, step, {}).frame(plan)
    assert frame is not None
    found = frame.toArrow()
    counts = weights_of(found)
    rows = found.select(plan.names())
    return rows.take(pa.array(np.repeat(np.arange(len(counts)), counts)))


def _shape(views: list[View], step: Step) -> Any:
    """Equal for steps that have equal programs. A view's state belongs to one plan."""
    assert step.start is not None
    regions = tuple((t, len(end)) for t, end in step.end.items() if end != step.start[t])
    return tuple(view["states"]["view"] for view in views), regions, step.shards, step.is_spread


def _touched(whole: DataFrame | None) -> int:
    return 0 if whole is None else sum(row["touched"] for row in whole.collect())
