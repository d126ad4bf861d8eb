"""Programs of epochs, built once and run again.

To build and plan the DataFrames of an epoch takes longer than a small epoch's work. So a program
doesn't say which epoch it is for, but each of its jobs does: on Spark in a local property that its
tasks see; on Sail, whose Python is this process, in `RUNNING`. A task left over from an earlier job
can't take part in a later epoch: on Spark it has its own property, and on Sail a program never runs
again after one of its jobs failed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from everview.catalog import Positions, ViewRecord
from everview.delta import weights_of
from everview.errors import UnsupportedSql
from everview.plan.jobs import MOST_TOGETHER, Jobs, jobs, size_in_one_job
from everview.plan.nodes import Node
from everview.programs import direct
from everview.programs.left_out import run_left_out, touched
from everview.programs.program import Duty, Program, StoredRows
from everview.programs.step import Step
from everview.programs.workers import RUNNING, STEP

_MOST_PROGRAMS = 16


@dataclass(frozen=True)
class _ReusableProgram:
    """A program for any epoch: its name, and the frames of its jobs."""

    name: str
    jobs: list[DataFrame]
    duties: list[Duty]
    shuffles: bool


@dataclass(frozen=True)
class Load:
    """What it takes to load a view: places for the state of operators that have none yet, the rows
    that other views have stored, the jobs, and places for rows that go from one job to another.
    `outputs` are the identities of operators whose rows are in such a place already; a job that
    has ended calls `ended` with its operators."""

    fresh: Mapping[str, str]
    stored_rows: Mapping[str, StoredRows]
    jobs: Jobs
    places: Mapping[str, str]
    outputs: Collection[str] = ()
    ended: Callable[[Sequence[Node]], None] = lambda nodes: None


class Programs:
    """The programs of one session. With `here`, the engine's Python is this process.

    Another engine over Spark Connect can't learn which epoch a job is for, so each epoch builds a
    new program.
    """

    def __init__(self, session: SparkSession, here: bool) -> None:
        self.session = session
        self._here = here
        self._reuses_programs = here or isinstance(session, SparkSession)
        self._programs: dict[Any, _ReusableProgram] = {}

    def load(self, view: ViewRecord, step: Step, load: Load) -> int:
        """Load one view; returns its rows."""
        rows, others = direct.run([view], step, load.fresh)
        if not others:
            return rows
        program = Program(
            self.session, step, load.fresh, stored_rows=load.stored_rows, places=load.places
        )
        for node in view.plan.walk():
            if node.identity in load.outputs:
                program.read_ahead(node)
        rows = 0
        for part in load.jobs.ahead:
            rows += _run_job(program, [program.ahead(node) for node in part], step)
            load.ended(part)
        return rows + _run_job(program, [program.sink(view)], step)

    def run(self, views: list[ViewRecord], step: Step, states: Mapping[str, str]) -> int:
        """Do the views' part of an epoch; returns the view rows it touched."""
        rows, others = direct.run(views, step, states)
        return rows + (self._run(others, step, states) if others else 0)

    def _run(self, views: list[ViewRecord], step: Step, states: Mapping[str, str]) -> int:
        """Run one program on the engine."""
        if not self._reuses_programs:
            program = Program(self.session, step, states)
            rows = sum(map(touched, self._frames(views, program, _jobs(views, step))))
            return rows + run_left_out(program.duties, step)
        shape = _shape(views, step)
        reusable = self._programs.pop(shape) if shape in self._programs else None
        reusable = reusable or self._reusable_program(views, step, states)
        try:
            rows = (
                self._run_here(reusable, step) if self._here else self._run_on_spark(reusable, step)
            )
        except BaseException:
            self._forget(reusable)
            raise
        self._programs[shape] = reusable
        if len(self._programs) > _MOST_PROGRAMS:
            self._forget(self._programs.pop(next(iter(self._programs))))
        return rows

    def _run_on_spark(self, program: _ReusableProgram, step: Step) -> int:
        context = self.session.sparkContext
        context.setLocalProperty(STEP, step.to_json())
        try:
            # the same plan would reuse its old shuffle files
            jobs = [job.select("*") if program.shuffles else job for job in program.jobs]
            return sum(map(touched, jobs)) + run_left_out(program.duties, step)
        finally:
            context.setLocalProperty(STEP, "")

    def _run_here(self, program: _ReusableProgram, step: Step) -> int:
        RUNNING[program.name] = step
        try:
            return sum(map(touched, program.jobs)) + run_left_out(program.duties, step)
        finally:
            del RUNNING[program.name]

    def _reusable_program(
        self, views: list[ViewRecord], step: Step, states: Mapping[str, str]
    ) -> _ReusableProgram:
        """A program for any epoch. Spark Connect would send the whole program with every job; a
        temporary view is sent, and resolved, once."""
        name = f"program_{uuid.uuid4().hex}"
        program = Program(self.session, step, states, name=name)
        frames = self._frames(views, program, _jobs(views, step))
        if self._here:
            for number, frame in enumerate(frames):
                frame.createOrReplaceTempView(f"{name}_{number}")
            frames = [self.session.table(f"{name}_{number}") for number in range(len(frames))]
        return _ReusableProgram(name, frames, program.duties, program.shuffles)

    def _forget(self, program: _ReusableProgram) -> None:
        for number in range(len(program.jobs)) if self._here else ():
            self.session.catalog.dropTempView(f"{program.name}_{number}")

    def _frames(self, views: list[ViewRecord], program: Program, planned: Jobs) -> list[DataFrame]:
        """The frames of jobs, in the order to run them."""
        ahead = [[program.ahead(node) for node in part] for part in planned.ahead]
        sinks = [[program.sink(views[at]) for at in part] for part in planned.last]
        return [job for part in (*ahead, *sinks) if (job := _job(part)) is not None]


