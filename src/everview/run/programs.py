"""Programs of epochs, made once and run again.

To make the DataFrames of an epoch and to plan them takes longer than a small epoch's work. So a
program doesn't say which epoch it is for, but each of its jobs does: on Spark in a local property
that its tasks see; on Sail, whose Python is this process, among the steps that are running. A task
left over from an earlier job can't take part in a later epoch: Spark's has its own property, and
on Sail a program of which a job failed is not run again.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from everview.delta import weights_of
from everview.plan.nodes import Node, node_of
from everview.run.rounds import Program
from everview.run.workers import RUNNING, STEP, Step

View = dict[str, Any]
_KEPT = 16


@dataclass(frozen=True)
class _Made:
    """A program for any epoch: its name and its frame, if any change can reach a view."""

    name: str
    whole: DataFrame | None
    shuffles: bool


class Programs:
    """The programs of one session. With `here`, the engine's Python is this process.

    Another engine over Spark Connect is told neither way, and its programs are made anew.
    """

    def __init__(self, session: SparkSession, here: bool) -> None:
        self._session = session
        self._here = here
        self._again = here or isinstance(session, SparkSession)
        self._made: dict[Any, _Made] = {}

    def run(self, views: list[View], step: Step, states: Mapping[str, str]) -> int:
        """One program for the views' part of a step; returns the view rows touched."""
        if step.start is None or not self._again:
            there = {i: state for view in views for i, state in view["states"].items()}
            kept = {i: state for i, state in there.items() if i not in states}
            return _touched(self._make(views, Program(self._session, step, states, kept=kept)))
        shape = _shape(views, step)
        made = self._made.pop(shape) if shape in self._made else None
        made = made or self._named(views, step, states)
        try:
            found = self._here_for(made, step) if self._here else self._job(made, step)
        except BaseException:
            self._forget(made)
            raise
        self._made[shape] = made
        if len(self._made) > _KEPT:
            self._forget(self._made.pop(next(iter(self._made))))
        return found

    def _job(self, made: _Made, step: Step) -> int:
        whole = made.whole
        if whole is not None and made.shuffles:
            whole = whole.select("*")  # what a plan has shuffled once, it would not shuffle again
        context = self._session.sparkContext
        context.setLocalProperty(STEP, step.to_json())
        try:
            return _touched(whole)
        finally:
            context.setLocalProperty(STEP, "")

    def _here_for(self, made: _Made, step: Step) -> int:
        RUNNING[made.name] = step
        try:
            return _touched(made.whole)
        finally:
            del RUNNING[made.name]

    def _named(self, views: list[View], step: Step, states: Mapping[str, str]) -> _Made:
        """A program for any epoch. One over Spark Connect would be sent whole with every job: as a
        temporary view it is sent, and resolved, once."""
        name = f"program_{uuid.uuid4().hex}"
        program = Program(self._session, step, states, name=name)
        whole = self._make(views, program)
        if whole is not None and self._here:
            whole.createOrReplaceTempView(name)
            whole = self._session.table(name)
        return _Made(name, whole, program.shuffles)

    def _forget(self, made: _Made) -> None:
        if self._here:
            self._session.catalog.dropTempView(made.name)

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
    """Equal for steps that have equal programs. A state belongs to one operator of one plan; after
    a maintainer was superseded in the middle of a write, it may go on in another place."""
    assert step.start is not None
    states = tuple(tuple(sorted(view["states"].items())) for view in views)
    regions = tuple((t, len(end)) for t, end in step.end.items() if end != step.start[t])
    return states, regions, step.shards, step.is_spread


def _touched(whole: DataFrame | None) -> int:
    return 0 if whole is None else sum(row["touched"] for row in whole.collect())
