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

from everview.catalog import Positions, ViewRecord
from everview.delta import weights_of
from everview.errors import UnsupportedSql
from everview.plan.jobs import MOST_TOGETHER, Jobs, jobs, size_alone
from everview.plan.nodes import Node
from everview.programs.left_out import run_left_out, touched
from everview.programs.program import Duty, Kept, Program
from everview.programs.step import Step
from everview.programs.workers import RUNNING, STEP

_KEPT = 16


@dataclass(frozen=True)
class _Made:
    """A program for any epoch: its name, and the frames of its jobs."""

    name: str
    jobs: list[DataFrame]
    duties: list[Duty]
    shuffles: bool


@dataclass(frozen=True)
class Load:
    """What it takes to load a view: where operators are to have their state that have none yet,
    what is there of other views, the jobs, and places for what goes from one to another."""

    fresh: Mapping[str, str]
    kept: Mapping[str, Kept]
    jobs: Jobs
    places: Mapping[str, str]


class Programs:
    """The programs of one session. With `here`, the engine's Python is this process.

    Another engine over Spark Connect is told neither way, and its programs are made anew.
    """

    def __init__(self, session: SparkSession, here: bool) -> None:
        self._session = session
        self._here = here
        self._again = here or isinstance(session, SparkSession)
        self._made: dict[Any, _Made] = {}

    def load(self, view: ViewRecord, step: Step, load: Load) -> int:
        """Load one view; returns its rows."""
        program = Program(self._session, step, load.fresh, kept=load.kept, places=load.places)
        rows = sum(map(touched, self._make([view], program, load.jobs)))
        return rows + run_left_out(program.duties, step)

    def run(self, views: list[ViewRecord], step: Step, states: Mapping[str, str]) -> int:
        """One program for the views' part of an epoch; returns the view rows touched."""
        if not self._again:
            program = Program(self._session, step, states)
            rows = sum(map(touched, self._make(views, program, _jobs(views, step))))
            return rows + run_left_out(program.duties, step)
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
        context = self._session.sparkContext
        context.setLocalProperty(STEP, step.to_json())
        try:
            # what a plan has shuffled once, it would not shuffle again
            again = [job.select("*") if made.shuffles else job for job in made.jobs]
            return sum(map(touched, again)) + run_left_out(made.duties, step)
        finally:
            context.setLocalProperty(STEP, "")

    def _here_for(self, made: _Made, step: Step) -> int:
        RUNNING[made.name] = step
        try:
            return sum(map(touched, made.jobs)) + run_left_out(made.duties, step)
        finally:
            del RUNNING[made.name]

    def _named(self, views: list[ViewRecord], step: Step, states: Mapping[str, str]) -> _Made:
        """A program for any epoch. One over Spark Connect would be sent whole with every job: as a
        temporary view it is sent, and resolved, once."""
        name = f"program_{uuid.uuid4().hex}"
        program = Program(self._session, step, states, name=name)
        made = self._make(views, program, _jobs(views, step))
        if self._here:
            for number, frame in enumerate(made):
                frame.createOrReplaceTempView(f"{name}_{number}")
            made = [self._session.table(f"{name}_{number}") for number in range(len(made))]
        return _Made(name, made, program.duties, program.shuffles)

    def _forget(self, made: _Made) -> None:
        for number in range(len(made.jobs)) if self._here else ():
            self._session.catalog.dropTempView(f"{made.name}_{number}")

    def _make(self, views: list[ViewRecord], program: Program, found: Jobs) -> list[DataFrame]:
        """The frames of jobs, one to be run after the other."""
        ahead = [[program.ahead(node) for node in part] for part in found.ahead]
        sinks = [[_sink(program, views[at]) for at in part] for part in found.last]
        present = [[one for one in part if one is not None] for part in (*ahead, *sinks)]
        return [reduce(lambda one, other: one.union(other), part) for part in present if part]


def _sink(program: Program, view: ViewRecord) -> DataFrame | None:
    return program.sink(view.name, view.plan, view.key, view.rows)


def _jobs(views: list[ViewRecord], step: Step) -> Jobs:
    start = step.start or {}
    changed = {table for table, end in step.end.items() if start.get(table) != end}
    return jobs([view.plan for view in views], changed=changed)


def recompute(session: SparkSession, address: str, plan: Node, positions: Positions) -> pa.Table:
    """The rows that a plan gives, from tables as they were at some positions and without state."""
    if size_alone(plan) > MOST_TOGETHER:
        raise UnsupportedSql(
            f"the plan of this view reads its parts so often that it takes {size_alone(plan):,} "
            "operators to compute it at once; verify the views that it reads, one by one"
        )
    step = Step(address, (0,), 0, 0, None, positions)
    frame = Program(session, step, {}).frame(plan)
    assert frame is not None
    found = frame.toArrow()
    counts = weights_of(found)
    rows = found.select(plan.names())
    return rows.take(pa.array(np.repeat(np.arange(len(counts)), counts)))


def _shape(views: list[ViewRecord], step: Step) -> Any:
    """Equal for steps that have equal programs. A state belongs to one operator of one plan; after
    a maintainer was superseded in the middle of a write, it may go on in another place."""
    assert step.start is not None
    states = tuple(tuple(sorted(view.states.items())) for view in views)
    regions = tuple((t, len(end)) for t, end in step.end.items() if end != step.start[t])
    return states, regions, step.shards, step.is_spread