def _job(parts: Iterable[DataFrame | None]) -> DataFrame | None:
    """Frames that run together."""
    present = [frame for frame in parts if frame is not None]
    return reduce(lambda frame, next_frame: frame.union(next_frame), present) if present else None


def _run_job(program: Program, parts: Iterable[DataFrame | None], step: Step) -> int:
    """Run frames together, and what the engine leaves out of them; returns the rows touched."""
    job = _job(parts)
    rows = 0 if job is None else touched(job)
    duties, program.duties = program.duties, []
    return rows + run_left_out(duties, step)


def _jobs(views: list[ViewRecord], step: Step) -> Jobs:
    start = step.start or {}
    changed = {table for table, end in step.end.items() if start.get(table) != end}
    return jobs([view.plan for view in views], changed=changed)


def recompute(session: SparkSession, address: str, plan: Node, positions: Positions) -> pa.Table:
    """The rows of a plan over tables as they were at some positions, computed without state."""
    if (size := size_in_one_job(plan)) > MOST_TOGETHER:
        raise UnsupportedSql(
            f"the plan of this view reads its parts so often that it takes {size:,} "
            "operators to compute it at once; verify the views that it reads, one by one"
        )
    step = Step(address, (0,), 0, 0, None, positions)
    frame = Program(session, step, {}).frame(plan)
    assert frame is not None
    weighted_rows = frame.toArrow()
    counts = weights_of(weighted_rows)
    rows = weighted_rows.select(plan.names())
    return rows.take(pa.array(np.repeat(np.arange(len(counts)), counts)))


def _shape(views: list[ViewRecord], step: Step) -> Any:
    """Equal for steps that have equal programs. Names of states are part of it: a state may move
    after a maintainer was superseded in the middle of a write."""
    assert step.start is not None
    states = tuple(tuple(sorted(view.states.items())) for view in views)
    regions = tuple((t, len(end)) for t, end in step.end.items() if end != step.start[t])
    return states, regions, step.shards, step.slots, step.tasks, step.is_spread
